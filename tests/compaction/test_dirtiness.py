"""The choice of the log to clean next, and of its bounds."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from compaction.dirtiness import (
    Dirtiness,
    LogFacts,
    SegmentFacts,
    choose_dirtiest,
    measure_dirtiness,
)
from core_log.config import LogConfig
from protocol.topic_partition import TopicPartition

NOW = 1_700_000_000_000
HOUR = 3_600_000

FIVE = [SegmentFacts(10 * n, 100 + n, NOW - HOUR + n, NOW - HOUR + n) for n in range(5)]
LOG = LogFacts(
    topic_partition=TopicPartition("t", 0),
    segments=FIVE,
    config=LogConfig(cleanup_policy=("compact",)),
    log_start_offset=0,
    log_end_offset=45,
    stable_offset=45,
    checkpoint=None,
)


def measured(**facts: Any) -> Dirtiness:
    settings = facts.pop("settings", {})
    config = attrs.evolve(LOG.config, **settings)
    return measure_dirtiness(attrs.evolve(LOG, config=config, **facts), NOW)


def bounds(**facts: Any) -> tuple[int, int]:
    result = measured(**facts)
    return result.first_dirty_offset, result.first_uncleanable_offset


def test_log_never_cleaned_is_dirty_up_to_its_active_segment() -> None:
    result = measured()
    assert (result.first_dirty_offset, result.first_uncleanable_offset) == (0, 40)
    assert (result.clean_bytes, result.cleanable_bytes, result.ratio) == (0, 406, 1.0)
    assert result.reset_reason is None


def test_ratio_is_of_the_bytes_that_could_be_cleaned() -> None:
    result = measured(checkpoint=20)
    assert (result.clean_bytes, result.cleanable_bytes) == (201, 205)
    assert result.ratio == 205 / 406


def test_uncleanable_bytes_do_not_count() -> None:
    result = measured(checkpoint=20, stable_offset=30)
    assert (result.clean_bytes, result.cleanable_bytes) == (201, 102)


def test_segment_that_is_partly_clean_counts_once_and_as_dirty() -> None:
    result = measured(checkpoint=25)
    assert (result.clean_bytes, result.cleanable_bytes) == (201, 205)


def test_sums_of_bytes_have_no_end() -> None:
    huge = [attrs.evolve(segment, size=2**31 - 1) for segment in FIVE]
    assert measured(segments=huge, checkpoint=10).ratio == 0.75


def test_log_with_one_segment_has_nothing_to_clean() -> None:
    result = measured(segments=FIVE[:1], log_end_offset=5, stable_offset=5)
    assert (result.cleanable_bytes, result.ratio, result.is_due) == (0, 0.0, False)


def test_segment_that_holds_the_stable_offset_is_left_out_whole() -> None:
    assert bounds(stable_offset=25) == (0, 20)
    assert bounds(stable_offset=30) == (0, 30)


def test_stable_offset_below_the_clean_part_leaves_nothing() -> None:
    result = measured(stable_offset=5, checkpoint=20)
    assert (result.cleanable_bytes, result.is_due) == (0, False)


# min.compaction.lag.ms


def test_records_younger_than_the_lag_are_left_to_readers() -> None:
    segments = [*FIVE[:2], attrs.evolve(FIVE[2], largest_timestamp=NOW - 5), *FIVE[3:]]
    assert bounds(segments=segments, settings={"min_compaction_lag_ms": 10}) == (0, 20)
    assert bounds(segments=segments, settings={"min_compaction_lag_ms": 5}) == (0, 40)
    assert bounds(segments=segments) == (0, 40)


def test_young_records_of_the_clean_part_hold_nothing_back() -> None:
    segments = [attrs.evolve(FIVE[0], largest_timestamp=NOW), *FIVE[1:]]
    lag = {"min_compaction_lag_ms": 10}
    assert bounds(segments=segments, checkpoint=10, settings=lag) == (10, 40)


# max.compaction.lag.ms


def test_log_whose_oldest_dirty_record_waited_too_long_is_due_at_any_ratio() -> None:
    lag = {"max_compaction_lag_ms": HOUR - 33, "min_cleanable_dirty_ratio": 1.0}
    result = measured(checkpoint=30, settings=lag)
    assert (result.overdue_ms, result.is_due) == (30, True)


def test_log_whose_oldest_dirty_record_may_wait_longer_goes_by_its_ratio() -> None:
    lag = {"max_compaction_lag_ms": HOUR, "min_cleanable_dirty_ratio": 1.0}
    result = measured(checkpoint=30, settings=lag)
    assert (result.overdue_ms, result.is_due) == (0, False)


def test_records_without_a_time_are_never_overdue() -> None:
    untimed = [attrs.evolve(segment, first_timestamp=-1) for segment in FIVE]
    assert measured(segments=untimed, settings={"max_compaction_lag_ms": 1}).overdue_ms == 0


def test_overdue_records_that_cannot_be_cleaned_do_not_make_a_log_due() -> None:
    result = measured(stable_offset=0, settings={"max_compaction_lag_ms": 1})
    assert (result.overdue_ms, result.is_due) == (0, False)


# The checkpoint


def test_checkpoint_below_the_first_segment_is_reset_and_told() -> None:
    result = measured(segments=FIVE[2:], log_start_offset=20, checkpoint=10)
    assert result.first_dirty_offset == 20
    assert result.reset_reason == "10 is below the log's start 20"


def test_checkpoint_below_a_start_that_retention_moved_is_no_news() -> None:
    both = {"cleanup_policy": ("compact", "delete")}
    result = measured(segments=FIVE[2:], log_start_offset=20, checkpoint=10, settings=both)
    assert (result.first_dirty_offset, result.reset_reason) == (20, None)


def test_checkpoint_beyond_the_log_end_begins_anew() -> None:
    result = measured(checkpoint=46)
    assert result.first_dirty_offset == 0
    assert result.reset_reason == "46 is above the log's end 45"


def test_checkpoint_inside_of_the_active_segment_is_clamped_to_it() -> None:
    result = measured(checkpoint=42)
    assert (result.first_dirty_offset, result.first_uncleanable_offset) == (40, 40)
    assert result.reset_reason == "42 is inside of the active segment 40"


def test_log_start_inside_of_the_active_segment_leaves_nothing_to_clean() -> None:
    result = measured(log_start_offset=44)
    assert (result.first_dirty_offset, result.cleanable_bytes) == (40, 0)


# Choosing


@pytest.mark.parametrize(("dirty", "due"), [(50, False), (51, True)])
def test_ratio_must_be_exceeded(dirty: int, due: bool) -> None:
    log = Dirtiness(TopicPartition("t", 0), 0, 0, 100 - dirty, dirty, 0, 0.5)
    assert log.is_due == due


def test_log_without_dirty_bytes_is_not_due_though_the_ratio_is_0() -> None:
    assert not Dirtiness(TopicPartition("t", 0), 0, 0, 100, 0, 0, 0.0).is_due


def log_of(name: str, dirty: int, overdue_ms: int = 0) -> Dirtiness:
    return Dirtiness(TopicPartition(name, 0), 0, 0, 100 - dirty, dirty, overdue_ms, 0.5)


def test_dirtiest_log_is_next() -> None:
    logs = [log_of("a", 60), log_of("b", 80), log_of("c", 70)]
    assert choose_dirtiest(logs) == logs[1]


def test_overdue_log_comes_before_dirtier_ones() -> None:
    logs = [log_of("a", 99), log_of("b", 1, 5), log_of("c", 2, 1)]
    assert choose_dirtiest(logs) == logs[2]


def test_no_log_is_next_if_none_is_due() -> None:
    assert choose_dirtiest([log_of("a", 50)]) is None
