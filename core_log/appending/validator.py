"""Check a produced batch before the leader appends it.

The broker believes nothing that a producer says: it checks the header, the checksum and every
record's lengths (`protocol.records`), then the topic's own rules. A batch that breaks one is
refused whole. Rules and error codes are those of Kafka's LogValidator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

from core_log.config import LogConfig
from protocol.bounds import MAX_BATCH_BYTES, MAX_PRODUCED_BYTES, MAX_REWRITTEN_RECORDS
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch import (
    HEADER_BYTES,
    BatchHeader,
    CorruptRecord,
    decode_batch,
    decompress_records,
    encode_body,
    read_header,
    validate_batch,
)
from protocol.records.batch_header import (
    CODEC_MASK,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
    codec_of,
)
from protocol.records.compression import Codec, CompressionUnavailable
from protocol.records.corrupt_record import (
    DamagedOnTheWay,
    KeyRequired,
    RecordsTooLarge,
    TooManyRecords,
    UnsupportedMagic,
)
from protocol.records.room import Room
from protocol.topic_partition import TopicPartition

Bytes = bytes | bytearray | memoryview
_UNBOUNDED = 2**63 - 1

LITTLE_REWRITTEN_BYTES = 16 * 1024
LITTLE_DECOMPRESSED_BYTES = 64 * 1024
LITTLE_RECORDS = 10_000
"""Bounds of the part of one request that is checked on the event loop, in some milliseconds."""

_MAGIC_AT = 16
_CODEC_AT = 22
_COUNT_AT = HEADER_BYTES - 4
"""Positions in a batch's header of the lower half of its attributes, and of its record count.

The magic, at 16, is at the same place in all formats.
"""
_PRODUCER_ID_AT = 43
_SIGN = 0x80
"""Position of the producer's id, and the bit of its first byte that is set where there is none."""

_MAGICS = (0, 1, 2)
"""The formats that there are; another number was hardly sent."""

MAX_RECORD_ERRORS = 100
"""Records of one refused batch that are named in its response."""


class RecordsRefused(ApiError):
    """A batch is refused because of some of its records (KIP-467).

    `records` has the index of each and what is wrong with it, of MAX_RECORD_ERRORS at most;
    `message` is what they have in common.
    """

    def __init__(
        self,
        code: ErrorCode,
        topic_partition: TopicPartition,
        message: str,
        records: Sequence[tuple[int, str]],
    ) -> None:
        _, first = records[0]
        super().__init__(code, f"{topic_partition}: {first}")
        self.message = message
        self.records = records


class ValidBatch(NamedTuple):
    """A batch that may be appended, and the true largest timestamp of its records."""

    data: Bytes
    header: BatchHeader
    max_timestamp: int


class Effort(NamedTuple):
    """The cost of a check: bytes to decompress or write again, and records to walk over."""

    rewritten_bytes: int = 0
    records: int = 0

    @property
    def is_little(self) -> bool:
        """True if the event loop has the time for it."""
        return self.rewritten_bytes <= LITTLE_REWRITTEN_BYTES and self.records <= LITTLE_RECORDS


def is_compressed(records: Bytes) -> bool:
    """Return whether the header of what may be a batch names a codec."""
    return len(records) > _CODEC_AT and records[_CODEC_AT] & CODEC_MASK != 0


def is_transactional(records: Bytes | None) -> bool:
    """Return whether the header of what may be a batch says that it is of a transaction."""
    return (
        records is not None
        and len(records) > _CODEC_AT
        and records[_MAGIC_AT] == MAGIC
        and records[_CODEC_AT] & TRANSACTIONAL != 0
    )


def is_plain(records: Bytes) -> bool:
    """Return whether what may be a batch is neither compressed nor of a transaction."""
    return len(records) <= _CODEC_AT or records[_CODEC_AT] & (CODEC_MASK | TRANSACTIONAL) == 0


def has_producer(records: Bytes) -> bool:
    """Return whether the header of what may be a batch has the id of a producer."""
    return len(records) > _PRODUCER_ID_AT and records[_PRODUCER_ID_AT] < _SIGN


def effort_of(records: Bytes | None, config: LogConfig | None) -> Effort:
    """Estimate the cost of checking a batch, by its header, to which the check will hold it.

    Without `config` the topic's rules are left out.
    """
    if records is None or len(records) < HEADER_BYTES:
        return Effort()
    codec, count = records[_CODEC_AT] & CODEC_MASK, int.from_bytes(records[_COUNT_AT:HEADER_BYTES])
    rewrites = codec != Codec.NONE or (config is not None and _is_written_anew(config))
    return Effort(len(records) if rewrites else 0, count)


