"""Formats 0, 1 and 2, their codecs and their times: what stays is what was there."""

from __future__ import annotations

import random
import zlib

import pytest

from compaction.source import read_pieces, read_records
from core_log.config import LogConfig
from core_log.segments.file_name import LOG, file_name
from protocol.records.batch import encode_batch, read_header
from protocol.records.batch_header import LOG_APPEND_TIME
from protocol.records.compression import Codec, compress
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.entry import read_entry
from protocol.records.legacy import MessageHeader, encode_messages, has_one_magic
from protocol.records.record_run import Row
from tests.compaction.partition import DAY_MS, T0, Pair, Partition, changed

PAIRS: list[Pair] = [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", None)]
OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


@pytest.mark.parametrize("codec", Codec)
def test_part_of_a_batch_stays_in_its_codec(partition: Partition, codec: Codec) -> None:
    partition.append(*PAIRS, codec=codec, leader_epoch=5)
    partition.roll()
    before = partition.records()
    partition.clean()
    (header,) = partition.headers()
    assert partition.records() == before[1:]
    assert (header.codec, header.base_offset, header.last_offset) == (codec, 0, 3)
    assert header.partition_leader_epoch == 5


@pytest.mark.parametrize("codec", Codec)
def test_batch_of_which_all_stays_is_copied_byte_for_byte(
    partition: Partition, codec: Codec
) -> None:
    partition.append(*PAIRS[1:], codec=codec)
    partition.roll()
    before = partition.segment(0)
    partition.clean()
    assert partition.segment(0) == before


def test_headers_of_records_stay(partition: Partition) -> None:
    rows = [
        (T0 + n, b"k%d" % (n % 3), b"v", (("name", b"%d" % n), ("none", None))) for n in range(5)
    ]
    partition.append_bytes(encode_batch(rows), 4)
    partition.roll()
    before = partition.records()
    partition.clean()
    assert partition.records() == before[2:]


def test_greatest_timestamp_is_that_of_what_stays(partition: Partition) -> None:
    partition.append((b"z", b"1"), timestamp=T0 + 100)
    deltas = {b"a": 0, b"b": 90, b"c": 50, b"d": 20}
    rows = [(T0 + delta, key, b"1", ()) for key, delta in deltas.items()]
    partition.append_bytes(encode_batch(rows, base_offset=1), 4, T0 + 90)
    partition.append((b"b", b"2"))
    partition.roll()
    partition.clean()
    header = partition.headers()[1]
    assert (header.max_timestamp, header.base_timestamp) == (T0 + 50, T0)


def test_place_among_others_does_not_change_what_stays_of_a_batch(partition: Partition) -> None:
    for day in range(3):
        rows = [(T0 + day * DAY_MS + n, b"%d.%d" % (day, n), b"1", ()) for n in range(3)]
        partition.append_bytes(encode_batch(rows, base_offset=day * 3), day * 3 + 2)
    partition.append((b"0.2", b"2"), (b"1.2", b"2"), (b"2.2", b"2"))
    partition.roll()
    partition.clean()
    first, second, third, _ = partition.headers()
    assert [each.max_timestamp - T0 for each in (first, second, third)] == [
        1,
        DAY_MS + 1,
        2 * DAY_MS + 1,
    ]


def packed_well(*pairs: Pair) -> bytes:
    """A batch in gzip as its producer, who knew what was in it, made it smaller than we do."""
    plain = encode_batch([(T0, *pair, ()) for pair in pairs])
    packer = zlib.compressobj(wbits=31, strategy=zlib.Z_HUFFMAN_ONLY)
    packed = packer.compress(plain[61:]) + packer.flush()
    return changed(plain[:61] + packed, attributes=Codec.GZIP, length=49 + len(packed))


@pytest.mark.parametrize(("max_message_bytes", "outgrown"), [(1000, 1), (6000, 1), (10_000, 0)])
def test_batch_that_grows_beyond_what_one_may_have_is_counted(
    max_message_bytes: int, outgrown: int
) -> None:
    partition = Partition(config=LogConfig(max_message_bytes=max_message_bytes))
    letters = bytes(random.Random(1).choices(b"abcd", k=20_000))
    batch = packed_well((b"a", letters), (b"b", b"1"))
    assert len(batch) < 6000
    partition.append_bytes(batch, 1)
    partition.append((b"b", b"2"))
    partition.roll()
    assert partition.clean().statistics.outgrown_batches == outgrown
    assert partition.headers()[0].size > 6000


def test_batch_that_shrinks_is_not_counted_though_it_is_larger_than_one_may_be_now() -> None:
    partition = Partition(config=LogConfig(max_message_bytes=100))
    for append in (partition.append, partition.append_messages):
        append((b"a", b"1"), (b"b", bytes(1000)), codec=Codec.NONE)
        append((b"a", b"2"), (b"c", random.Random(1).randbytes(1000)), codec=Codec.GZIP)
    partition.append((b"a", b"3"))
    partition.roll()
    assert partition.clean().statistics.outgrown_batches == 0


def test_log_append_time_of_a_batch_stays(partition: Partition) -> None:
    batch = changed(
        encode_batch([(T0, key, value, ()) for key, value in PAIRS]),
        attributes=LOG_APPEND_TIME,
        max_timestamp=T0 + 500,
    )
    partition.append_bytes(batch, 3, T0 + 500)
    partition.roll()
    partition.clean()
    assert [record.timestamp_ms for record in partition.records()] == [T0 + 500] * 3
    assert partition.headers()[0].timestamp_type == 1


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_keep_offsets_format_and_codec(
    partition: Partition, magic: int, codec: Codec
) -> None:
    partition.append((b"z", b"1"))
    partition.append_messages(*PAIRS, magic=magic, codec=codec)
    partition.roll()
    before = partition.records()
    partition.clean()
    assert partition.records() == [before[0], *before[2:]]
    _, *old = (header for _, _, header in partition.batches())
    assert {(header.magic, header.codec) for header in old} == {(magic, codec)}
    assert len(old) == (3 if codec is Codec.NONE else 1)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("is_clean", [False, True])
def test_old_message_that_was_damaged_is_named_and_nothing_is_changed(
    partition: Partition, is_clean: bool, magic: int, codec: Codec
) -> None:
    partition.append((b"z", b"1"))
    position = len(partition._written[0][0])
    partition.append_messages(*PAIRS, magic=magic, codec=codec)
    last_offset = 1 if codec is Codec.NONE else 4
    partition.checkpoint = partition.roll() if is_clean else 0
    partition.append((b"z", b"2"))
    partition.roll()
    file = partition.directory.open_segment(file_name(0, LOG))
    file.write(position + 12, bytes([file.read(position + 12, 1)[0] ^ 1]))
    before = partition.files()
    with pytest.raises(
        CorruptRecord,
        match=rf"{file_name(0, LOG)}, position {position}, offset {last_offset}: .*CRC",
    ):
        partition.clean()
    assert partition.files() == before


@pytest.mark.parametrize("magic", [0, 1])
def test_wrapper_of_which_all_stays_is_copied_byte_for_byte(
    partition: Partition, magic: int
) -> None:
    partition.append_messages(*PAIRS[1:], magic=magic, codec=Codec.GZIP)
    partition.roll()
    before = partition.segment(0)
    partition.clean()
    assert partition.segment(0) == before


def test_wrapper_ends_with_the_last_message_that_stays(partition: Partition) -> None:
    partition.append_messages((b"a", b"1"), (b"b", b"1"), (b"c", b"1"), codec=Codec.LZ4)
    partition.append((b"c", b"2"), (b"a", b"2"))
    partition.roll()
    partition.clean()
    assert (partition.batch_ends(), partition.offsets()) == ([1, 4], [1, 3, 4])


def test_wrapper_in_log_append_time_stays_in_it(partition: Partition) -> None:
    partition.append_messages(*PAIRS, codec=Codec.GZIP, timestamp_type=1)
    partition.roll()
    partition.clean()
    ((_, _, header),) = partition.batches()
    assert (header.timestamp_type, header.max_timestamp) == (1, T0)
    assert {record.timestamp_ms for record in partition.records()} == {T0}


@pytest.mark.parametrize("more", [[], [(b"1", b"newer")]])
def test_wrapper_with_messages_of_another_format_is_repaired(
    partition: Partition, more: list[Pair]
) -> None:
    """A cleaner of old changed the wrapper's format and not what is inside (KAFKA-4298)."""
    inner = encode_messages([(n, -1, b"%d" % n, b"v", ()) for n in range(3)], 0)
    packed = compress(Codec.GZIP, inner)
    wrapper = bytearray(encode_messages([(2, T0, None, packed, ())], 1))
    wrapper[17] |= Codec.GZIP
    wrapper[12:16] = zlib.crc32(wrapper[16:]).to_bytes(4, "big")
    partition.append_bytes(bytes(wrapper), 2)
    partition.append((b"x", b"y"), *more)
    partition.roll()
    left = [pair for pair in partition.pairs() if not more or pair != (b"1", b"v")]
    partition.clean()
    assert partition.pairs() == left
    data, pos, header = next(partition.batches())
    assert isinstance(header, MessageHeader)
    assert has_one_magic(data, pos, header, max_decompressed=1000)


def test_wrapper_that_was_never_given_an_offset_is_read_from_0(partition: Partition) -> None:
    rows: list[Row] = [(n, T0, key, value, ()) for n, (key, value) in enumerate(PAIRS)]
    message = encode_messages(rows, 1, codec=Codec.GZIP)
    partition.append_bytes(bytes(8) + message[8:], 3)
    partition.roll()
    partition.clean()
    assert partition.offsets() == [1, 2, 3]


def test_formats_may_follow_each_other(partition: Partition) -> None:
    partition.append_messages((b"a", b"0"), (b"b", b"0"), magic=0)
    partition.append_messages((b"a", b"1"), (b"c", b"1"), magic=1, codec=Codec.SNAPPY)
    partition.append((b"b", b"2"), (b"d", b"2"))
    partition.append_messages((b"d", b"3"))
    partition.roll()
    partition.clean()
    assert partition.pairs() == [(b"a", b"1"), (b"c", b"1"), (b"b", b"2"), (b"d", b"3")]


def test_tombstones_of_old_formats_go_when_they_are_old(partition: Partition) -> None:
    partition.config = LogConfig(delete_retention_ms=0)
    partition.append_messages((b"a", None), (b"b", b"1"), codec=Codec.GZIP)
    partition.append_messages((b"c", None), magic=0)
    partition.roll()
    for _ in range(2):
        partition.clean()
    assert partition.pairs() == [(b"b", b"1")]


def test_batch_without_records_of_a_producer_nobody_remembers_goes(partition: Partition) -> None:
    batch = changed(
        encode_batch([(T0, b"a", b"1", ())], producer_id=9, producer_epoch=0, base_sequence=0)[:61],
        length=49,
        count=0,
    )
    partition.append_bytes(batch, 0)
    partition.append((b"a", b"1"))
    partition.roll()
    assert read_header(partition.segment(0)).count == 0
    partition.clean()
    assert partition.batch_ends() == [1]
    assert read_entry(partition.segment(0), 0, 1) is None


def test_batches_that_decompress_to_much_are_read_a_few_at_once(partition: Partition) -> None:
    large = bytes(9 * 1024 * 1024)
    for n in range(5):
        partition.append((b"a", b"%d" % n), (b"%d" % n, large), codec=Codec.GZIP)
    partition.roll()
    piece = next(read_pieces(partition.directory, partition.job().segments[0], 1))
    assert len(piece.batches.starts) == 5
    assert len(read_records(piece, range(5)).keys) == 4
    partition.clean()
    assert partition.offsets() == [1, 3, 5, 7, 8, 9]
