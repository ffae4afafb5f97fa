"""Verdicts on partitions and groups: the cases of Burrow's own tests, and ours."""

from collections.abc import Sequence

import pytest

from clients.groups.group_facts import LogOffsets
from clients.watching.commit_history import Commit
from clients.watching.health import (
    ERR,
    OK,
    REWIND,
    STALL,
    STOP,
    UNKNOWN,
    WARN,
    health_items,
    judge_all,
    judge_group,
    judge_partition,
)
from protocol.topic_partition import TopicPartition

STEP_MS = 100_000


def commits(offsets: Sequence[int], lags: Sequence[int | None]) -> list[Commit]:
    """Commits of one partition, one each 100 s, each with the lag that was left."""
    return [
        Commit(STEP_MS * number, "g", "t", 0, offset, None if lag is None else offset + lag)
        for number, (offset, lag) in enumerate(zip(offsets, lags, strict=True), start=1)
    ]


GROWING = [1000, 2000, 3000, 4000, 5000]
SAME = [1000] * 5
BACK = [1000, 2000, 3000, 2000, 4000]

# Offsets, lags at the commits, lag now, seconds, verdict. The numbers in front are Burrow's.
BURROW = {
    "0 no lag at one commit": (GROWING, [0, 50, 100, 150, 200], 200, 600, OK),
    "1 silent as long as the window": (GROWING, [0, 50, 100, 150, 200], 200, 900, OK),
    "2 silent for longer": (GROWING, [0, 50, 100, 150, 200], 200, 1000, STOP),
    "3 silent for longer, always lag": (GROWING, [50, 100, 150, 200, 250], 250, 1000, STOP),
    "4 one offset, no lag at first": (SAME, [0, 50, 100, 150, 200], 200, 600, OK),
    "5 one offset, lag grows": (SAME, [100, 150, 200, 250, 300], 300, 600, STALL),
    "6 one offset, lag stays": (SAME, [100] * 5, 100, 600, STALL),
    "7 an offset goes back": (BACK, [100, 150, 200, 1250, 300], 300, 600, REWIND),
    "8 silent without lag": (GROWING, [50, 100, 150, 200, 250], 0, 1000, OK),
    "lag grows": (GROWING, [50, 100, 100, 200, 250], 250, 600, WARN),
    "lag shrinks once": (GROWING, [50, 100, 90, 200, 250], 250, 600, OK),
    "lag of some commits is unknown": (GROWING, [50, None, 100, None, 250], 250, 600, WARN),
    "lag of too few commits is known": (GROWING, [50, None, None, None, 250], 250, 600, OK),
}


@pytest.mark.parametrize("case", BURROW)
def test_partition_has_the_verdict_of_burrow(case: str) -> None:
    offsets, lags, lag, now_s, verdict = BURROW[case]
    log = LogOffsets(0, offsets[-1] + lag)
    judged = judge_partition(commits(offsets, lags), log, now_s * 1000)
    assert (judged.status, judged.lag, judged.commits) == (verdict, lag, 5)


def test_partition_whose_first_unread_record_is_new_has_not_stopped() -> None:
    # 9 and 10 of Burrow's cases: 15 commits a second apart, then 17 s without any.
    window = [Commit(1000 * n, "g", "t", 0, 80 + n, 80 + n) for n in range(15)]
    old = judge_partition(window, LogOffsets(0, 1025), 31_000)
    new = judge_partition(window, LogOffsets(0, 95), 31_000, unread_since_ms=30_500)
    assert (old.status, new.status) == (STOP, OK)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_partition_with_few_commits_is_unknown_and_the_reason_says_what_to_do(count: int) -> None:
    some = commits(GROWING, [0] * 5)[:count]
    judged = judge_partition(some, LogOffsets(0, 1000 * count), 600_000)
    assert judged.status == UNKNOWN
    assert ("kgroup record" in judged.why) == (count > 0)


def test_commits_before_the_window_do_not_count() -> None:
    judged = judge_partition(
        commits(GROWING, [0] * 5), LogOffsets(0, 5000), 600_000, window_ms=150_000
    )
    assert (judged.status, judged.commits) == (UNKNOWN, 2)


def test_partition_without_a_leader_is_unknown() -> None:
    assert judge_partition(commits(GROWING, [0] * 5), LogOffsets(), 600_000).status == UNKNOWN


def test_group_is_as_bad_as_its_worst_partition() -> None:
    def group(*cases: str) -> str:
        return judge_group(
            judge_partition(commits(offsets, lags), LogOffsets(0, offsets[-1] + lag), now_s * 1000)
            for offsets, lags, lag, now_s, _ in (BURROW[case] for case in cases)
        )

    fine, grows = "8 silent without lag", "lag grows"
    assert group(fine) == OK
    assert group(fine, grows) == WARN
    for case in ("3 silent for longer, always lag", "6 one offset, lag stays"):
        assert group(grows, case, fine) == ERR
    assert group() == UNKNOWN


def test_offset_that_was_deleted_is_no_longer_judged() -> None:
    deleted = [*commits(GROWING, [0] * 5), Commit(700_000, "g", "t", 0, None)]
    assert health_items("g", deleted, {}, 800_000) == []


def test_items_have_the_numbers_that_made_the_verdict() -> None:
    logs = {TopicPartition("t", 0): LogOffsets(0, 1100)}
    (item,) = health_items("g", commits(SAME, [100] * 5), logs, 600_000)
    assert item == {
        "group": "g",
        "verdict": ERR,
        "topic": "t",
        "partition": 0,
        "status": STALL,
        "why": "5 commits within 400 s are all of offset 1000, 100 records behind",
        "commits": 5,
        "lag": 100,
        "last_commit_ms": 500_000,
    }


def test_sentence_counts_the_groups_and_the_worst_decides() -> None:
    assert judge_all({"a": OK, "b": ERR, "c": UNKNOWN, "d": OK}) == (
        ERR,
        "4 groups: 1 ERR, 1 UNKNOWN, 2 OK",
    )
    assert judge_all({"a": OK, "c": UNKNOWN})[0] == UNKNOWN
    assert judge_all({})[0] == UNKNOWN
