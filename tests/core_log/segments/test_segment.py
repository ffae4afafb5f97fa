"""One segment: look-ups in it, and its state after a truncation."""

from __future__ import annotations

import pytest

from core_log.config import INT_MAX, LogConfig
from core_log.memory_directory import MemoryDirectory
from core_log.segments.batch_scan import scan
from core_log.segments.file_name import SUFFIXES, base_offset_of, file_name
from core_log.segments.segment import Segment
from core_log.segments.time_index import NO_TIMESTAMP, TimestampOffset
from core_log.storage import Directory
from protocol.records.batch import encode_batch
from protocol.records.batch_header import read_header

T0 = 1_000_000
CONFIG = LogConfig(segment_index_bytes=1000)


def batch(offset: int, *values: bytes, timestamp: int | None = None) -> bytes:
    """Encode a batch of `values`, all with ten times the first offset as timestamp."""
    time_ms = 10 * offset if timestamp is None else timestamp
    return encode_batch([(time_ms, None, value, ()) for value in values], base_offset=offset)


def segment(directory: Directory, base_offset: int = 40, config: LogConfig = CONFIG) -> Segment:
    new_segment = Segment.create(directory, base_offset, T0)
    new_segment.activate(config)
    return new_segment


def append(to: Segment, *batches: bytes, interval_bytes: int = 0) -> None:
    for data in batches:
        header = read_header(data)
        latest = TimestampOffset(header.max_timestamp, header.last_offset)
        to.append([data], header.last_offset, latest, interval_bytes)


def filled(directory: Directory, *offsets: int, interval_bytes: int = 0) -> Segment:
    new_segment = segment(directory)
    append(
        new_segment, *(batch(offset, b"abc") for offset in offsets), interval_bytes=interval_bytes
    )
    return new_segment


def found(in_: Segment, offset: int) -> int | None:
    """The base offset of what a reader at `offset` gets."""
    batch = in_.find(offset)
    return None if batch is None else batch.base_offset


# Names


@pytest.mark.parametrize("offset", [0, 23423423, 2**63 - 1])
@pytest.mark.parametrize("suffix", [*SUFFIXES, ".txnindex", ".snapshot", ".log.deleted"])
def test_offset_is_read_from_a_files_name(offset: int, suffix: str) -> None:
    assert base_offset_of(file_name(offset, suffix)) == offset
    assert len(file_name(offset, "")) == 20


def test_files_are_given_a_suffix_and_can_be_read_on(directory: Directory) -> None:
    renamed = filled(directory, 40, 41)
    names = renamed.rename_files(".deleted")
    assert names == [file_name(40, kind + ".deleted") for kind in SUFFIXES]
    assert directory.files() == sorted(names)
    assert found(renamed, 41) == 41


# Reading


def test_nothing_is_found_in_an_empty_segment(memory: MemoryDirectory) -> None:
    assert found(segment(memory), 40) is None


def test_what_comes_next_is_found_before_the_first_offset_and_in_a_gap(
    memory: MemoryDirectory,
) -> None:
    gaps = segment(memory)
    append(gaps, batch(50, b"a", b"b"), batch(60, b"c", b"d"))
    assert [found(gaps, offset) for offset in (41, 50, 51, 55, 60, 61)] == [50, 50, 50, 60, 60, 60]
    assert found(gaps, 62) is None


@pytest.mark.parametrize("interval_bytes", [0, 10**6])
def test_first_time_not_earlier_is_found(memory: MemoryDirectory, interval_bytes: int) -> None:
    timed = filled(memory, *range(40, 50), interval_bytes=interval_bytes)

    def offset_at(timestamp: int) -> int | None:
        start = timed.offset_index.lookup(timed.time_index.lookup(timestamp).offset).position
        return next(
            (b.last_offset for b in scan(timed.log, start) if b.max_timestamp >= timestamp), None
        )

    timestamps = (420, 421, 430, 431, 491, 401, 399)
    assert [offset_at(timestamp) for timestamp in timestamps] == [42, 43, 43, 44, None, 41, 40]


