"""The lines of `kbroker dump`: those of Kafka 2.8's DumpLogSegments, to the letter."""

from __future__ import annotations

from broker.kbroker.log.entries import Entry
from broker.kbroker.log.records import LoggedRecord, sequence_after
from core_log.producers.producer_state import NONE, Producer
from core_log.segments.transaction_index import VERSION, AbortedTransaction
from protocol.records.batch_header import BatchHeader

INDENT = "| "

TIMESTAMP_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
CONTROL_TYPES = {0: "ABORT", 1: "COMMIT", 2: "LEADER_CHANGE"}
"""By the type in a control record's key; any other is UNKNOWN."""
TRANSACTION_MARKERS = (0, 1)


def batch_line(entry: Entry) -> str:
    """An entry as a whole."""
    header = entry.header
    if isinstance(header, BatchHeader):
        what = (
            f"baseOffset: {header.base_offset} lastOffset: {header.last_offset}"
            f" count: {header.count} baseSequence: {header.base_sequence}"
            f" lastSequence: {sequence_after(header.base_sequence, header.last_offset_delta)}"
            f" producerId: {header.producer_id} producerEpoch: {header.producer_epoch}"
            f" partitionLeaderEpoch: {header.partition_leader_epoch}"
            f" isTransactional: {_java(header.is_transactional)}"
            f" isControl: {_java(header.is_control)}"
        )
    else:
        what = f"offset: {header.offset}"
    return (
        f"{what} position: {entry.position}"
        f" {TIMESTAMP_TYPES[header.timestamp_type]}: {header.max_timestamp}"
        f" size: {header.size} magic: {header.magic} compresscodec: {header.codec.name}"
        f" crc: {header.crc} isvalid: {_java(entry.fault is None)}"
    )


def record_prefix(entry: Entry, base_offset: int) -> tuple[str, str]:
    """What the lines of an entry's records have in common, in front of and behind their times.

    `base_offset` is that of the first record in an entry of the formats before.
    """
    header = entry.header
    if isinstance(header, BatchHeader):
        base_offset, base_sequence = header.base_offset, header.base_sequence
        last_sequence = sequence_after(base_sequence, header.last_offset_delta)
        producer_epoch = header.producer_epoch
    else:
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


def record_line(entry: Entry, common: tuple[str, str], record: LoggedRecord) -> str:
    """A record without its key and payload; `common` is of `record_prefix`."""
    time, batch = common
    crc = "null" if record.crc is None else record.crc
    line = (
        f"{INDENT}offset: {record.offset} isValid: {_java(record.is_valid)} crc: {crc}"
        f" keySize: {_size(record.key)} valueSize: {_size(record.value)}"
        f"{time}{record.timestamp}{batch}"
    )
    if entry.header.magic < 2:
        return f"{line} crc: {crc} isvalid: {_java(record.is_valid)}"
    names = ",".join(name for name, _ in record.headers)
    line = f"{line} sequence: {record.sequence} headerKeys: [{names}]"
    return line + marker(record) if entry.header.is_control else line


def marker(record: LoggedRecord) -> str:
    """What a control record says, at the end of its line."""
    kind = int.from_bytes((record.key or b"")[2:4], "big", signed=True)
    name = CONTROL_TYPES.get(kind, "UNKNOWN")
    if kind not in TRANSACTION_MARKERS:
        return f" controlType: {name}({kind})"
    epoch = int.from_bytes((record.value or b"")[2:6], "big", signed=True)
    return f" endTxnMarker: {name} coordinatorEpoch: {epoch}"


def producer_line(producer_id: int, producer: Producer) -> str:
    """An entry of a producer snapshot."""
    start = producer.transaction_start
    line = (
        f"producerId: {producer_id} producerEpoch: {producer.epoch}"
        f" coordinatorEpoch: {producer.coordinator_epoch}"
        f" currentTxnFirstOffset: {'None' if start == NONE else f'Some({start})'} "
    )
    if not producer.batches:
        return line
    last = producer.batches[-1]
    return (
        f"{line}firstSequence: {sequence_after(last.last_sequence, -last.offset_delta)}"
        f" lastSequence: {last.last_sequence} lastOffset: {last.last_offset}"
        f" offsetDelta: {last.offset_delta} timestamp: {last.timestamp}"
    )


def aborted_line(aborted: AbortedTransaction) -> str:
    """An entry of a transaction index."""
    return (
        f"version: {VERSION} producerId: {aborted.producer_id}"
        f" firstOffset: {aborted.first_offset} lastOffset: {aborted.last_offset}"
        f" lastStableOffset: {aborted.last_stable_offset}"
    )


def _size(field: bytes | None) -> int:
    return NONE if field is None else len(field)


def _java(flag: bool) -> str:
    return "true" if flag else "false"
