"""The choice of the segments that retention takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core_log.config import LogConfig
from core_log.memory_directory import MemoryDirectory
from core_log.retention import POLICIES, Oldest, SegmentAge, count_expired
from protocol.records.legacy import encode_messages
from tests.core_log.conftest import T0

Open = Callable[..., Any]

THREE = [SegmentAge(10, 100, 1000), SegmentAge(20, 100, 2000), SegmentAge(25, 50, 3000)]
KEEP = LogConfig(retention_ms=-1)


def going(
    config: LogConfig,
    segments: list[SegmentAge] = THREE,
    start: int = 0,
    high_watermark: int = 25,
    now_ms: int = 3000,
) -> int:
    number, _ = count_expired(
        segments,
        config,
        log_start_offset=start,
        high_watermark=high_watermark,
        now_ms=now_ms,
    )
    return number


def test_segment_goes_when_its_latest_record_is_older_than_retention() -> None:
    assert going(LogConfig(retention_ms=1000), now_ms=2000) == 0
    assert going(LogConfig(retention_ms=1000), now_ms=2001) == 1


def test_all_segments_may_be_too_old() -> None:
    assert going(LogConfig(retention_ms=10), now_ms=9000) == 3


def test_younger_segment_protects_those_behind_it() -> None:
    mixed = [SegmentAge(10, 100, 9000), SegmentAge(20, 100, 1000), SegmentAge(25, 50, 1000)]
    assert going(LogConfig(retention_ms=10), mixed, now_ms=9001) == 0


def test_oldest_go_while_the_rest_is_still_large_enough() -> None:
    assert going(LogConfig(retention_ms=-1, retention_bytes=151)) == 0
    assert going(LogConfig(retention_ms=-1, retention_bytes=150)) == 1
    assert going(LogConfig(retention_ms=-1, retention_bytes=0)) == 3


def test_nothing_goes_that_the_high_watermark_has_not_passed() -> None:
    config = LogConfig(retention_ms=10)
    assert going(config, now_ms=9000, high_watermark=19) == 1
    assert going(config, now_ms=9000, high_watermark=20) == 2
    assert going(config, now_ms=9000, high_watermark=9) == 0


def test_empty_last_segment_stays() -> None:
    ended = [*THREE[:2], SegmentAge(20, 0, 0)]
    assert going(LogConfig(retention_ms=10), ended, now_ms=9000) == 2


def test_segments_below_the_log_start_go_whatever_the_policy() -> None:
    compacted = LogConfig(cleanup_policy=("compact",), retention_ms=10)
    assert going(compacted, start=19, now_ms=9000) == 1
    assert going(compacted, start=20, now_ms=9000) == 2
    assert going(KEEP, start=25) == 2


def test_compacted_topic_keeps_old_segments() -> None:
    assert going(LogConfig(cleanup_policy=("compact",), retention_ms=10), now_ms=9000) == 0


def test_compacted_and_deleted_topic_loses_old_segments() -> None:
    both = LogConfig(cleanup_policy=("compact", "delete"), retention_ms=10)
    assert going(both, now_ms=9000) == 3


def test_another_rule_is_a_row_of_the_table() -> None:
    def by_count(oldest: Oldest, config: LogConfig) -> str | None:
        return "enough" if oldest.segment.end_offset < 25 else None

    expired = count_expired(
        THREE,
        KEEP,
        log_start_offset=0,
        high_watermark=25,
        now_ms=3000,
        policies={**POLICIES, "count": by_count},
    )
    assert expired == (2, "enough")


@pytest.mark.parametrize(
    ("config", "start", "why"),
    [
        (LogConfig(retention_ms=10), 0, "retention.ms 10 is over"),
        (LogConfig(retention_ms=-1, retention_bytes=1), 0, "retention.bytes 1 is exceeded"),
        (KEEP, 10, "the log starts at 10"),
        (LogConfig(retention_ms=10, retention_bytes=1), 10, "retention.ms 10 is over"),
    ],
)
def test_the_first_rule_that_holds_gives_the_reason(
    config: LogConfig, start: int, why: str
) -> None:
    result = count_expired(THREE, config, log_start_offset=start, high_watermark=10, now_ms=9000)
    assert result == (1, why)


def test_no_limit_is_minus_one_and_0_is_a_limit() -> None:
    assert going(LogConfig(retention_ms=-1, retention_bytes=-1), now_ms=2**62) == 0
    assert going(LogConfig(retention_ms=0), now_ms=3000) == 2


def test_sizes_beyond_32_bits_are_counted() -> None:
    large = [SegmentAge(10, 2**31 - 1, 1), SegmentAge(20, 2**31 - 1, 1), SegmentAge(25, 1, 1)]
    assert going(LogConfig(retention_ms=-1, retention_bytes=2**31), large) == 1


def test_a_clock_set_back_makes_nothing_older() -> None:
    assert going(LogConfig(retention_ms=0), now_ms=-(10**12)) == 0


def test_a_record_from_the_future_keeps_its_segment_and_those_behind_it() -> None:
    future = [SegmentAge(10, 100, 10**15), SegmentAge(20, 100, 2000), SegmentAge(25, 50, 3000)]
    assert going(LogConfig(retention_ms=10), future, now_ms=10**9) == 0
    assert going(LogConfig(retention_ms=10, retention_bytes=150), future, now_ms=10**9) == 3


def test_the_active_segment_goes_by_time_and_not_for_the_logs_start() -> None:
    active = [SegmentAge(25, 50, 3000)]
    assert going(KEEP, active, start=25) == 0
    assert going(LogConfig(retention_ms=10), active, now_ms=3011) == 1


def test_age_is_the_latest_records_and_the_files_only_where_no_record_has_one(
    memory: MemoryDirectory, open_log: Open
) -> None:
    memory.disk.now_ms = lambda: T0
    writer = open_log(memory, segment_bytes=100, retention_ms=1000)
    writer.append(b"a" * 30, timestamp=5)  # of long ago, though written now
    writer.append(b"b" * 30, timestamp=-1)
    writer.append(b"c" * 30, timestamp=T0)
    assert [age.largest_timestamp for age in writer.log.segments.ages()] == [5, T0, T0]
    assert writer.log.delete_old_segments(3, T0 + 1000) == 1
    assert writer.log.delete_old_segments(3, T0 + 1001) == 2


def test_messages_of_format_0_have_the_age_of_their_file(
    memory: MemoryDirectory, open_log: Open
) -> None:
    memory.disk.now_ms = lambda: T0
    writer = open_log(memory, retention_ms=1000, message_format_version="0.9.0")
    writer.log.append_follower(encode_messages([(0, -1, None, b"a", ())], 0), now_ms=T0)
    assert writer.log.delete_old_segments(1, T0 + 1000) == 0
    assert writer.log.delete_old_segments(1, T0 + 1001) == 1
