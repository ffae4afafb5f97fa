"""Formats 0 and 1: golden vectors of Kafka's tests, kafka-python both ways, corrupt messages."""

import random
import zlib
from collections.abc import Sequence
from itertools import accumulate

import pytest
from kafka.record import MemoryRecords
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from protocol.records.batch import decode_batch, decode_records
from protocol.records.compression import Codec, compress
from protocol.records.corrupt_record import CorruptRecord, TooManyRecords, UnsupportedMagic
from protocol.records.entry import read_entry
from protocol.records.legacy import (
    LOG_APPEND_TIME_TYPE,
    MessageHeader,
    encode_messages,
    entry_size,
    read_message_header,
    restamp,
    validate_messages,
)
from protocol.records.record_run import Row
from protocol.records.room import Room

OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
FORMATS_AND_CODECS = [(magic, codec) for magic in (0, 1) for codec in OLD_CODECS]
KNOWN_TO_KAFKA_PYTHON = [(magic, codec) for magic in (0, 1) for codec in OLD_CODECS[:2]]
"""Without packages of its own for the others."""
ROOM = 1 << 20

GOLDEN_ROWS: list[Row] = [
    (0, 283843, b"key1", b"value1", ()),
    (1, 1234, b"key2", b"value2", ()),
]
FIRST_PLAIN = [
    "0000000000000000 00000018 75f0f41d 00 00 00000004 6b657931 00000006 76616c756531",
    "0000000000000000 00000020 0685b364 01 00 00000000000454c3"
    " 00000004 6b657931 00000006 76616c756531",
]
LZ4_BODY = [
    "03fd7f3a 00 03 ffffffff 00000048 04224d18 60 40 1a 39000000 1600010051 1875f0f41d0f00e0046b"
    "6579310000000676616c75650a0000020011012400301bc3a60d00012400b032000000 0676616c756532"
    "00000000",
    "53e1bee7 01 03 00000000000454c3 ffffffff 00000056 04224d18 60 40 82 47000000 16000100622006"
    "85b364011000f0050454c3000000046b6579310000000676616c75650a0000020000230050200509300509000002"
    "002304d22c00b0320000000676616c756532 00000000",
]


def lz4_wrapper(magic: int) -> bytes:
    """The golden message, at offset 1."""
    body = bytes.fromhex(LZ4_BODY[magic])
    return (1).to_bytes(8, "big") + len(body).to_bytes(4, "big") + body


CHANCE = random.Random(5)
VARIED: list[Row] = [
    (7 + n, 1_400_000_000_000 - n, [None, b"", b"k%d" % n][n % 3], CHANCE.randbytes(n * 7), ())
    for n in range(60)
] + [(67, 3, b"tombstone", None, ()), (68, -1, None, b"v" * 70_000, ())]


def without_times(rows: Sequence[Row]) -> list[Row]:
    return [(offset, -1, key, value, ()) for offset, _, key, value, _ in rows]


def seen_by(magic: int, rows: Sequence[Row]) -> list[Row]:
    return list(rows) if magic else without_times(rows)


def read(entries: bytes) -> list[Row]:
    return [tuple(record) for record in decode_records(entries)]


def resealed(entry: bytes, at: int, patch: bytes) -> bytes:
    """Put `patch` into an entry and make its CRC true again."""
    patched = bytearray(entry)
    patched[at : at + len(patch)] = patch
    patched[12:16] = zlib.crc32(bytes(patched[16:])).to_bytes(4, "big")
    return bytes(patched)


# ---- golden vectors


@pytest.mark.parametrize("magic", [0, 1])
def test_known_message_is_written_byte_for_byte(magic: int) -> None:
    assert encode_messages(GOLDEN_ROWS, magic).startswith(bytes.fromhex(FIRST_PLAIN[magic]))


@pytest.mark.parametrize(("magic", "crc"), [(0, 1978725405), (1, 109425508)])
def test_header_of_the_known_message_is_read(magic: int, crc: int) -> None:
    header = read_message_header(bytes.fromhex(FIRST_PLAIN[magic]))

    assert header == MessageHeader(0, [24, 32][magic], crc, magic, 0, [-1, 283843][magic])
    assert (header.size, header.next_offset) == ([36, 44][magic], 1)
    assert header.timestamp_type == [-1, 0][magic]


