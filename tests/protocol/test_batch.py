import random

import aiokafka.record.default_records as aiokafka_records
import pytest
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder

from protocol.records.batch import (
    HEADER_BYTES,
    Codec,
    CorruptRecord,
    Record,
    UnsupportedMagic,
    check_crc,
    decode_batch,
    decode_records,
    encode_batch,
    next_offset,
    read_header,
)
from protocol.records.legacy import encode_messages
from tests.protocol.damaged_batches import resealed

HEADER_OF_TWO = (
    "ffffffff 02 {crc} {attributes} 00000001 00000000000454c3 00000000000454c3"
    "ffffffffffffffff ffff ffffffff 00000002"
)
TWO = "20000000086b6579310c76616c75653100 2400e1bf2202086b6579320c76616c75653200"
GOLDEN = bytes.fromhex(
    "0000000000000000 00000055" + HEADER_OF_TWO.format(crc="e58cf1ff", attributes="0000") + TWO
)
GOLDEN_LZ4 = bytes.fromhex(
    "0000000000000000 00000064"
    + HEADER_OF_TWO.format(crc=f"{2745969314:08x}", attributes="0003")
    + "04224d18 60 40 82 24000080"
    + TWO
    + "00000000"
)
GOLDEN_RECORDS = [(283843, b"key1", b"value1", ()), (1234, b"key2", b"value2", ())]

CHANCE = random.Random(3)
VARIED = [
    (1_700_000_000_000 + n, [None, b"k%d" % n][n % 2], CHANCE.randbytes(n % 300), [])
    for n in range(300)
] + [
    (1_600_000_000_000, b"", b"", [("name", b"value"), ("none", None), ("näme", b"")]),
    (1_800_000_000_000, b"tombstone", None, [("h", b"x" * 200)] * 3),
    (1_800_000_000_000, b"k" * 9000, b"v" * 70_000, []),
]


@pytest.mark.parametrize(("codec", "golden"), [(Codec.NONE, GOLDEN), (Codec.LZ4, GOLDEN_LZ4)])
def test_known_batch_is_written_and_read_byte_for_byte(codec: Codec, golden: bytes) -> None:
    assert encode_batch(GOLDEN_RECORDS, codec=codec) == golden
    assert decode_batch(golden) == [
        Record(offset, *record) for offset, record in enumerate(GOLDEN_RECORDS)
    ]


@pytest.mark.parametrize("codec", list(Codec))
def test_records_come_back_through_every_codec(codec: Codec) -> None:
    batch = encode_batch(VARIED, base_offset=70, codec=codec)

    records = decode_batch(memoryview(b"????" + batch), 4)

    assert [(*record[1:4], list(record.headers)) for record in records] == VARIED
    assert [record.offset for record in records] == list(range(70, 70 + len(VARIED)))
    assert {type(record) for record in records} == {Record}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_kafka_python_reads_what_we_write(codec: Codec) -> None:
    batch = encode_batch(VARIED, base_offset=9, codec=codec, leader_epoch=4)

    theirs = MemoryRecords(batch).next_batch()

    assert theirs.validate_crc()
    assert [(r.timestamp, r.key, r.value, r.headers) for r in theirs] == VARIED
    assert theirs.base_offset == 9


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_we_read_what_kafka_python_writes_and_write_the_same(codec: Codec) -> None:
    builder = DefaultRecordBatchBuilder(2, codec, False, 77, 3, 12, 10**7)
    for offset, (timestamp, key, value, headers) in enumerate(VARIED):
        builder.append(offset, timestamp, key, value, headers)
    theirs = bytes(builder.build())

    assert [(*r[1:4], list(r.headers)) for r in decode_batch(theirs)] == VARIED
    if codec is Codec.NONE:
        ours = encode_batch(VARIED, producer_id=77, producer_epoch=3, base_sequence=12)
        assert ours[:12] + ours[16:] == theirs[:12] + theirs[16:], "but for the leader epoch"


