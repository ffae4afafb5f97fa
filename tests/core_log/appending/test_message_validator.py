"""Messages of old producers, and old topics: what is kept as it comes, and what is made of it."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import pytest

from core_log.appending.batch_stamp import stamp
from core_log.appending.message_validator import ValidMessages, convert_to_old_format, validate_set
from core_log.appending.validator import ValidBatch
from core_log.config import LogConfig
from protocol.bounds import MAX_PRODUCED_BYTES
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch import decode_batch, decode_records, encode_batch, read_header
from protocol.records.batch_header import TRANSACTIONAL
from protocol.records.compression import Codec, compress
from protocol.records.legacy import (
    encode_messages,
    read_message_header,
    restamp,
    size_at,
)
from protocol.records.record_run import Row
from protocol.records.room import Room
from protocol.topic_partition import TopicPartition

T0 = TopicPartition("t", 0)
NOW_MS = 1_400_000_000_000
NEXT = 1_234_567
VERSIONS = {0: "0.9.0", 1: "0.10.2", 2: "2.3-IV1"}
ROWS: list[Row] = [(n, NOW_MS - 10 * n, b"k%d" % n, b"v" * n, ()) for n in range(5)]


def config(magic: int = 2, **settings: Any) -> LogConfig:
    dotted = {name.replace("_", "."): str(value) for name, value in settings.items()}
    return LogConfig.from_properties(
        LogConfig(), {"message.format.version": VERSIONS[magic], **dotted}
    )


def checked(
    records: bytes | None, kept: LogConfig | None = None
) -> Sequence[ValidBatch | ValidMessages]:
    room = Room(MAX_PRODUCED_BYTES)
    return validate_set(T0, records, kept or config(), next_offset=NEXT, now_ms=NOW_MS, room=room)


def refusal(records: bytes | None, kept: LogConfig | None = None) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        checked(records, kept)
    return refused.value.code


def old(
    rows: Sequence[Row] = ROWS, magic: int = 1, codec: Codec = Codec.NONE, **options: int
) -> bytes:
    return encode_messages(rows, magic, codec=codec, **options)


def messages(valid: Sequence[ValidBatch | ValidMessages]) -> ValidMessages:
    (only,) = valid
    assert isinstance(only, ValidMessages)
    return only


def batches(valid: Sequence[ValidBatch | ValidMessages]) -> list[ValidBatch]:
    assert all(isinstance(batch, ValidBatch) for batch in valid)
    return list(valid)  # type: ignore[arg-type]


def entry_magics(data: bytes) -> list[int]:
    magics, pos = [], 0
    while pos < len(data):
        header = read_message_header(data, pos)
        magics.append(header.magic)
        pos += header.size
    return magics


def contents(data: bytes) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [(r.offset, r.timestamp_ms, r.key, r.value) for r in decode_records(data)]


def expected(times: Sequence[int]) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [(NEXT + row[0], time, row[2], row[3]) for row, time in zip(ROWS, times, strict=True)]


OWN_TIMES = [row[1] for row in ROWS]
NO_TIMES = [-1] * len(ROWS)

# ---- up-conversion


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4])
def test_messages_become_one_batch_in_a_topic_of_today(magic: int, codec: Codec) -> None:
    (batch,) = batches(checked(old(magic=magic, codec=codec)))

    records = decode_batch(batch.data)
    assert [(r.key, r.value) for r in records] == [(row[2], row[3]) for row in ROWS]
    assert [r.timestamp_ms for r in records] == (OWN_TIMES if magic else NO_TIMES)
    assert batch.header.codec == codec
    assert (batch.header.base_offset, batch.header.last_offset_delta) == (0, 4)
    assert batch.max_timestamp == (NOW_MS if magic else -1)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_format_0_becomes_format_1_without_times(codec: Codec) -> None:
    valid = messages(checked(old(magic=0, codec=codec), config(1)))

    assert contents(valid.data) == expected(NO_TIMES)
    assert (valid.first_offset, valid.last_offset) == (NEXT, NEXT + 4)
    assert read_message_header(valid.data).magic == 1


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_format_1_becomes_format_0_and_loses_its_times(codec: Codec) -> None:
    valid = messages(checked(old(magic=1, codec=codec), config(0)))

    assert contents(valid.data) == expected(NO_TIMES)
    assert (valid.first_offset, valid.last_offset) == (NEXT, NEXT + 4)
    assert entry_magics(valid.data) == [0] * (1 if codec else len(ROWS))


def test_entries_of_all_kinds_are_kept_together_in_the_last_codec() -> None:
    mixed = old(ROWS[:1], 0) + old(ROWS[:3], 1, Codec.GZIP) + old(ROWS[:2], 1)

    (batch,) = batches(checked(mixed))

    assert batch.header.codec == Codec.GZIP
    assert batch.header.count == 6


def test_messages_too_many_for_one_batch_become_several() -> None:
    rows: list[Row] = [(n, 5, None, b"v" * 400, ()) for n in range(10)]

    converted = batches(checked(old(rows), config(max_message_bytes=1000)))

    assert [batch.header.count for batch in converted] == [2] * 5
    assert all(batch.header.size <= 1000 for batch in converted)


# ---- in the topic's format already


@pytest.mark.parametrize("magic", [0, 1])
def test_plain_messages_of_the_topics_format_only_get_their_offsets(magic: int) -> None:
    valid = messages(checked(old(magic=magic), config(magic)))

    assert contents(valid.data) == expected(OWN_TIMES if magic else NO_TIMES)
    first_bytes = len(old(ROWS[:1], magic))
    assert valid.data[8:first_bytes] == old(magic=magic)[8:first_bytes]
    assert valid.log_append_time_ms == -1


def test_wrapper_of_format_1_is_not_compressed_again() -> None:
    sent = old(codec=Codec.GZIP)

    valid = messages(checked(sent, config(1)))

    assert valid.data[8:] == sent[8:]
    assert contents(valid.data) == expected(OWN_TIMES)


def test_wrapper_of_format_0_is_compressed_again_for_its_offsets_are_inside() -> None:
    valid = messages(checked(old(magic=0, codec=Codec.SNAPPY), config(0)))

    assert contents(valid.data) == expected(NO_TIMES)
    assert read_message_header(valid.data).codec == Codec.SNAPPY


def test_wrapper_gets_the_latest_time_in_it() -> None:
    sent = restamp(old(codec=Codec.GZIP), 4, 0, 0)

    valid = messages(checked(sent, config(1)))

    assert read_message_header(valid.data).timestamp == NOW_MS


def test_wrapper_that_was_never_given_an_offset_is_kept_too() -> None:
    sent = bytes(8) + old(codec=Codec.GZIP)[8:]

    valid = messages(checked(sent, config(1)))

    assert valid.data[8:] == sent[8:]
    assert contents(valid.data) == expected(OWN_TIMES)


def test_wrapper_with_holes_in_its_offsets_is_written_anew() -> None:
    rows: list[Row] = [(2 * row[0], *row[1:]) for row in ROWS]

    valid = messages(checked(old(rows, codec=Codec.GZIP), config(1)))

    assert contents(valid.data) == expected(OWN_TIMES)


def test_several_wrappers_become_one() -> None:
    sent = old(ROWS[:2], codec=Codec.GZIP) + old([(0, *row[1:]) for row in ROWS[2:3]])
    sent += old([(n, *row[1:]) for n, row in enumerate(ROWS[3:])], codec=Codec.GZIP)

    valid = messages(checked(sent, config(1)))

    assert contents(valid.data) == expected(OWN_TIMES)
    assert size_at(valid.data, 0) == len(valid.data)


# ---- compression.type and message.timestamp.type


@pytest.mark.parametrize(
    ("compression_type", "codec"), [("gzip", Codec.GZIP), ("uncompressed", Codec.NONE)]
)
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_codec_of_the_topic_wins(magic: int, compression_type: str, codec: Codec) -> None:
    kept = config(magic, compression_type=compression_type)

    (valid,) = checked(old(magic=min(magic, 1), codec=Codec.SNAPPY), kept)

    read = read_header if magic == 2 else read_message_header
    assert read(valid.data).codec == codec
    assert len(decode_records(valid.data)) == 5


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("sent_magic", [0, 1])
def test_time_of_appending_takes_the_place_of_the_producers(sent_magic: int, codec: Codec) -> None:
    kept = config(1, message_timestamp_type="LogAppendTime")

    valid = messages(checked(old(magic=sent_magic, codec=codec), kept))

    assert contents(valid.data) == expected([NOW_MS] * 5)
    assert read_message_header(valid.data).timestamp_type == 1
    assert valid.log_append_time_ms == NOW_MS


def test_format_0_takes_no_times_of_appending() -> None:
    kept = config(0, message_timestamp_type="LogAppendTime")

    valid = messages(checked(old(magic=0), kept))

    assert contents(valid.data) == expected(NO_TIMES)
    assert valid.log_append_time_ms == NOW_MS


# ---- refusals


@pytest.mark.parametrize("records", [None, b""])
def test_empty_set_appends_nothing(records: bytes | None) -> None:
    assert checked(records) == ()


def test_damaged_message_is_refused() -> None:
    assert refusal(old()[:-1] + b"!") is ErrorCode.CORRUPT_MESSAGE


def test_cut_set_is_refused() -> None:
    assert refusal(old()[:-1]) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("outer", [0, 1])
def test_wrapper_around_messages_of_another_format_is_refused(outer: int) -> None:
    inner = compress(Codec.GZIP, old(magic=1 - outer))
    plain = old([(4, NOW_MS, None, inner, ())], magic=outer)
    checksummed = plain[16:17] + bytes((Codec.GZIP,)) + plain[18:]
    mixed = plain[:12] + zlib.crc32(checksummed).to_bytes(4) + checksummed
    for kept in (0, 1, 2):
        assert refusal(mixed, config(kept)) is ErrorCode.INVALID_RECORD


def test_record_batch_is_refused() -> None:
    batch = encode_batch([(5, None, b"v", ())])
    assert refusal(batch) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_message_larger_than_the_topic_takes_is_refused(magic: int) -> None:
    large = old([(0, 5, None, b"v" * 1000, ())])
    assert refusal(large, config(magic, max_message_bytes=999)) is ErrorCode.MESSAGE_TOO_LARGE


def test_message_that_grows_too_large_in_the_topics_format_is_refused() -> None:
    sent = old([(0, 5, None, b"v" * 1000, ())], magic=0)
    kept = config(1, max_message_bytes=len(sent))
    assert refusal(sent, kept) is ErrorCode.MESSAGE_TOO_LARGE
    assert checked(sent, config(0, max_message_bytes=len(sent)))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_time_too_far_from_now_is_refused_and_none_is_not(codec: Codec) -> None:
    near = config(1, message_timestamp_difference_max_ms=1000)
    far: list[Row] = [(0, NOW_MS - 1001, b"k", b"v", ())]

    assert refusal(old(far, codec=codec), near) is ErrorCode.INVALID_TIMESTAMP
    assert checked(old([(0, -1, b"k", b"v", ())], codec=codec), near)


def test_producer_may_not_send_a_time_of_appending() -> None:
    assert refusal(old(timestamp_type=1)) is ErrorCode.INVALID_TIMESTAMP


def test_message_without_a_key_is_refused_by_a_compacted_topic() -> None:
    compacted = config(1, cleanup_policy="compact")
    assert refusal(old([(0, 5, None, b"v", ())]), compacted) is ErrorCode.INVALID_RECORD


# ---- batches in old topics


def as_messages(batch: bytes, kept: LogConfig) -> ValidMessages:
    header = read_header(batch)
    valid = ValidBatch(batch, header, header.max_timestamp)
    return convert_to_old_format(T0, valid, kept, next_offset=NEXT, now_ms=NOW_MS)


BATCH_RECORDS = [(row[1], row[2], row[3], [("h", b"x")]) for row in ROWS]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_batch_becomes_messages_in_an_old_topic_and_loses_headers(magic: int, codec: Codec) -> None:
    valid = as_messages(encode_batch(BATCH_RECORDS, codec=codec), config(magic))

    assert contents(valid.data) == expected(OWN_TIMES if magic else NO_TIMES)
    assert entry_magics(valid.data) == [magic] * (1 if codec else len(ROWS))
    assert read_message_header(valid.data).codec == codec


def test_zstd_has_no_place_in_an_old_topic() -> None:
    with pytest.raises(ApiError) as refused:
        as_messages(encode_batch(BATCH_RECORDS, codec=Codec.ZSTD), config(1))
    assert refused.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    kept = config(1, compression_type="gzip")
    assert as_messages(encode_batch(BATCH_RECORDS, codec=Codec.ZSTD), kept)


@pytest.mark.parametrize("attributes", [0, TRANSACTIONAL])
def test_batch_of_an_idempotent_producer_has_no_place_in_an_old_topic(attributes: int) -> None:
    sent = encode_batch(BATCH_RECORDS, producer_id=5, producer_epoch=0, base_sequence=0)
    batch = b"".join(stamp(sent, read_header(sent), 0, 0, attributes, NOW_MS))
    with pytest.raises(ApiError) as refused:
        as_messages(batch, config(1))
    assert refused.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