def _is_written_anew(config: LogConfig) -> bool:
    """Return whether uncompressed records are converted, or read once more for their times."""
    return (
        config.compression_type not in ("producer", "uncompressed")
        or config.magic != MAGIC
        or config.message_timestamp_difference_max_ms < _UNBOUNDED
    )


def validate(
    topic_partition: TopicPartition,
    records: Bytes | None,
    config: LogConfig,
    *,
    zstd_allowed: bool,
    now_ms: int,
    room: Room | None = None,
) -> ValidBatch:
    """Check the records of one partition of a produce request. Raises ApiError.

    They may decompress to `room`, of which is taken what was decompressed, also if they are
    refused. Without one they have that of a whole request.
    """
    if room is None:
        room = Room(MAX_PRODUCED_BYTES)
    try:
        return _validate(topic_partition, records, config, zstd_allowed, now_ms, room)
    except KeyRequired as error:
        assert records is not None
        raise _keys_required(topic_partition, records) from error
    except (CorruptRecord, CompressionUnavailable) as error:
        raise _api_error(topic_partition, error) from error


@contextmanager
def translate_errors(topic_partition: TopicPartition) -> Iterator[None]:
    """Raise ApiError for what is wrong with a producer's bytes."""
    try:
        yield
    except (CorruptRecord, CompressionUnavailable) as error:
        raise _api_error(topic_partition, error) from error


def _keys_required(topic_partition: TopicPartition, records: Bytes) -> ApiError:
    """Return the error of a batch that has records without keys, for a compacted topic."""
    # Those behind the first one have not been looked at.
    try:
        check_count(topic_partition, read_header(records).count)
        decoded = decode_batch(records)
    except CorruptRecord as error:
        return _api_error(topic_partition, error)
    except ApiError as error:
        return error

    keyless = (index for index, record in enumerate(decoded) if record.key is None)
    why = f"Compacted topic cannot accept message without key in topic partition {topic_partition}."
    return RecordsRefused(
        ErrorCode.INVALID_RECORD,
        topic_partition,
        "One or more records have been rejected",
        [(index, why) for index in islice(keyless, MAX_RECORD_ERRORS)],
    )


def _api_error(
    topic_partition: TopicPartition, error: CorruptRecord | CompressionUnavailable
) -> ApiError:
    # The special kinds of CorruptRecord come first.
    if isinstance(error, KeyRequired):
        return ApiError(ErrorCode.INVALID_RECORD, f"{topic_partition}: {error}")
    if isinstance(error, (RecordsTooLarge, TooManyRecords)):
        return ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"{topic_partition}: {error}")
    if isinstance(error, CorruptRecord):
        # Sent again, it is the same, and producers repeat CORRUPT_MESSAGE for as long as they may
        # (fault broker-9, was: ErrorCode.CORRUPT_MESSAGE).
        code = _code_of(error)
        return ApiError(code, f"{topic_partition}: {error}")
    return ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, str(error))


def _code_of(error: CorruptRecord) -> ErrorCode:
    if isinstance(error, UnsupportedMagic):
        is_damaged = error.magic not in _MAGICS
    else:
        is_damaged = isinstance(error, DamagedOnTheWay)
    return ErrorCode.CORRUPT_MESSAGE if is_damaged else ErrorCode.INVALID_RECORD


def _validate(
    topic_partition: TopicPartition,
    records: Bytes | None,
    config: LogConfig,
    zstd_allowed: bool,
    now_ms: int,
    room: Room,
) -> ValidBatch:
    # Check the header.
    if records is None or len(records) < HEADER_BYTES:
        raise CorruptRecord("no whole record batch")
    header = read_header(records)
    size = header.size
    if size != len(records):
        raise CorruptRecord(f"{len(records)} bytes hold not exactly one batch of {size}")
    codec = codec_of(header.attributes)
    check_size(topic_partition, size, config)
    _check_header(topic_partition, header, codec, zstd_allowed)

    # Check the records.
    wanted = target_codec(config, codec)
    limits_times = config.message_timestamp_difference_max_ms < _UNBOUNDED
    if limits_times or config.magic != MAGIC:
        # Records that are read one by one are objects (fault security-0).
        check_count(topic_partition, header.count)
    checked = validate_batch(
        records,
        header,
        require_keys="compact" in config.cleanup_policy,
        max_decompressed=room,
    )
    # Reading all times costs a second walk, so only where the topic limits them.
    if limits_times:
        sent = (record.timestamp_ms for record in decode_batch(records))
        check_times(topic_partition, sent, config, now_ms)

    # Compress them as the topic wants.
    valid = ValidBatch(records, header, checked.max_timestamp)
    if wanted is codec:
        return valid
    # Another codec may make it larger than it came.
    batch = _recompress(valid, wanted)
    check_size(topic_partition, batch.header.size, config)
    return batch