@pytest.mark.parametrize("magic", [0, 1])
def test_known_lz4_wrapper_is_read(magic: int) -> None:
    assert read(lz4_wrapper(magic)) == seen_by(magic, GOLDEN_ROWS)


@pytest.mark.parametrize(("magic", "checksum"), [(0, 0x1A), (1, 0x82)])
def test_lz4_header_has_the_checksum_of_its_format(magic: int, checksum: int) -> None:
    wrapper = encode_messages(GOLDEN_ROWS, magic, codec=Codec.LZ4)

    assert wrapper[wrapper.index(bytes.fromhex("04224d18")) + 6] == checksum


def test_lz4_header_checksum_is_ignored_in_format_0() -> None:
    wrapper = lz4_wrapper(0)
    at = wrapper.index(bytes.fromhex("04224d18")) + 6

    for checksum in (0x82, 0x1A, 0x00):
        assert read(resealed(wrapper, at, bytes((checksum,)))) == without_times(GOLDEN_ROWS)


def test_lz4_header_checksum_is_verified_in_format_1() -> None:
    wrapper = lz4_wrapper(1)
    at = wrapper.index(bytes.fromhex("04224d18")) + 6

    with pytest.raises(CorruptRecord):
        read(resealed(wrapper, at, b"\x1a"))


# ---- kafka-python as the other side


@pytest.mark.parametrize(("magic", "codec"), KNOWN_TO_KAFKA_PYTHON)
def test_kafka_python_reads_what_we_write(magic: int, codec: Codec) -> None:
    written = MemoryRecords(encode_messages(VARIED, magic, codec=codec))

    found = []
    while (batch := written.next_batch()) is not None:
        assert batch.validate_crc()
        for record in batch:
            assert record.validate_crc()
            time = record.timestamp if magic else -1
            found.append((record.offset, time, record.key, record.value, ()))
    assert found == seen_by(magic, VARIED)


@pytest.mark.parametrize(("magic", "codec"), KNOWN_TO_KAFKA_PYTHON)
def test_we_read_what_kafka_python_writes(magic: int, codec: Codec) -> None:
    """Its wrappers are never given their offset: 0, with all that follows from it."""
    builder = LegacyRecordBatchBuilder(magic, int(codec), 1 << 20)
    for index, (_, time, key, value, _) in enumerate(VARIED):
        builder.append(index, time, key, value)

    built = bytes(builder.build())

    found = read(built)
    expected = [(index, *row[1:]) for index, row in enumerate(VARIED)]
    assert found == seen_by(magic, expected)
    assert [row for rows in check(built) for row in rows] == found


# ---- reading


@pytest.mark.parametrize(("magic", "codec"), FORMATS_AND_CODECS)
def test_what_is_written_is_read_again(magic: int, codec: Codec) -> None:
    entries = encode_messages(VARIED, magic, codec=codec)

    assert read(entries) == seen_by(magic, VARIED)
    assert decode_records(entries, min_offset=60) == decode_records(entries)[53:]


def test_gaps_that_compaction_left_in_a_wrapper_stay() -> None:
    rows: list[Row] = [(offset, 5, b"k", b"v", ()) for offset in (100, 103, 109)]

    wrapper = encode_messages(rows, 1, codec=Codec.GZIP)

    assert [row[0] for row in read(wrapper)] == [100, 103, 109]


def test_wrapper_that_never_got_an_offset_counts_from_zero() -> None:
    wrapper = encode_messages(GOLDEN_ROWS, 1, codec=Codec.GZIP)

    assert [row[0] for row in read(bytes(8) + wrapper[8:])] == [0, 1]


def test_wrapper_below_the_last_offset_in_it_is_refused() -> None:
    rows: list[Row] = [(offset, 5, b"k", b"v", ()) for offset in range(5)]
    wrapper = encode_messages(rows, 1, codec=Codec.GZIP)

    with pytest.raises(CorruptRecord, match="wrapper offset 3 is below"):
        read((3).to_bytes(8, "big") + wrapper[8:])