def test_next_offset_is_one_above_the_last_and_the_base_of_an_empty_one(
    memory: MemoryDirectory,
) -> None:
    ends = segment(memory)
    assert ends.next_offset() == 40
    append(ends, batch(50, b"a", b"b", b"c"))
    assert ends.next_offset() == 53


# Truncation


def test_each_of_thirty_truncations_takes_the_last_batch(memory: MemoryDirectory) -> None:
    cut = segment(memory)
    for offset in range(40, 70):
        append(cut, batch(offset, b"abc"), batch(offset + 1, b"abc"))
        assert found(cut, offset + 1) == offset + 1
        cut.truncate_to(offset + 1, T0)
        assert found(cut, offset + 1) is None
        assert found(cut, offset) == offset


def test_segment_cut_to_nothing_is_as_new(memory: MemoryDirectory) -> None:
    cut = segment(memory)
    append(cut, batch(40, b"a", b"b", timestamp=T0))
    assert cut.should_roll(LogConfig(segment_ms=500), 1, 42, T0 + 501, T0)
    cut.truncate_to(0, T0 + 600)
    assert (cut.size, cut.first_timestamp, cut.created_ms) == (0, None, T0 + 600)
    assert cut.latest == (NO_TIMESTAMP, 40)
    assert not cut.should_roll(LogConfig(segment_ms=500), 1, 42, T0 + 501, T0)
    append(cut, batch(40, b"c"))
    assert found(cut, 40) == 40


def test_limits_of_a_segment_follow_settings_cuts_and_full_indexes(memory: MemoryDirectory) -> None:
    limits = segment(memory, 0, LogConfig(segment_index_bytes=24))
    first, second, third = (batch(offset, b"a", timestamp=T0 + offset) for offset in range(3))
    hour = LogConfig(segment_ms=3_600_000)

    def rolls(config: LogConfig, timestamp: int, size: int = 1) -> bool:
        return limits.should_roll(config, size, 9, timestamp, lambda: T0)

    # Asked twice: the second time it knows its limits.
    append(limits, first)
    for _ in range(2):
        assert not rolls(hour, T0 + 3_600_000)
        assert rolls(hour, T0 + 3_600_001)
        assert not rolls(hour, T0, hour.segment_bytes - len(first))
        assert rolls(hour, T0, hour.segment_bytes - len(first) + 1)

    # Other settings, and a first batch that is later.
    assert rolls(LogConfig(segment_ms=1), T0 + 2)
    assert rolls(LogConfig(segment_bytes=len(first)), T0)
    assert not rolls(hour, T0 + 3_600_000)
    limits.truncate_to(0, T0)
    append(limits, second)
    assert not rolls(hour, T0 + 3_600_001)
    assert rolls(hour, T0 + 3_600_002)

    # The time index keeps one of its two slots free.
    append(limits, third)
    assert limits.time_index.is_full
    assert rolls(hour, T0)


def test_empty_segment_that_was_sealed_has_its_indexes_again_after_a_cut(
    memory: MemoryDirectory,
) -> None:
    """Though nothing is cut: full indexes of no entry would roll it for ever (KAFKA-6492)."""
    segment(memory, 0).seal()
    again = Segment.load(memory, 0, T0)
    assert memory.size(file_name(0, ".index")) == 0
    again.activate(CONFIG)
    again.truncate_to(57, T0)
    assert not again.offset_index.is_full
    assert not again.time_index.is_full
    assert not again.should_roll(LogConfig(segment_ms=1), 1, 57, 10**12, 10**12)
    assert again.should_roll(LogConfig(), 1, INT_MAX + 200, T0, T0)


def test_latest_time_and_next_offset_after_a_cut_are_those_of_what_is_left(
    memory: MemoryDirectory,
) -> None:
    cut = filled(memory, *range(40, 70), interval_bytes=2 * 71)
    entries = cut.time_index.file.count
    assert entries > 5
    cut.truncate_to(41, T0)
    assert cut.time_index.file.count == 0
    assert cut.latest == (400, 40)
    assert cut.next_offset() == 41


def test_cut_at_an_offset_that_is_not_there_takes_what_is_behind(memory: MemoryDirectory) -> None:
    cut = filled(memory, 40, 43)
    cut.truncate_to(41, T0)
    assert (found(cut, 40), found(cut, 41)) == (40, None)
