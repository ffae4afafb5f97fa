"""A leader believes nothing of a producer that it has not checked."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from crc32c import crc32c

from core_log.appending.validator import ValidBatch, validate
from core_log.config import LogConfig
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch import decode_batch, encode_batch, read_header
from protocol.records.batch_header import CRC_COVERS_FROM, HEADER, HEADER_BYTES, LOG_OVERHEAD
from protocol.records.compression import Codec, compress
from protocol.topic_partition import TopicPartition

T0 = TopicPartition("t", 0)
NOW_MS = 1_400_000_000_000
COMPACTED = LogConfig(cleanup_policy=("compact",))
NEAR = LogConfig(message_timestamp_difference_max_ms=1000)

CONTROL, TRANSACTIONAL, LOG_APPEND_TIME = 0x20, 0x10, 0x08


def checked(
    records: bytes | memoryview | None,
    config: LogConfig | None = None,
    *,
    zstd_allowed: bool = True,
) -> ValidBatch:
    return validate(T0, records, config or LogConfig(), zstd_allowed=zstd_allowed, now_ms=NOW_MS)


def refusal(records: bytes | None, config: LogConfig | None = None, **allowed: Any) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        checked(records, config, **allowed)
    return refused.value.code


def batch(
    *values: bytes, key: bytes | None = None, timestamp_ms: int = NOW_MS, **header: Any
) -> bytes:
    return encode_batch([(timestamp_ms, key, value, ()) for value in values], **header)


def with_header(data: bytes, **changes: int) -> bytes:
    """The batch with other header fields, and a CRC that fits them."""
    header = read_header(data)._replace(**changes)
    summed = (HEADER.pack(*header) + data[HEADER_BYTES:])[CRC_COVERS_FROM:]
    return HEADER.pack(*header._replace(crc=crc32c(summed))) + data[HEADER_BYTES:]


def values(valid: ValidBatch) -> list[bytes | None]:
    return [record.value for record in decode_batch(valid.data)]


def test_a_good_batch_is_taken_as_it_came_without_a_copy() -> None:
    sent = memoryview(batch(b"a", b"b"))
    valid = checked(sent)
    assert valid.data is sent
    assert (valid.header.count, valid.max_timestamp) == (2, NOW_MS)


def test_the_latest_timestamp_is_that_of_the_records_not_of_the_header() -> None:
    lying = with_header(batch(b"a", timestamp_ms=5), max_timestamp=NOW_MS)
    assert checked(lying).max_timestamp == 5


@pytest.mark.parametrize("size", [0, 1, HEADER_BYTES - 1])
def test_less_than_a_header_is_no_batch(size: int) -> None:
    assert refusal(batch(b"a")[:size]) == ErrorCode.INVALID_RECORD


def test_no_records_at_all_are_no_batch() -> None:
    assert refusal(None) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("magic", "code"),
    [
        (0, ErrorCode.INVALID_RECORD),
        (1, ErrorCode.INVALID_RECORD),
        (3, ErrorCode.CORRUPT_MESSAGE),
        (-1, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_another_format_is_refused_in_a_request_of_the_second(magic: int, code: ErrorCode) -> None:
    assert refusal(with_header(batch(b"a"), magic=magic)) == code


@pytest.mark.parametrize("position", [CRC_COVERS_FROM - 1, HEADER_BYTES, -1])
def test_wrong_checksum_is_damage_on_the_way(position: int) -> None:
    bad = bytearray(batch(b"value", key=b"key"))
    bad[position] ^= 1
    assert refusal(bytes(bad)) == ErrorCode.CORRUPT_MESSAGE


def test_length_that_no_batch_has_is_damage_on_the_way() -> None:
    assert refusal(with_header(batch(b"a"), length=-1)) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.fault("broker-9")
@pytest.mark.parametrize(
    "changes",
    [
        {"length": 2**31 - 13},
        {"base_offset": 1},
        {"count": 2},
        {"count": 0, "last_offset_delta": -1},
        {"count": -1},
        {"last_offset_delta": 1},
        {"attributes": 5},
        {"attributes": CONTROL},
    ],
    ids=str,
)
def test_a_header_that_cannot_be_is_refused_for_good(changes: dict[str, int]) -> None:
    assert refusal(with_header(batch(b"a"), **changes)) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("kept_in", ["producer", "gzip", "uncompressed"])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
@pytest.mark.parametrize("last_offset_delta", [-1, 0])
def test_a_batch_without_records_is_refused(
    codec: Codec, kept_in: str, last_offset_delta: int
) -> None:
    header = batch(b"a", codec=codec)[:HEADER_BYTES]
    body = b"" if codec is Codec.NONE else compress(codec, b"")
    empty = with_header(
        header + body,
        length=HEADER_BYTES - LOG_OVERHEAD + len(body),
        count=0,
        last_offset_delta=last_offset_delta,
    )
    assert refusal(empty, LogConfig(compression_type=kept_in)) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("count", "last_offset_delta", "is_good"),
    [
        (3, 2, True),
        (1, 2, False),
        (5, 2, False),
        (3, 0, False),
        (3, 4, False),
        (0, 2, False),
        (-3, 2, False),
        (3, -2, False),
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_count_and_range_of_offsets_must_be_those_of_the_records(
    codec: Codec, count: int, last_offset_delta: int, is_good: bool
) -> None:
    sent = with_header(
        batch(b"a", b"b", b"c", codec=codec), count=count, last_offset_delta=last_offset_delta
    )
    if is_good:
        assert checked(sent).header.count == 3
    else:
        assert refusal(sent) == ErrorCode.INVALID_RECORD


def test_every_single_bit_that_flips_behind_the_checksum_is_found() -> None:
    good = batch(b"value", key=b"key")
    for bit in range(CRC_COVERS_FROM * 8, len(good) * 8):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ApiError):
            checked(bytes(bad))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"attributes": LOG_APPEND_TIME}, ErrorCode.INVALID_TIMESTAMP),
        ({"attributes": TRANSACTIONAL}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 5, "producer_epoch": -1, "base_sequence": 0}, ErrorCode.INVALID_RECORD),
        ({"attributes": CONTROL}, ErrorCode.INVALID_RECORD),
    ],
    ids=str,
)
def test_what_only_a_broker_or_a_newer_one_may_do_is_refused(
    changes: dict[str, int], code: ErrorCode
) -> None:
    assert refusal(with_header(batch(b"a"), **changes)) == code


def test_a_batch_of_just_the_largest_size_is_taken() -> None:
    data = batch(b"x" * 1000)
    exact = LogConfig(max_message_bytes=len(data))
    assert checked(data, exact).data is data
    less = LogConfig(max_message_bytes=len(data) - 1)
    assert refusal(data, less) == ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_that_is_too_large_only_once_it_is_recompressed_is_refused() -> None:
    data = batch(b"x" * 100_000, codec=Codec.GZIP)
    plain = LogConfig(compression_type="uncompressed", max_message_bytes=50_000)
    assert len(data) < 50_000
    assert refusal(data, plain) == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_compacted_topic_wants_a_key_of_each_record(codec: Codec) -> None:
    assert refusal(batch(b"a", codec=codec), COMPACTED) == ErrorCode.INVALID_RECORD
    assert values(checked(batch(b"a", key=b"k", codec=codec), COMPACTED)) == [b"a"]


def test_one_record_without_a_key_among_others_is_enough() -> None:
    mixed = encode_batch([(1, b"k", b"a", ()), (1, None, b"b", ())])
    assert refusal(mixed, COMPACTED) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("off_ms", [-1001, 1001])
def test_a_timestamp_too_far_off_is_refused(off_ms: int, codec: Codec) -> None:
    far = [(NOW_MS, None, b"near", ()), (NOW_MS + off_ms, None, b"far", ())]
    assert refusal(encode_batch(far, codec=codec), NEAR) == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("timestamp_ms", [NOW_MS - 1000, NOW_MS + 1000, -1])
def test_a_timestamp_near_enough_or_absent_is_taken(timestamp_ms: int) -> None:
    assert checked(batch(b"a", timestamp_ms=timestamp_ms), NEAR).max_timestamp == timestamp_ms


def test_where_the_broker_stamps_the_time_the_producers_is_not_looked_at() -> None:
    stamping = attrs.evolve(NEAR, message_timestamp_type="LogAppendTime")
    assert values(checked(batch(b"a", timestamp_ms=5), stamping)) == [b"a"]


def test_zstd_is_refused_where_the_request_is_too_old_for_it() -> None:
    packed = batch(b"a", codec=Codec.ZSTD)
    assert refusal(packed, zstd_allowed=False) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert values(checked(packed)) == [b"a"]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_compressed_bytes_that_are_not_are_refused(codec: Codec) -> None:
    data = batch(b"a" * 100, codec=codec)
    torn = with_header(data[:HEADER_BYTES] + b"\xff" * (len(data) - HEADER_BYTES))
    assert refusal(torn) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd"])
def test_a_topic_with_a_codec_of_its_own_keeps_records_in_it(name: str) -> None:
    headers = (("h", b"1"), ("h", None))
    sent = encode_batch([(NOW_MS, b"k", b"a", headers), (NOW_MS - 5, None, None, ())])
    valid = checked(sent, LogConfig(compression_type=name))
    assert valid.header.codec == Codec.of_name(name)
    assert valid.max_timestamp == NOW_MS
    assert decode_batch(valid.data) == decode_batch(sent)


@pytest.mark.parametrize("kept_in", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("codec", Codec)
def test_the_topic_names_the_codec_or_leaves_it_to_the_producer(codec: Codec, kept_in: str) -> None:
    sent = encode_batch(
        [(NOW_MS - n, b"k", b"v%d" % n, ()) for n in range(3)],
        codec=codec,
        producer_id=1324,
        producer_epoch=10,
        base_sequence=984,
    )
    names = {"producer": codec, "uncompressed": Codec.NONE}
    valid = checked(sent, LogConfig(compression_type=kept_in))
    header = read_header(valid.data)
    assert header.codec == (names[kept_in] if kept_in in names else Codec.of_name(kept_in))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1324, 10, 984)
    assert (header.base_offset, header.last_offset_delta, header.timestamp_type) == (0, 2, 0)
    assert header.max_timestamp == valid.max_timestamp == NOW_MS
    assert decode_batch(valid.data) == decode_batch(sent)


@pytest.mark.parametrize("name", ["producer", "gzip"])
def test_a_batch_in_the_topics_codec_already_is_not_touched(name: str) -> None:
    sent = batch(b"a", codec=Codec.GZIP)
    assert checked(sent, LogConfig(compression_type=name)).data is sent