def check_size(topic_partition: TopicPartition, size: int, config: LogConfig) -> None:
    """Raise ApiError for a batch or message above max.message.bytes, or too large to read."""
    if size > config.max_message_bytes:
        allowed = f"max.message.bytes is {config.max_message_bytes}"
    elif size > MAX_BATCH_BYTES:
        allowed = f"no more than {MAX_BATCH_BYTES} can be read again"
    else:
        return
    raise ApiError(
        ErrorCode.MESSAGE_TOO_LARGE, f"{topic_partition}: batch of {size} bytes, {allowed}"
    )


def check_count(topic_partition: TopicPartition, records: int) -> None:
    """Raise ApiError for more records than are read one by one."""
    if records > MAX_REWRITTEN_RECORDS:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{topic_partition}: {records} records, of which each would be written anew; "
            f"no more than {MAX_REWRITTEN_RECORDS} are",
        )


def _check_header(
    topic_partition: TopicPartition, header: BatchHeader, codec: Codec, zstd_allowed: bool
) -> None:
    # Offsets and LogAppendTime are the leader's to give.
    if header.base_offset != 0:
        raise CorruptRecord(f"base offset {header.base_offset} from a producer, must be 0")
    if header.attributes & LOG_APPEND_TIME:
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, "a producer may not send LogAppendTime")
    # KIP-110 ties zstd to the version of the request.
    if codec is Codec.ZSTD and not zstd_allowed:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs version 7 of the produce request"
        )
    if header.attributes & TRANSACTIONAL and header.producer_id < 0:
        reason = f"{topic_partition}: transactional batch without a producer id"
        raise ApiError(ErrorCode.INVALID_RECORD, reason)
    if header.producer_id >= 0 and header.producer_epoch < 0:
        raise CorruptRecord(f"producer id {header.producer_id} without an epoch")


def check_times(
    topic_partition: TopicPartition, timestamps: Iterable[int], config: LogConfig, now_ms: int
) -> None:
    """Raise ApiError for a time too far from now, if the topic keeps the producer's times."""
    allowed = config.message_timestamp_difference_max_ms
    if allowed >= _UNBOUNDED or config.message_timestamp_type != "CreateTime":
        return
    far = (
        (index, timestamp)
        for index, timestamp in enumerate(timestamps)
        # -1 is no time: messages of format 0 have none.
        if timestamp != -1 and abs(timestamp - now_ms) > allowed
    )
    refused = [
        (
            index,
            f"Timestamp {timestamp} of message with offset {index} is out of range. "
            f"The timestamp should be within [{now_ms - allowed}, {now_ms + allowed}]",
        )
        for index, timestamp in islice(far, MAX_RECORD_ERRORS)
    ]
    if refused:
        raise RecordsRefused(
            ErrorCode.INVALID_TIMESTAMP,
            topic_partition,
            "One or more records have been rejected due to invalid timestamp",
            refused,
        )


def target_codec(config: LogConfig, source: Codec) -> Codec:
    """Return the codec in which compression.type keeps records that came in `source`."""
    if config.compression_type == "producer":
        return source
    if config.compression_type == "uncompressed":
        return Codec.NONE
    return Codec.of_name(config.compression_type)


def _recompress(batch: ValidBatch, codec: Codec) -> ValidBatch:
    # Records that were checked stay as they are: none becomes an object, however many there are.
    body = decompress_records(batch.data, 0, batch.header, MAX_BATCH_BYTES)
    # The producer's numbers stay. Offset and leader epoch come with the append.
    header = batch.header._replace(
        partition_leader_epoch=-1,
        attributes=batch.header.attributes & TRANSACTIONAL,
        max_timestamp=batch.max_timestamp,
    )
    data = encode_body(body, codec, header)
    return batch._replace(data=data, header=read_header(data))