def test_log_append_time_of_a_wrapper_is_that_of_all_its_messages() -> None:
    wrapper = encode_messages(GOLDEN_ROWS, 1, codec=Codec.GZIP)

    marked = restamp(wrapper, 41, 777, LOG_APPEND_TIME_TYPE)

    assert [row[:2] for row in read(marked)] == [(40, 777), (41, 777)]
    assert read_message_header(marked).timestamp_type == 1


def test_create_time_of_a_wrapper_is_the_latest_of_its_messages() -> None:
    wrapper = encode_messages(GOLDEN_ROWS, 1, codec=Codec.SNAPPY)

    assert read_message_header(wrapper).timestamp == 283843


def test_partial_message_at_the_end_of_a_wrapper_is_left() -> None:
    inner = encode_messages(GOLDEN_ROWS, 0)

    assert read(wrapped(inner[:-1], 0)) == without_times(GOLDEN_ROWS[:1])


def test_partial_entry_at_the_end_of_a_record_set_is_left() -> None:
    first, whole = encode_messages(GOLDEN_ROWS[:1], 0), encode_messages(GOLDEN_ROWS, 0)

    for size in range(len(first), len(whole)):
        assert read(whole[:size]) == without_times(GOLDEN_ROWS[:1])
    assert read(first[:-1]) == []


@pytest.mark.parametrize("magic", [0, 1])
def test_any_flipped_bit_behind_the_crc_is_noticed(magic: int) -> None:
    entry = encode_messages(GOLDEN_ROWS[:1], magic)
    for at in range(12, len(entry)):
        damaged = bytearray(entry)
        damaged[at] ^= 1
        with pytest.raises(CorruptRecord):
            read(bytes(damaged))


@pytest.mark.parametrize(("magic", "size"), [(0, 13), (1, 21), (1, 13), (0, 0), (0, -20)])
def test_size_that_cannot_hold_a_message_is_refused(magic: int, size: int) -> None:
    entry = encode_messages(GOLDEN_ROWS, magic)
    lying = entry[:8] + size.to_bytes(4, "big", signed=True) + entry[12:]

    with pytest.raises(CorruptRecord):
        read_entry(lying, 0, len(lying))


def test_format_of_the_future_is_told_apart() -> None:
    with pytest.raises(UnsupportedMagic, match="format 3"):
        read_entry(bytes(16) + b"\3" + bytes(60), 0, 77)


# ---- corrupt messages, which reader and broker refuse alike


def wrapped(inner: bytes, magic: int, codec: Codec = Codec.GZIP) -> bytes:
    """Make a wrapper around any bytes."""
    plain = encode_messages([(1, 5, None, compress(codec, inner), ())], magic)
    return resealed(plain, 17, bytes((codec,)))


def check(entries: bytes, *, require_keys: bool = False, room: int = ROOM) -> list[list[Row]]:
    produced = validate_messages(entries, require_keys=require_keys, room=Room(room))
    return [entry.rows for entry in produced]


