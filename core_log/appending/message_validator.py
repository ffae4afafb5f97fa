"""Check messages of old producers (Produce v0-2), and convert batches for topics in old formats.

A topic keeps the format of its `message.format.version`, and data in another one is converted:
messages become record batches for a topic of today, and batches become messages for a topic that
old readers share. Data in the right format stays: a wrapper of format 1 only gets its offset.
Rules and error codes are those of Kafka's LogValidator, with one difference. Uncompressed messages
that would make a batch larger than max.message.bytes are put into several, where Kafka refuses
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from core_log.appending.validator import (
    Bytes,
    ValidBatch,
    check_size,
    check_times,
    target_codec,
    translate_errors,
)
from core_log.config import LogConfig
from protocol.bounds import MAX_PRODUCED_BYTES
from protocol.errors import ApiError, ErrorCode
from protocol.frozen import frozen
from protocol.records.batch import BatchBuilder, decode_batch, read_header
from protocol.records.compression import Codec
from protocol.records.legacy import (
    CREATE_TIME,
    LOG_APPEND_TIME_TYPE,
    NO_TIMESTAMP,
    ProducedMessage,
    encode_messages,
    entry_size,
    restamp,
    validate_messages,
)
from protocol.records.record_run import Row
from protocol.records.room import Room
from protocol.topic_partition import TopicPartition

BATCH_MAGIC = 2


@frozen
class ValidMessages:
    """Messages in a topic's own old format. Unlike a batch's, their offsets are final."""

    data: bytes
    first_offset: int
    last_offset: int
    log_append_time_ms: int


def validate_set(
    topic_partition: TopicPartition,
    records: Bytes | None,
    config: LogConfig,
    *,
    next_offset: int,
    now_ms: int,
    room: Room,
) -> Sequence[ValidBatch | ValidMessages]:
    """Check a message set, and convert it to the topic's format, from `next_offset` on.

    Its wrappers may decompress to `room`, of which is taken what was decompressed. An empty set
    gives nothing, as in all Kafka versions. Raises ApiError.
    """
    # Check the messages.
    with translate_errors(topic_partition):
        entries = validate_messages(
            records or b"",
            require_keys="compact" in config.cleanup_policy,
            room=room,
        )
        if not entries:
            return ()
        for entry in entries:
            check_size(topic_partition, entry.header.size, config)
            if entry.header.timestamp_type == LOG_APPEND_TIME_TYPE:
                raise ApiError(ErrorCode.INVALID_TIMESTAMP, "a producer may not send LogAppendTime")
        rows = [row for entry in entries for row in entry.rows]
        check_times(topic_partition, (row[1] for row in rows), config, now_ms)

        # Convert them, unless they can stay.
        codec = target_codec(config, _source_codec(entries))
        if config.magic == BATCH_MAGIC:
            return _batches(topic_partition, rows, codec, config)
        unchanged = _with_offset(entries, codec, config, next_offset, now_ms)
        if unchanged is not None:
            return (unchanged,)
        return (_messages(topic_partition, rows, codec, config, next_offset, now_ms),)


def convert_to_old_format(
    topic_partition: TopicPartition,
    batch: ValidBatch,
    config: LogConfig,
    *,
    next_offset: int,
    now_ms: int,
) -> ValidMessages:
    """Convert a batch to messages of the topic's format. Headers are lost. Raises ApiError."""
    header = batch.header
    if header.is_transactional or header.producer_id >= 0:
        raise ApiError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"{topic_partition} is kept in format {config.magic}, which has no producer ids",
        )

    with translate_errors(topic_partition):
        rows = decode_batch(batch.data, 0, header)
        codec = target_codec(config, header.codec)
        return _messages(topic_partition, rows, codec, config, next_offset, now_ms)


def _source_codec(entries: Iterable[ProducedMessage]) -> Codec:
    """Return the codec of the last entry that has one."""
    codec = Codec.NONE
    for entry in entries:
        codec = entry.header.codec or codec
    return codec


def _batches(
    topic_partition: TopicPartition, rows: Iterable[Row], codec: Codec, config: LogConfig
) -> list[ValidBatch]:
    # Nobody knows before how small a codec makes a batch: `check_size` decides.
    bound = config.max_message_bytes if codec is Codec.NONE else MAX_PRODUCED_BYTES
    builders = [BatchBuilder(codec, bound)]
    for _, timestamp_ms, key, value, _ in rows:
        if not builders[-1].try_append(timestamp_ms, key, value):
            builders.append(BatchBuilder(codec, bound))
            builders[-1].try_append(timestamp_ms, key, value)

    batches = []
    for builder in builders:
        data = builder.build()
        header = read_header(data)
        check_size(topic_partition, header.size, config)
        batches.append(ValidBatch(data, header, header.max_timestamp))
    return batches


def _with_offset(
    entries: Sequence[ProducedMessage],
    codec: Codec,
    config: LogConfig,
    next_offset: int,
    now_ms: int,
) -> ValidMessages | None:
    """Return a wrapper that can stay as it is but for its offset; None if there is none.

    Its messages must count 0, 1, 2, …
    """
    # Compressed, in the topic's format, and numbered as it must be: then only its header changes.
    header, data, rows = entries[0]
    if len(entries) > 1 or codec is Codec.NONE or header.codec is not codec:
        return None
    # Format 0 has absolute offsets inside, which would all change.
    if header.magic != config.magic or header.magic == 0:
        return None
    if any(row[0] != index for index, row in enumerate(rows)):
        return None

    # With LogAppendTime the wrapper's time counts for all its messages.
    time_type, append_time = _append_time(config, now_ms)
    latest = max(row[1] for row in rows) if append_time == NO_TIMESTAMP else append_time
    last_offset = next_offset + len(rows) - 1
    return ValidMessages(
        restamp(data, last_offset, latest, time_type), next_offset, last_offset, append_time
    )


def _messages(
    topic_partition: TopicPartition,
    rows: Sequence[Row],
    codec: Codec,
    config: LogConfig,
    next_offset: int,
    now_ms: int,
) -> ValidMessages:
    if codec is Codec.ZSTD:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"{topic_partition} is kept in format {config.magic}, which has no zstd",
        )

    time_type, append_time = _append_time(config, now_ms)
    # Offsets are given here. Headers are left out: old formats have none.
    placed: list[Row] = [
        (offset, timestamp if append_time == NO_TIMESTAMP else append_time, key, value, ())
        for offset, (_, timestamp, key, value, _) in enumerate(rows, next_offset)
    ]
    data = encode_messages(placed, config.magic, codec=codec, timestamp_type=time_type)
    # Each message is stored by itself, or all are in one wrapper.
    if codec is Codec.NONE:
        largest = max(entry_size(config.magic, key, value) for _, _, key, value, _ in placed)
    else:
        largest = len(data)
    check_size(topic_partition, largest, config)
    return ValidMessages(data, next_offset, placed[-1][0], append_time)


def _append_time(config: LogConfig, now_ms: int) -> tuple[int, int]:
    """Return the topic's timestamp type and the time for all messages, -1 for their own."""
    if config.message_timestamp_type == "LogAppendTime":
        return LOG_APPEND_TIME_TYPE, now_ms
    return CREATE_TIME, NO_TIMESTAMP
