"""Format the lines of `kbroker dump`, which are those of Kafka 2.8's DumpLogSegments."""

from __future__ import annotations

from broker.kbroker.log.entries import LogEntry
from broker.kbroker.log.records import LoggedRecord, add_to_sequence
from core_log.producers.producer_state import NONE, Producer
from core_log.segments.transaction_index import VERSION, AbortedTransaction
from protocol.records.batch_header import BatchHeader

INDENT = "| "

TIMESTAMP_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
CONTROL_TYPES = {0: "ABORT", 1: "COMMIT", 2: "LEADER_CHANGE"}
"""Type in a control record's key -> its name; any other type is UNKNOWN."""
TRANSACTION_MARKERS = (0, 1)


def format_batch(entry: LogEntry) -> str:
    """Format an entry as a whole."""
    header = entry.header
    if isinstance(header, BatchHeader):
        offsets = (
            f"baseOffset: {header.base_offset} lastOffset: {header.last_offset}"
            f" count: {header.count} baseSequence: {header.base_sequence}"
            f" lastSequence: {add_to_sequence(header.base_sequence, header.last_offset_delta)}"
            f" producerId: {header.producer_id} producerEpoch: {header.producer_epoch}"
            f" partitionLeaderEpoch: {header.partition_leader_epoch}"
            f" isTransactional: {_java(header.is_transactional)}"
            f" isControl: {_java(header.is_control)}"
        )
    else:
        # Messages of formats 0 and 1 have one offset and no producer.
        offsets = f"offset: {header.offset}"

    return (
        f"{offsets} position: {entry.position}"
        f" {TIMESTAMP_TYPES[header.timestamp_type]}: {header.max_timestamp}"
        f" size: {header.size} magic: {header.magic} compresscodec: {header.codec.name}"
        f" crc: {header.crc} isvalid: {_java(entry.fault is None)}"
    )


def format_record_context(entry: LogEntry, base_offset: int) -> tuple[str, str]:
    """Format the parts that all records of an entry share: before and behind the record's time.

    `base_offset`: offset of the first record, which headers of formats 0 and 1 lack.
    """
    header = entry.header
    if isinstance(header, BatchHeader):
        base_offset = header.base_offset
        base_sequence = header.base_sequence
        last_sequence = add_to_sequence(base_sequence, header.last_offset_delta)
        producer_epoch = header.producer_epoch
    else:
        # Formats 0 and 1 know no producers: -1, as in Kafka's tool.
        base_sequence = last_sequence = producer_epoch = NONE

    return (
        f" {TIMESTAMP_TYPES[header.timestamp_type]}: ",
        f" baseOffset: {base_offset} lastOffset: {header.last_offset}"
        f" baseSequence: {base_sequence} lastSequence: {last_sequence}"
        f" producerEpoch: {producer_epoch}"
        f" partitionLeaderEpoch: {header.partition_leader_epoch}"
        f" batchSize: {header.size} magic: {header.magic} compressType: {header.codec.name}"
        f" position: {entry.position}",
    )


def format_record(entry: LogEntry, context: tuple[str, str], record: LoggedRecord) -> str:
    """Format a record without key and payload; `context` comes from `format_record_context`."""
    time, batch = context
    crc = "null" if record.crc is None else record.crc
    line = (
        f"{INDENT}offset: {record.offset} isValid: {_java(record.is_valid)} crc: {crc}"
        f" keySize: {_size(record.key)} valueSize: {_size(record.value)}"
        f"{time}{record.timestamp}{batch}"
    )

    # The checksum stands there twice in the old formats; the others have more fields.
    if entry.header.magic < 2:
        return f"{line} crc: {crc} isvalid: {_java(record.is_valid)}"
    names = ",".join(name for name, _ in record.headers)
    line = f"{line} sequence: {record.sequence} headerKeys: [{names}]"
    return line + format_control(record) if entry.header.is_control else line


def format_control(record: LoggedRecord) -> str:
    """Format the content of a control record, which ends its line."""
    # The key has a version and a type, of 16 bits each.
    control_type = int.from_bytes((record.key or b"")[2:4], "big", signed=True)
    name = CONTROL_TYPES.get(control_type, "UNKNOWN")
    if control_type not in TRANSACTION_MARKERS:
        return f" controlType: {name}({control_type})"

    # The value has a version of 16 bits and the coordinator's epoch of 32.
    epoch = int.from_bytes((record.value or b"")[2:6], "big", signed=True)
    return f" endTxnMarker: {name} coordinatorEpoch: {epoch}"


def format_producer(producer_id: int, producer: Producer) -> str:
    """Format an entry of a producer snapshot."""
    start = producer.transaction_start
    line = (
        f"producerId: {producer_id} producerEpoch: {producer.epoch}"
        f" coordinatorEpoch: {producer.coordinator_epoch}"
        # An Option, as Scala prints it.
        f" currentTxnFirstOffset: {'None' if start == NONE else f'Some({start})'} "
    )
    if not producer.batches:
        return line

    # A snapshot has only the last batch of a producer.
    last = producer.batches[-1]
    return (
        f"{line}firstSequence: {add_to_sequence(last.last_sequence, -last.offset_delta)}"
        f" lastSequence: {last.last_sequence} lastOffset: {last.last_offset}"
        f" offsetDelta: {last.offset_delta} timestamp: {last.timestamp}"
    )


def format_aborted(aborted: AbortedTransaction) -> str:
    """Format an entry of a transaction index."""
    return (
        f"version: {VERSION} producerId: {aborted.producer_id}"
        f" firstOffset: {aborted.first_offset} lastOffset: {aborted.last_offset}"
        f" lastStableOffset: {aborted.last_stable_offset}"
    )


def _size(field: bytes | None) -> int:
    return NONE if field is None else len(field)


def _java(flag: bool) -> str:
    return "true" if flag else "false"