@pytest.mark.parametrize("codec", list(Codec))
def test_aiokafka_reads_what_we_write(codec: Codec) -> None:
    theirs = aiokafka_records.DefaultRecordBatch(encode_batch(VARIED, codec=codec))

    assert theirs.validate_crc()
    assert [(r.timestamp, r.key, r.value, list(r.headers)) for r in theirs] == VARIED


@pytest.mark.parametrize("codec", list(Codec))
def test_we_read_what_aiokafka_writes(codec: Codec) -> None:
    builder = aiokafka_records.DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 10**7)
    for offset, (timestamp, key, value, headers) in enumerate(VARIED):
        builder.append(offset, timestamp, key, value, headers)

    records = decode_batch(bytes(builder.build()))

    assert [(*record[1:4], list(record.headers)) for record in records] == VARIED


def test_header_says_what_was_asked_for() -> None:
    batch = encode_batch(
        GOLDEN_RECORDS,
        base_offset=100,
        codec=Codec.GZIP,
        leader_epoch=5,
        producer_id=2**40,
        producer_epoch=6,
        base_sequence=7,
        timestamp_type=1,
    )

    header = read_header(b"?" + batch, 1)

    assert header.size == len(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (100, 101, 102)
    assert (header.partition_leader_epoch, header.magic, header.count) == (5, 2, 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2**40, 6, 7)
    assert (header.base_timestamp, header.max_timestamp) == (283843, 283843)
    assert (header.codec, header.timestamp_type) == (Codec.GZIP, 1)
    assert not header.is_control
    assert not header.is_transactional


def test_no_records_make_no_batch() -> None:
    assert encode_batch([]) == b""


@pytest.mark.parametrize(("byte", "magic"), [(0, 0), (1, 1), (3, 3), (255, -1)])
def test_other_format_is_told_apart_from_damage(byte: int, magic: int) -> None:
    message = bytes(16) + bytes((byte,))

    with pytest.raises(UnsupportedMagic) as raised:
        read_header(message)

    assert raised.value.magic == magic


@pytest.mark.parametrize("size", [0, 16, 17, 60])
def test_header_cut_short_is_refused(size: int) -> None:
    with pytest.raises(CorruptRecord, match=f"{size} bytes cannot hold"):
        read_header(GOLDEN[:size])


@pytest.mark.parametrize("length", [-1, 0, 48])
def test_length_below_that_of_the_header_is_refused(length: int) -> None:
    with pytest.raises(CorruptRecord, match=f"length {length} is too short"):
        read_header(GOLDEN[:8] + length.to_bytes(4, "big", signed=True) + GOLDEN[12:])


def test_any_flipped_bit_that_the_crc_covers_is_noticed() -> None:
    for at in range(17, len(GOLDEN)):
        damaged = bytearray(GOLDEN)
        damaged[at] ^= 0x10
        with pytest.raises(CorruptRecord, match="CRC"):
            check_crc(damaged, 0, read_header(damaged))


def test_base_offset_and_leader_epoch_may_change_under_the_crc() -> None:
    stamped = (1000).to_bytes(8, "big") + GOLDEN[8:12] + (8).to_bytes(4, "big") + GOLDEN[16:]

    assert [record.offset for record in decode_batch(stamped)] == [1000, 1001]


def test_batch_that_is_not_all_there_is_refused() -> None:
    with pytest.raises(CorruptRecord, match="97 bytes ends after 96"):
        decode_batch(GOLDEN[:-1])


def test_log_append_time_is_the_time_of_every_record() -> None:
    batch = resealed(encode_batch(GOLDEN_RECORDS, timestamp_type=1), 35, (9**12).to_bytes(8, "big"))

    assert [record.timestamp_ms for record in decode_batch(batch)] == [9**12, 9**12]


def test_gaps_that_compaction_left_are_kept() -> None:
    records = bytearray(encode_batch([(0, b"k", b"v", ())] * 40)[HEADER_BYTES:])
    records[30 * 9 + 3] = 62
    survivors = bytes(records[:9] + records[30 * 9 : 31 * 9])
    batch = encode_batch([(0, b"k", b"v", ())] * 2, base_offset=500)[:HEADER_BYTES] + survivors
    batch = resealed(batch, 23, (39).to_bytes(4, "big"))

    assert [record.offset for record in decode_batch(batch)] == [500, 531]
    assert next_offset(batch) == 540


def test_record_beyond_the_last_offset_is_refused() -> None:
    with pytest.raises(CorruptRecord, match="offset delta 1, the batch says 0"):
        decode_batch(resealed(GOLDEN, 23, bytes(4)))


def test_empty_batch_of_the_cleaner_has_no_records_but_an_end() -> None:
    batch = resealed(
        (800).to_bytes(8, "big") + (49).to_bytes(4, "big") + GOLDEN[12:HEADER_BYTES],
        57,
        bytes(4),
    )

    assert decode_batch(batch) == []
    assert next_offset(batch) == 802


def test_negative_count_is_refused() -> None:
    batch = resealed(
        GOLDEN[:8] + (49).to_bytes(4, "big") + GOLDEN[12:HEADER_BYTES], 57, b"\xff\xff\xff\xff"
    )

    with pytest.raises(CorruptRecord, match="says -1 records"):
        decode_batch(batch)


def test_header_key_that_is_no_utf8_is_read_with_replacement() -> None:
    batch = encode_batch([(0, b"k", b"v", [("??", b"")])])

    damaged = resealed(batch, batch.index(b"??"), b"\xff?")

    assert decode_batch(damaged)[0].headers == (("\ufffd?", b""),)


def set_of(*bases: int) -> bytes:
    return b"".join(encode_batch(GOLDEN_RECORDS, base_offset=base) for base in bases)


def test_partial_batch_at_the_end_of_a_record_set_is_left() -> None:
    whole = set_of(10, 12)
    for size in range(len(GOLDEN), 2 * len(GOLDEN)):
        assert [record.offset for record in decode_records(whole[:size])] == [10, 11]
        assert next_offset(whole[:size]) == 12
    assert decode_records(whole[: len(GOLDEN) - 1]) == []
    assert next_offset(b"") is None


def test_records_before_the_offset_asked_for_are_left_out() -> None:
    found = decode_records(memoryview(set_of(10, 12, 20)), min_offset=13)

    assert [record.offset for record in found] == [13, 20, 21]


def test_transaction_markers_are_left_out_of_a_record_set() -> None:
    marker = resealed(encode_batch([(0, bytes(4), bytes(6), ())], base_offset=12), 21, b"\0\x30")

    assert [record.offset for record in decode_records(set_of(10) + marker)] == [10, 11]
    assert next_offset(set_of(10) + marker) == 13
    assert read_header(marker).is_control
    assert read_header(marker).is_transactional


def test_damage_inside_a_record_set_is_raised() -> None:
    whole = bytearray(set_of(10, 12))
    whole[-1] ^= 1

    with pytest.raises(CorruptRecord, match="CRC"):
        decode_records(whole)


def test_messages_of_the_old_formats_are_read_among_batches() -> None:
    rows = [(offset, 5, None, b"old", ()) for offset in (3, 4, 5)]
    mixed = encode_messages(rows, 0) + encode_messages(rows[2:], 1) + set_of(10)

    assert [record.offset for record in decode_records(mixed, min_offset=4)] == [4, 5, 5, 10, 11]
    assert next_offset(mixed[: -len(GOLDEN)]) == 6


def test_format_of_the_future_in_a_record_set_is_raised() -> None:
    with pytest.raises(UnsupportedMagic):
        decode_records(set_of(10) + bytes(8) + (60).to_bytes(4, "big") + b"\3" * 60)
