"""Which segments retention takes."""

from __future__ import annotations

from core_log.config import LogConfig
from core_log.retention import SegmentAge, expired

THREE = [SegmentAge(10, 100, 1000), SegmentAge(20, 100, 2000), SegmentAge(25, 50, 3000)]
KEEP = LogConfig(retention_ms=-1)


def going(
    config: LogConfig,
    segments: list[SegmentAge] = THREE,
    start: int = 0,
    high_watermark: int = 25,
    now_ms: int = 3000,
) -> int:
    number, _ = expired(
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
