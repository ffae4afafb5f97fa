"""What groups will lose, from the rows of `describe`."""

from typing import Any

import pytest

from clients.watching.offset_risk import find_risks, judge_risks

HOUR = 3_600_000


def row(group: str, **values: Any) -> dict[str, Any]:
    nothing = {"position": None, "deleted_in_ms": None, "expires_in_ms": None, "unowned": False}
    place = {"group": group, "topic": "t", "partition": 0, "current_offset": 5, "lag": 2}
    return {**place, **nothing, **values}


def test_what_is_due_in_time_is_at_risk_and_the_nearest_comes_first() -> None:
    rows = [
        row("late", expires_in_ms=9 * HOUR),
        row("offsets", expires_in_ms=3 * HOUR),
        row("records", deleted_in_ms=HOUR),
        row("gone", position="below-log-start", deleted_in_ms=HOUR),
        {"group": "idle", "consumer_id": "member without a partition"},
    ]
    risks = find_risks(rows, 4 * HOUR)
    assert [(risk["group"], risk["risk"], risk["in_ms"]) for risk in risks] == [
        ("gone", "overtaken", 0),
        ("records", "records-deleted", HOUR),
        ("offsets", "offset-expires", 3 * HOUR),
    ]
    assert judge_risks(risks, 4 * HOUR) == (
        "overtaken now: gone on t-0: records were deleted unread: raise "
        "retention.ms or retention.bytes; records-deleted in 1h 0m: records on t-0: consume "
        "faster, or raise retention.ms of the topic; offset-expires in 3h 0m: offsets on t-0: "
        "start a member, commit again, or raise offsets.retention.minutes"
    )


def test_an_offset_beyond_the_logs_end_is_a_risk_of_now_and_what_a_consumer_does_is_said() -> None:
    risks = find_risks([row("made again", position="beyond-log-end")], HOUR)
    assert [(risk["risk"], risk["in_ms"]) for risk in risks] == [("beyond-log-end", 0)]
    assert judge_risks(risks, HOUR) == (
        "beyond-log-end now: made again on t-0: the log was truncated, or its topic made again: a "
        "consumer goes on where the log parts from what it read, if it committed with a leader "
        "epoch (KIP-320), and otherwise where its auto.offset.reset says, or where `kgroup reset` "
        "puts it"
    )


@pytest.mark.fault("strangers-96")
def test_records_that_nobody_owns_are_a_risk_of_now() -> None:
    added = {"current_offset": None, "lag": None, "unowned": True, "log_start_offset": 0}
    rows = [
        row("g", **added, partition=2, log_end_offset=667),
        row("g", **added, partition=3, log_end_offset=0),
        row("h", **added | {"current_offset": 5}, log_end_offset=7),
    ]
    risks = find_risks(rows, HOUR)
    assert [(risk["partition"], risk["risk"], risk["in_ms"]) for risk in risks] == [
        (2, "no-owner", 0)
    ]
    assert judge_risks(risks, HOUR) == (
        "no-owner now: g on t-2: members hear of added partitions within their "
        "metadata.max.age.ms (5 minutes by default), and with auto.offset.reset=latest skip what "
        "was written until then"
    )


def test_an_offset_that_is_overdue_goes_now() -> None:
    (risk,) = find_risks([row("g", expires_in_ms=-5)], HOUR)
    assert risk["in_ms"] == 0


def test_without_risks_the_verdict_says_for_how_long() -> None:
    assert judge_risks([], 4 * HOUR) == "nothing is lost within 4h 0m"
