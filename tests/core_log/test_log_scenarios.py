"""A log in long use: gaps, old formats, producers whose records are gone."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from crc32c import crc32c

from core_log.appending.replicated_run import UnexpectedAppendOffset
from core_log.config import INT_MAX
from core_log.memory_directory import MemoryDirectory
from core_log.segments.offset_index import OffsetIndex
from core_log.storage import Directory
from protocol.records.batch import decode_records, encode_batch
from protocol.records.compression import Codec
from protocol.records.legacy import encode_messages
from tests.core_log.conftest import T0, Writer

Open = Callable[..., Writer]
FIRST = "00000000000000000000"


def entry(offset: int, count: int = 1, magic: int = 2, codec: Codec = Codec.NONE) -> bytes:
    rows: list[Any] = [(T0 + n, None, b"%d" % (offset + n), ()) for n in range(count)]
    if magic == 2:
        return encode_batch(rows, base_offset=offset, codec=codec)
    placed = [(offset + n, *row) for n, row in enumerate(rows)]
    return encode_messages(placed, magic, codec=codec)


def bases(writer: Writer) -> list[int]:
    return [segment.base_offset for segment in writer.log.segments]


# Reading


def test_reader_gets_the_next_offset_there_is(directory: Directory, open_log: Open) -> None:
    placed = [*range(50), *range(50, 200, 7)]
    writer = open_log(directory, segment_bytes=300, index_interval_bytes=0)
    for offset in placed:
        writer.log.append_follower(entry(offset), now_ms=T0)
    for offset in range(placed[-1] + 1):
        fetched = writer.log.read(offset, 10**6, writer.log.log_end_offset)
        assert fetched is not None
        first = decode_records(fetched.read(), offset)[0].offset
        assert first == next(candidate for candidate in placed if candidate >= offset)


def test_reader_in_a_hole_at_a_segments_end_goes_on_with_the_next(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory, segment_bytes=300)
    writer.append_many(10, size=40)
    first, second = writer.log.segments.segments[:2]
    first.truncate_to(1, T0)
    assert writer.numbers(1)[0] == second.base_offset


def test_time_index_of_a_follower_has_an_entry_for_each_append_but_the_first(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory, index_interval_bytes=1)
    for offset in range(100):
        writer.log.append_follower(
            encode_batch([(T0 + offset, None, b"x", ())], base_offset=offset), now_ms=T0
        )
    index = writer.log.segments.active.time_index
    assert (index.file.count, index.last) == (99, (T0 + 99, 99))


def test_record_without_a_value_is_kept(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory)
    batch = encode_batch([(T0, b"key", None, ())])
    writer.log.append_follower(batch, now_ms=T0)
    fetched = writer.log.read(0, 1000, 1)
    assert fetched is not None
    (record,) = decode_records(fetched.read())
    assert (record.key, record.value) == (b"key", None)


# Loading


def test_empty_files_are_an_empty_log(directory: Directory, open_log: Open) -> None:
    for suffix in (".log", ".index"):
        directory.open_segment(FIRST + suffix)
    writer = open_log(directory)
    assert writer.append(b"0").base_offset == 0
    assert writer.numbers() == [0]


def test_log_is_cut_after_it_was_opened_again(directory: Directory, open_log: Open) -> None:
    writer = open_log(directory, segment_bytes=500)
    writer.append_many(100)
    writer.log.close()
    again = open_log(directory, segment_bytes=500, recovery_point=100)
    again.log.truncate_to(3)
    assert (bases(again)[0], again.log.log_end_offset) == (0, 3)
    assert again.numbers() == [0, 1, 2]


def test_lost_time_indexes_of_records_without_times_are_made_anew_and_empty(
    directory: Directory, open_log: Open
) -> None:
    writer = open_log(directory, segment_bytes=100, message_format_version="0.9.0")
    for offset in range(20):
        writer.log.append_follower(entry(offset, magic=0), now_ms=T0)
    writer.log.close()
    names = [name for name in directory.files() if name.endswith(".timeindex")]
    assert len(names) > 2
    for name in names:
        directory.remove(name)
    again = open_log(directory, message_format_version="0.9.0", recovery_point=20)
    assert [directory.size(name) for name in names[:-1]] == [0] * (len(names) - 1)
    assert again.numbers() == list(range(20))


def test_size_of_large_logs_is_counted_beyond_32_bits(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory)
    for _ in range(2):
        writer.append(b"abc")
        writer.log.segments.active.log.truncate(INT_MAX)  # takes no memory here
        writer.log.roll(T0)
    assert writer.log.size == 2 * INT_MAX


@pytest.mark.parametrize("seed", range(10))
def test_nonsense_behind_the_log_and_in_its_index_costs_no_record(
    memory: MemoryDirectory, open_log: Open, seed: int
) -> None:
    rng = random.Random(seed)
    writer = open_log(memory, segment_bytes=2000, index_interval_bytes=1)
    count = 50 + rng.randrange(50)
    writer.append_many(count)
    active = writer.log.segments.active
    active.log.append([rng.randbytes(1 + rng.randrange(1000))])
    index = memory.open_segment(f"{active.base_offset:020d}.index")
    index.append([rng.randbytes(1 + rng.randrange(200))])
    again = open_log(memory, clean=False, recovery_point=50, segment_bytes=2000)
    assert again.numbers() == list(range(count))


# Following


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_offset_below_the_logs_end_is_refused(
    memory: MemoryDirectory, open_log: Open, magic: int, codec: Codec
) -> None:
    writer = open_log(memory)
    writer.log.append_follower(entry(2, magic=magic, codec=codec), now_ms=T0)
    with pytest.raises(UnexpectedAppendOffset):
        writer.log.append_follower(entry(0, magic=magic, codec=codec), now_ms=T0)
    assert writer.log.log_end_offset == 3


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_batch_below_the_start_of_an_empty_log_is_refused_by_its_offsets(
    memory: MemoryDirectory, open_log: Open, codec: Codec
) -> None:
    writer = open_log(memory, log_start_offset=7)
    with pytest.raises(UnexpectedAppendOffset) as raised:
        writer.log.append_follower(entry(4, count=3, codec=codec), now_ms=T0)
    assert (raised.value.first_offset, raised.value.last_offset) == (4, 6)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_far_behind_the_logs_end_begin_a_segment_that_can_index_them(
    memory: MemoryDirectory, open_log: Open, magic: int, codec: Codec
) -> None:
    far = INT_MAX + 10
    writer = open_log(memory)
    writer.log.append_follower(entry(0, count=3, magic=magic, codec=codec), now_ms=T0)
    writer.log.append_follower(entry(far, count=3, magic=magic, codec=codec), now_ms=T0)
    first, second = bases(writer)
    assert first == 0
    assert 3 <= second <= far
    assert far + 2 - second <= INT_MAX
    again = open_log(memory, clean=False)
    assert bases(again) == [first, second]
    assert again.values(0) == [b"0", b"1", b"2"] + [b"%d" % (far + n) for n in range(3)]


# Producers


def compacted(values: list[bytes], last_offset_delta: int) -> bytes:
    """Return what the cleaner leaves of a batch of producer 1 whose last records are gone."""
    rows: list[Any] = [(T0, b"key", value, ()) for value in values or [b""]]
    batch = encode_batch(rows, producer_id=1, producer_epoch=0, base_sequence=0)
    if not values:
        batch = batch[:8] + (61 - 12).to_bytes(4) + batch[12:57] + bytes(4)
    checked = batch[21:23] + last_offset_delta.to_bytes(4) + batch[27:]
    return batch[:17] + crc32c(checked).to_bytes(4) + checked


@pytest.mark.parametrize(("values", "last"), [([b"a", b"b"], 3), ([b"a"], 7), ([], 1)])
def test_last_sequence_is_known_though_its_record_was_compacted(
    memory: MemoryDirectory, open_log: Open, values: list[bytes], last: int
) -> None:
    writer = open_log(memory)
    writer.log.append_follower(compacted(values, last), now_ms=T0)
    writer.append(b"more")
    again = open_log(memory, clean=False)
    for log in (writer.log, again.log):
        (batch,) = log.producers.producers[1].batches
        assert (batch.last_sequence, batch.last_offset) == (last, last)
    writer.log.truncate_to(last + 1)
    assert writer.log.producers.producers[1].batches[-1].last_sequence == last


def test_roll_by_an_append_counts_the_producer_once(directory: Directory, open_log: Open) -> None:
    def send(writer: Writer, sequence: int) -> None:
        writer.append(b"abc", producer_id=7, producer_epoch=0, base_sequence=sequence)

    writer = open_log(directory, segment_bytes=100)
    send(writer, 0)
    send(writer, 1)
    assert bases(writer) == [0, 1]
    writer.log.truncate_to(1)
    assert (bases(writer), writer.log.log_end_offset) == ([0, 1], 1)
    (batch,) = writer.log.producers.producers[7].batches
    assert (batch.base_offset, batch.last_offset) == (0, 0)


def test_truncation_without_snapshots_asks_the_log(directory: Directory, open_log: Open) -> None:
    writer = open_log(directory, segment_bytes=100)
    for sequence in range(2):
        writer.append(b"abc", producer_id=7, producer_epoch=0, base_sequence=sequence)
    writer.log.close()
    for name in directory.files():
        if name.endswith(".snapshot"):
            directory.remove(name)
    again = open_log(directory, segment_bytes=100, clean=False)
    for name in directory.files():
        if name.endswith(".snapshot"):
            directory.remove(name)
    again.log.history.snapshots.offsets.clear()
    again.log.truncate_to(1)
    assert again.log.producers.producers[7].batches[-1].last_sequence == 0


def test_snapshot_stands_at_the_logs_end_though_no_producer_has_an_id(
    directory: Directory, open_log: Open
) -> None:
    writer = open_log(directory)
    writer.append(b"plain")
    writer.log.close()
    assert [name for name in directory.files() if name.endswith(".snapshot")] == [
        "00000000000000000001.snapshot"
    ]


# Indexes


def test_every_lookup_is_that_of_a_sorted_map(memory: MemoryDirectory) -> None:
    rng = random.Random(7)
    index = OffsetIndex.create(memory, "i", 50)
    index.file.activate(30 * 8)
    entries = [(50, 0)]
    while not index.is_full:
        offset = entries[-1][0] + 1 + rng.randrange(10)
        position = entries[-1][1] + rng.randrange(1, 100)
        index.append(offset, position)
        entries.append((offset, position))
    for offset in range(40, entries[-1][0] + 10):
        expected = max(
            (candidate for candidate in entries if candidate[0] <= offset), default=(50, 0)
        )
        assert index.lookup(offset) == expected