NULL_VALUE = resealed(encode_messages([(0, 5, None, None, ())], 1), 17, b"\x01")
LIES = {
    "no value": (NULL_VALUE, "null value"),
    "empty": (wrapped(b"", 1), "holds none"),
    "twice compressed": (
        wrapped(encode_messages(GOLDEN_ROWS, 1, codec=Codec.GZIP), 1),
        "inside another",
    ),
    "zstd": (resealed(encode_messages(GOLDEN_ROWS[:1], 1), 17, b"\x04"), "unknown compression 4"),
    "no gzip": (
        resealed(encode_messages(GOLDEN_ROWS[:1], 1), 17, b"\x01"),
        "gzip data is damaged",
    ),
    "inner CRC": (
        wrapped(encode_messages(GOLDEN_ROWS, 1)[:-1] + b"!", 1),
        "message CRC",
    ),
    "long key": (
        resealed(encode_messages(GOLDEN_ROWS[:1], 1), 26, (11).to_bytes(4, "big")),
        "key length 11",
    ),
    "negative key": (
        resealed(encode_messages(GOLDEN_ROWS[:1], 1), 26, b"\xff\xff\xff\xfe"),
        "key length -2",
    ),
    "long value": (
        resealed(encode_messages(GOLDEN_ROWS[:1], 1), 34, (7).to_bytes(4, "big")),
        "value length 7",
    ),
    "short value": (
        resealed(encode_messages(GOLDEN_ROWS[:1], 1), 34, (5).to_bytes(4, "big")),
        "1 bytes are left over",
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_lie_is_refused_by_reader_and_broker(name: str) -> None:
    entry, what = LIES[name]
    with pytest.raises(CorruptRecord, match=what):
        read(entry)
    with pytest.raises(CorruptRecord, match=what):
        check(entry)


def test_data_that_decompress_to_too_much_are_refused() -> None:
    bomb = encode_messages([(0, 5, None, bytes(100_000), ())], 1, codec=Codec.GZIP)

    with pytest.raises(CorruptRecord, match="larger than the 1000 bytes"):
        check(bomb, room=1000)
    with pytest.raises(CorruptRecord, match="larger than the 1000 bytes"):
        decode_batch(bomb, 0, read_message_header(bomb), max_decompressed=1000)


def test_room_for_decompressed_data_is_that_of_the_whole_set() -> None:
    wrapper = encode_messages([(0, 5, None, bytes(600), ())], 1, codec=Codec.GZIP)

    assert len(check(wrapper, room=1000)) == 1
    with pytest.raises(CorruptRecord, match="larger"):
        check(wrapper * 2, room=1000)


# ---- what only a broker refuses


def test_entries_of_a_set_are_told_with_their_messages() -> None:
    rows: list[Row] = [(0, 5, b"k", b"v", ())]
    mixed = (
        encode_messages(rows, 0)
        + encode_messages(GOLDEN_ROWS, 1, codec=Codec.GZIP)
        + encode_messages(rows, 1)
    )

    assert check(mixed) == [without_times(rows), GOLDEN_ROWS, rows]


def test_set_that_ends_within_a_message_is_refused() -> None:
    whole = encode_messages(GOLDEN_ROWS, 0)
    ends = set(accumulate((36, 36)))
    for size in set(range(1, len(whole))) - ends:
        with pytest.raises(CorruptRecord):
            check(whole[:size])


def test_other_format_inside_of_a_wrapper_is_refused() -> None:
    with pytest.raises(CorruptRecord, match="format 0 inside a message of 1"):
        check(wrapped(encode_messages(GOLDEN_ROWS, 0), 1))


def test_part_of_a_message_inside_of_a_wrapper_is_refused() -> None:
    with pytest.raises(CorruptRecord, match="partial"):
        check(wrapped(encode_messages(GOLDEN_ROWS, 1)[:-1], 1))


def test_message_without_a_key_is_refused_where_keys_are_required() -> None:
    keyless: list[Row] = [(0, 5, None, b"v", ())]

    for codec in (Codec.NONE, Codec.GZIP):
        assert check(encode_messages(keyless, 1, codec=codec)) == [keyless]
        with pytest.raises(CorruptRecord, match="no key"):
            check(encode_messages(keyless, 1, codec=codec), require_keys=True)


def test_timestamp_below_minus_one_is_refused() -> None:
    with pytest.raises(CorruptRecord, match="timestamp -2"):
        check(encode_messages([(0, -2, b"k", b"v", ())], 1))


def test_record_batch_in_a_message_set_is_refused() -> None:
    with pytest.raises(UnsupportedMagic):
        check(bytes(8) + (60).to_bytes(4, "big") + bytes(4) + b"\2" + bytes(55))


@pytest.mark.parametrize("magic", [0, 1])
def test_size_of_a_message_is_known_beforehand(magic: int) -> None:
    for offset, time, key, value, _ in VARIED[-5:]:
        entry = encode_messages([(offset, time, key, value, ())], magic)
        assert entry_size(magic, key, value) == len(entry)


@pytest.mark.fault("security-0")
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_messages_of_a_produced_set_are_counted(codec: Codec) -> None:
    """Each becomes an object, however few bytes it has."""
    rows: list[Row] = [(offset, 5, None, None, ()) for offset in range(10)]
    entries = encode_messages(rows, 1, codec=codec)

    def count(most: int) -> int:
        produced = validate_messages(entries, require_keys=False, room=Room(ROOM), most=most)
        return sum(len(entry.rows) for entry in produced)

    assert count(10) == 10
    with pytest.raises(TooManyRecords, match="more than the 9 messages"):
        count(9)
