"""The grouping of segments that are cleaned into one."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from compaction.grouping import MOST_TOGETHER, group_segments
from compaction.job import SourceSegment
from core_log.config import INT_MAX, LogConfig

PLENTY = LogConfig(segment_bytes=INT_MAX, segment_index_bytes=INT_MAX)
NINE = [SourceSegment(10 * n, 10 * n + 10, 100, 16, 24, 0) for n in range(9)]


def bases(segments: list[SourceSegment], **limits: Any) -> list[list[int]]:
    groups = group_segments(segments, attrs.evolve(PLENTY, **limits))
    return [[segment.base_offset for segment in group] for group in groups]


THREES = [[0, 10, 20], [30, 40, 50], [60, 70, 80]]


def test_all_segments_are_one_group_within_wide_limits() -> None:
    assert bases(NINE) == [[0, 10, 20, 30, 40, 50, 60, 70, 80]]


def test_segments_larger_than_the_limit_stay_alone() -> None:
    assert bases(NINE, segment_bytes=14) == [[base] for base in range(0, 90, 10)]


def test_groups_have_no_more_bytes_than_a_segment_may() -> None:
    assert bases(NINE, segment_bytes=399) == THREES


def test_groups_have_no_more_offset_index_than_a_segment_may() -> None:
    small_time_indexes = [attrs.evolve(segment, time_index_bytes=0) for segment in NINE]
    assert bases(small_time_indexes, segment_index_bytes=48) == THREES


def test_groups_have_no_more_time_index_than_a_segment_may() -> None:
    assert bases(NINE, segment_index_bytes=72) == THREES


def test_groups_of_tiny_segments_have_a_bound() -> None:
    tiny = [SourceSegment(n, n + 1, 100, 0, 0, 0) for n in range(2 * MOST_TOGETHER + 1)]
    assert [len(group) for group in bases(tiny)] == [MOST_TOGETHER, MOST_TOGETHER, 1]


def test_no_segments_are_no_group() -> None:
    assert bases([]) == []


def test_last_offset_that_an_index_can_just_count_is_in_the_group() -> None:
    sparse = [
        SourceSegment(0, INT_MAX, 1, 0, 0, 0),
        SourceSegment(INT_MAX, INT_MAX + 1, 1, 0, 0, 0),
    ]
    assert bases(sparse) == [[0, INT_MAX]]


def test_one_offset_more_begins_a_new_group() -> None:
    sparse = [
        SourceSegment(0, INT_MAX, 1, 0, 0, 0),
        SourceSegment(INT_MAX, INT_MAX + 2, 1, 0, 0, 0),
    ]
    assert bases(sparse) == [[0], [INT_MAX]]


def test_where_a_segment_ends_is_judged_by_the_next_base_though_indexes_are_empty() -> None:
    empty = [
        SourceSegment(0, 1, 1, 0, 0, 0),
        SourceSegment(1, INT_MAX + 1, 1, 0, 0, 0),
        SourceSegment(INT_MAX + 1, INT_MAX + 3, 1, 0, 0, 0),
    ]
    assert bases(empty) == [[0, 1], [INT_MAX + 1]]


def _empty(base_offset: int, end_offset: int) -> SourceSegment:
    return SourceSegment(base_offset, end_offset, 0, 0, 0, 0)


@pytest.mark.fault("broker-15")
def test_an_empty_segment_goes_with_those_before_it_however_far_away_it_is() -> None:
    far = INT_MAX + 10
    segments = [
        SourceSegment(0, far, 100, 16, 24, 0),
        _empty(far, 2 * far),
        _empty(2 * far, 3 * far),
        SourceSegment(3 * far, 3 * far + 5, 100, 16, 24, 0),
        _empty(3 * far + 5, 4 * far),
    ]
    assert bases(segments) == [[0, far, 2 * far], [3 * far, 3 * far + 5]]


@pytest.mark.fault("broker-15")
def test_an_empty_segment_that_stays_alone_is_left_as_it_is() -> None:
    far = INT_MAX + 10
    first = [_empty(0, far), _empty(far, 2 * far)]
    full = SourceSegment(2 * far, 2 * far + 5, 100, 16, 24, 0)
    assert bases([*first, full]) == [[0, far], [2 * far]]
    # At the next cleaning the first two are one.
    assert bases([_empty(0, 2 * far), full]) == [[2 * far]]
