"""Records by key: which stay, in what segments, and what a run may not touch."""

from __future__ import annotations

import os
from pathlib import Path

import attrs
import pytest
from crc32c import crc32c

from compaction.clean import clean
from compaction.job import CLEAN, INDEX, CleaningProgress, Finished, GroupCleaned
from compaction.source import LEAST_READ_BYTES
from core_log.config import LogConfig
from core_log.directory import LogDirectory
from core_log.memory_directory import Disk, MemoryDirectory
from core_log.segments.file_name import LOG, file_name
from core_log.segments.segment import Segment
from protocol.records.batch import encode_batch
from protocol.records.compression import Codec
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.legacy import encode_messages
from protocol.records.record_run import Row
from tests.compaction.partition import DAY_MS, T0, Partition, changed, room_for


def test_newest_record_of_each_key_stays(partition: Partition) -> None:
    partition.append((b"a", b"1"), (b"b", b"1"))
    partition.append((b"a", b"2"))
    partition.roll()
    partition.clean()
    assert [(r.offset, r.key, r.value) for r in partition.records()] == [
        (1, b"b", b"1"),
        (2, b"a", b"2"),
    ]


def test_bytes_read_are_those_of_all_segments_and_all_is_counted(partition: Partition) -> None:
    for value in (b"1", b"2"):
        partition.append((b"a", value), (b"b", value))
        partition.roll()
    size = sum(len(partition.segment(base)) for base in partition.bases())
    statistics = partition.clean().statistics
    assert (statistics.map_bytes_read, statistics.bytes_read) == (size, size)
    assert (statistics.map_messages_read, statistics.messages_read) == (4, 4)
    assert (statistics.messages_written, statistics.bytes_written) == (2, size // 2)


def test_clean_part_is_read_for_copying_but_not_for_the_map(partition: Partition) -> None:
    partition.append((b"a", b"1"))
    partition.roll()
    partition.clean()
    clean_bytes = len(partition.segment(0))
    partition.append((b"a", b"2"))
    partition.roll()
    statistics = partition.clean().statistics
    assert statistics.map_bytes_read == statistics.bytes_read - clean_bytes
    assert partition.pairs() == [(b"a", b"2")]


def test_small_segments_become_one_and_an_empty_one_stays_for_the_start(
    partition: Partition,
) -> None:
    for value in (b"1", b"2", b"3"):
        partition.append((b"a", value))
        partition.roll()
    partition.clean()
    assert partition.bases() == [0]
    partition.config = attrs.evolve(partition.config, segment_bytes=100)
    partition.append((b"a", b"4"))
    partition.roll()
    partition.clean()
    assert (partition.bases(), len(partition.segment(0))) == ([0, 3], 0)


def test_records_without_key_go_and_are_counted(partition: Partition) -> None:
    partition.append((None, b"x"), (b"a", b"1"), (None, b"y"))
    partition.append((None, b"z"))
    partition.append_messages((None, b"w"))
    partition.roll()
    assert partition.clean().statistics.invalid_messages == 4
    assert partition.pairs() == [(b"a", b"1")]


def test_record_without_key_behind_the_map_stays(partition: Partition) -> None:
    partition.append((b"a", b"1"), (b"b", b"1"), (None, b"x"))
    partition.roll()
    finished = partition.clean(room_for(1))
    assert (finished.end_offset, finished.statistics.invalid_messages) == (1, 0)
    assert partition.offsets() == [0, 1, 2]


def test_uncleanable_segments_are_left_as_they_are(partition: Partition) -> None:
    for _ in range(4):
        partition.append((b"a", b"1"), (b"b", b"1"))
        partition.roll()
    untouched = {base: partition.segment(base) for base in (4, 6)}
    partition.clean(uncleanable=4)
    assert {base: partition.segment(base) for base in partition.bases()[1:]} == untouched
    assert partition.offsets() == [2, 3, 4, 5, 6, 7]


def test_full_map_cleans_a_part_and_the_next_runs_the_rest(partition: Partition) -> None:
    partition.append((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", b"2"), (b"c", b"1"))
    partition.roll()
    ends: list[int] = []
    offsets: list[list[int]] = []
    while not ends or ends[-1] < 5:
        ends.append(partition.clean(room_for(1)).end_offset)
        offsets.append(partition.offsets())
    assert ends == [1, 2, 3, 4, 5]
    assert offsets == [
        [0, 1, 2, 3, 4],
        [0, 1, 2, 3, 4],
        [1, 2, 3, 4],
        [2, 3, 4],
        [2, 3, 4],
    ]


def test_map_that_is_full_goes_on_with_keys_it_knows(partition: Partition) -> None:
    partition.append((b"a", b"1"), (b"a", b"2"), (b"a", b"3"), (b"b", b"1"))
    partition.roll()
    assert partition.clean(room_for(1)).end_offset == 3
    assert partition.offsets() == [2, 3]


@pytest.mark.parametrize("room", [1, 2])
def test_segments_behind_the_end_of_a_full_map_are_not_copied(room: int) -> None:
    partition = Partition(config=LogConfig(segment_bytes=14))
    for keys in (b"ab", b"cd"):
        partition.append((keys[:1], b"1"), (keys[1:], b"1"))
        partition.roll()
    events = list(clean(partition.job(room_for(room)), partition.directory))
    assert [event.end_offset for event in events if isinstance(event, Finished)] == [room]
    assert [event for event in events if isinstance(event, GroupCleaned)] == [GroupCleaned(0, (0,))]


def test_trailing_batches_without_keys_advance_the_clean_point(partition: Partition) -> None:
    partition.append((b"a", b"1"))
    partition.append((None, b"x"))
    assert partition.roll() == 2
    assert partition.clean().end_offset == 2


def test_first_dirty_offset_inside_of_a_batch_is_where_the_map_begins(
    partition: Partition,
) -> None:
    partition.append((b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    partition.roll()
    partition.checkpoint = 1
    assert partition.clean().statistics.map_messages_read == 2


# Tombstones


def test_tombstone_hides_its_key_and_stays_while_it_is_young(partition: Partition) -> None:
    partition.append((b"a", b"1"), (b"a", None), (b"b", b"1"))
    partition.roll()
    partition.clean()
    partition.append((b"c", b"1"))
    partition.roll(T0 + DAY_MS - 1)
    partition.clean()
    assert partition.pairs() == [(b"a", None), (b"b", b"1"), (b"c", b"1")]


def test_tombstone_goes_when_its_segment_is_older_than_delete_retention(
    partition: Partition,
) -> None:
    partition.append((b"a", b"1"), (b"a", None), (b"b", b"1"))
    partition.roll()
    partition.clean()
    partition.config = attrs.evolve(partition.config, segment_bytes=200)
    partition.append((b"c", b"1"))
    partition.append((b"c", None))
    partition.roll(T0 + DAY_MS)
    partition.clean()
    assert (b"a", None) in partition.pairs()
    partition.append((b"d", b"1"))
    partition.roll(T0 + DAY_MS)
    partition.clean()
    assert partition.pairs() == [(b"b", b"1"), (b"c", None), (b"d", b"1")]


def test_tombstone_stays_where_the_map_is_full_before_it_whatever_its_age(
    partition: Partition,
) -> None:
    partition.config = LogConfig(delete_retention_ms=0)
    partition.append((b"a", b"1"), (b"b", b"1"), (b"a", None))
    partition.roll()
    left = []
    for end_offset in (1, 2, 3):
        assert partition.clean(room_for(1)).end_offset == end_offset
        left.append(partition.offsets())
    assert left == [[0, 1, 2], [0, 1, 2], [1]]


def test_old_timestamp_of_a_tombstone_does_not_make_it_old(partition: Partition) -> None:
    partition.append((b"a", b"1"), timestamp=T0 + 100 * DAY_MS)
    partition.append((b"a", None), timestamp=0)
    partition.roll()
    for _ in range(2):
        partition.clean()
        assert partition.pairs() == [(b"a", None)]


def test_cleaned_segment_is_as_old_as_its_newest_source(partition: Partition) -> None:
    partition.append((b"a", b"1"))
    partition.roll(T0 + 5)
    partition.append((b"b", b"1"))
    partition.roll(T0 + 7)
    partition.clean()
    for name in partition.directory.files():
        assert partition.directory.modified_ms(name) == T0 + 7


# Segments and indexes


def test_indexes_of_a_cleaned_segment_find_every_offset(partition: Partition) -> None:
    for n in range(300):
        partition.append((b"%d" % n, bytes(1000)), timestamp=T0 + n)
    partition.append((b"0", b""), timestamp=T0 + 300)
    partition.roll()
    partition.clean()
    segment = Segment.load(partition.directory, 0, T0)
    assert segment.offset_index.file.count >= 3
    assert segment.largest_timestamp == T0 + 300
    for offset in (1, 150, 299, 300):
        batch_found = segment.find(offset)
        assert batch_found is not None
        assert batch_found.last_offset == offset
    assert segment.next_offset() == 301


@pytest.mark.parametrize("is_old", [False, True])
def test_time_index_of_a_cleaned_segment_speaks_of_what_stayed(
    partition: Partition, is_old: bool
) -> None:
    partition.config = LogConfig(index_interval_bytes=0)
    for n in (0, 4):
        rows: list[Row] = [
            (n + i, T0 + n + i, b"%d" % (n + i), bytes(70_000), ()) for i in range(4)
        ]
        if is_old:
            batch = encode_messages(rows, 1, codec=Codec.GZIP)
        else:
            batch = encode_batch([row[1:] for row in rows], base_offset=n)
        partition.append_bytes(batch, n + 3, T0 + n + 3)
    partition.append((b"7", b""), timestamp=T0)
    partition.roll()
    partition.clean()
    segment = Segment.load(partition.directory, 0, T0)
    assert segment.time_index.last == (T0 + 6, partition.batch_ends()[1])


def test_group_never_spans_more_offsets_than_an_index_can_count(partition: Partition) -> None:
    partition.append((b"a", b"1"))
    partition.next_offset = 2**31 - 1
    partition.roll()
    partition.append((b"b", b"1"))
    partition.roll()
    partition.append((b"c", b"1"))
    partition.roll()
    partition.clean()
    assert partition.bases() == [0, 2**31]


def test_batch_beyond_what_an_index_can_count_is_a_fault(partition: Partition) -> None:
    partition.append((b"a", b"1"))
    partition.next_offset = 2**31
    partition.append((b"b", b"1"))
    partition.write_unindexed()
    before = partition.files()
    with pytest.raises(CorruptRecord, match="too far"):
        partition.clean()
    assert partition.files() == before


# Large batches, damaged ones


def test_batch_larger_than_a_read_and_any_setting_is_cleaned(partition: Partition) -> None:
    partition.config = attrs.evolve(partition.config, max_message_bytes=1024)
    large = bytes(LEAST_READ_BYTES + 1000)
    partition.append((b"a", b"1"))
    partition.append((b"a", large))
    partition.append((b"b", b"1"))
    partition.roll()
    partition.clean()
    assert partition.pairs() == [(b"a", large), (b"b", b"1")]


@pytest.mark.parametrize(
    ("at", "octet"),
    [(16, 9), (8, 0x7F), (8, 0xFF), (80, 0xFF), (23, 0x80)],
    ids=["magic", "size too large", "size negative", "body", "delta negative"],
)
def test_damaged_batch_is_named_and_nothing_is_changed(
    partition: Partition, at: int, octet: int
) -> None:
    partition.append((b"a", b"1" * 30))
    partition.append((b"a", b"2" * 30))
    partition.roll()
    position = len(partition.segment(0)) // 2
    partition.directory.open_segment(file_name(0, LOG)).write(position + at, bytes((octet,)))
    before = partition.files()
    with pytest.raises(
        CorruptRecord, match=rf"^{file_name(0, LOG)}, position {position}, offset 1"
    ):
        partition.clean()
    assert partition.files() == before


def test_header_that_cannot_be_is_a_fault_though_its_checksum_is_right() -> None:
    batch = encode_batch([(T0, b"a", b"1", ())])
    short = bytearray(batch)
    short[8:12] = (20).to_bytes(4, "big")
    short[17:21] = crc32c(short[21:32]).to_bytes(4, "big")
    for impossible, why in [(changed(batch, count=-1), "count -1"), (bytes(short), "length 20")]:
        partition = Partition()
        partition.append_bytes(impossible, 0)
        partition.write_unindexed()
        with pytest.raises(CorruptRecord, match=why):
            partition.clean()


def test_file_cut_inside_of_a_batch_is_a_fault(partition: Partition) -> None:
    partition.append((b"a", bytes(2000)))
    partition.roll()
    job = partition.job()
    partition.directory.open_segment(file_name(0, LOG)).truncate(1024)
    with pytest.raises(CorruptRecord, match="do not fit"):
        list(clean(job, partition.directory))


def test_damage_in_the_clean_part_is_found_too(partition: Partition) -> None:
    partition.append((b"a", b"1"))
    partition.roll()
    partition.checkpoint = 1
    partition.append((b"a", b"2"))
    partition.roll()
    partition.directory.open_segment(file_name(0, LOG)).write(65, b"\xff")
    before = partition.files()
    with pytest.raises(CorruptRecord, match="position 0, offset 0"):
        partition.clean()
    assert partition.files() == before


@pytest.mark.parametrize("size", [1, LEAST_READ_BYTES], ids=["in one read", "in another read"])
def test_offsets_that_go_back_are_a_fault(partition: Partition, size: int) -> None:
    partition.append((b"a", bytes(size)))
    partition.next_offset = 0
    partition.append((b"a", b"2"))
    partition.write_unindexed()
    with pytest.raises(CorruptRecord, match="follows offset 0"):
        partition.clean()


def test_segment_that_has_gone_is_a_fault_and_is_not_made_again(partition: Partition) -> None:
    partition.append((b"a", b"1"))
    partition.roll()
    job = partition.job()
    partition.directory.remove(file_name(0, LOG))
    files = partition.directory.files()
    with pytest.raises(FileNotFoundError):
        list(clean(job, partition.directory))
    assert partition.directory.files() == files


# Giving up


def three_segments() -> Partition:
    partition = Partition(config=LogConfig(segment_bytes=250))
    for value in (b"1", b"2", b"3"):
        partition.append((b"a", value), (b"b", value))
        partition.append((b"c", value))
        partition.roll()
    return partition


EVENTS = len(list(clean(three_segments().job(), three_segments().directory)))


@pytest.mark.parametrize("last", range(EVENTS))
def test_run_that_is_closed_at_any_event_leaves_no_file(last: int) -> None:
    partition = three_segments()
    before = partition.files()
    run = clean(partition.job(), partition.directory)
    for _, event in zip(range(last), run, strict=False):
        if isinstance(event, GroupCleaned):
            partition.swap(event)
    event = next(run)
    run.close()
    assert not [name for name in partition.directory.files() if name.endswith(".cleaned")]
    if isinstance(event, CleaningProgress) and event.phase == INDEX:
        assert partition.files() == before


def test_full_disk_is_a_fault_that_leaves_no_file() -> None:
    disk = Disk()
    partition = Partition(MemoryDirectory("logs", disk).child("t-0"))
    for n in range(4):
        partition.append((b"%d" % n, bytes(1000)))
    partition.roll()
    before = partition.files()
    disk.free_bytes = 2000
    with pytest.raises(OSError, match="No space"):
        partition.clean()
    assert partition.files() == before


def test_leftovers_of_an_earlier_run_do_not_get_into_the_segment(partition: Partition) -> None:
    partition.append((b"a", b"1"))
    partition.roll()
    for kind in (".log", ".index", ".timeindex", ".txnindex"):
        partition.directory.open_segment(file_name(0, kind) + ".cleaned").append([bytes(340)])
    partition.clean()
    assert partition.pairs() == [(b"a", b"1")]
    assert partition.directory.size(file_name(0, ".txnindex")) is None
    assert Segment.load(partition.directory, 0, T0).next_offset() == 1


def test_what_was_handed_over_survives_a_power_loss(partition: Partition) -> None:
    for value in (b"1", b"2"):
        partition.append((b"a", value))
    partition.roll()
    run = clean(partition.job(), partition.directory)
    handed_over = next(event for event in run if isinstance(event, GroupCleaned))
    partition.swap(handed_over)
    partition.directory.fsync_dir()
    assert isinstance(partition.directory, MemoryDirectory)
    assert partition.directory.parent is not None
    partition.directory.parent.fsync_dir()
    partition.directory.lose_power()
    assert partition.pairs() == [(b"a", b"2")]


def test_progress_tells_what_is_left_of_each_phase(partition: Partition) -> None:
    for n in range(3):
        partition.append((b"%d" % n, bytes(3_000_000)))
    partition.roll()
    events = list(clean(partition.job(), partition.directory))
    size = len(partition.segment(0))
    for phase in (INDEX, CLEAN):
        steps = [e for e in events if isinstance(e, CleaningProgress) and e.phase == phase]
        assert len(steps) == 3
        assert steps[-1].bytes_left == 0
        assert sum(step.bytes_done for step in steps) >= size
    assert isinstance(events[-1], Finished)


def test_on_a_real_disk_the_same_is_left(tmp_path: Path) -> None:
    twins = [Partition(), Partition(LogDirectory(tmp_path / "t-0"))]
    for partition in twins:
        for n in range(50):
            partition.append((b"%d" % (n % 7), b"%d" % n))
            if n % 10 == 9:
                partition.roll()
        partition.clean()
    memory, disk = twins
    assert disk.files() == memory.files()
    stat = os.stat(tmp_path / "t-0" / file_name(0, LOG))
    assert stat.st_mtime_ns == T0 * 1_000_000
