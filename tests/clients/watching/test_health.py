"""Verdicts on partitions and groups: the cases of Burrow's own tests, and ours."""

import re
from collections.abc import Sequence
from typing import Any

import pytest

from clients.groups.group_facts import LogOffsets
from clients.watching.commit_history import Commit
from clients.watching.health import (
    DROPPED,
    ERR,
    OK,
    REWIND,
    RULES,
    STALL,
    STOP,
    UNKNOWN,
    WARN,
    PartitionHealth,
    Rule,
    health_items,
    judge_all,
    judge_group,
    judge_partition,
)
from protocol.topic_partition import TopicPartition

T0 = TopicPartition("t", 0)
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


# --- the table of rules: a row for each, and at its borders

NONE = [None] * 5
ROWS: list[tuple[str, dict[str, Any], str, str]] = [
    ("no member subscribes to it", {"lag": 9, "is_subscribed": False}, DROPPED, "no member"),
    ("nor has it a leader", {"lag": None, "is_subscribed": False}, DROPPED, "no member"),
    ("all read, and seen when it moves", {"offsets": [3], "lags": [3], "lag": 0}, OK, "no lag"),
    ("one behind", {"offsets": [3], "lags": [0], "lag": 1}, UNKNOWN, "1 of 3 commits"),
    ("no commit", {"offsets": [], "lags": []}, UNKNOWN, "it has no commit"),
    ("no leader", {"lag": None}, UNKNOWN, "could not be read"),
    ("beyond the log's end", {"lag": -1}, WARN, "its offset 5000 is beyond the log's end 4999: "),
    ("so at few commits", {"offsets": [9], "lags": [0], "lag": -9}, WARN, "beyond the log's end 0"),
    (
        "before the start of an empty log",
        {"offsets": [1, 2, 3], "lags": [0] * 3, "lag": 4, "start": 7},
        WARN,
        "its offset 3 is before the log's start 7: ",
    ),
    ("before the start at few commits", {"offsets": [1], "lags": [0], "start": 7}, WARN, "before"),
    ("before the start, silent", {"start": 5002, "now_ms": 900_001}, STOP, "7 records behind"),
    ("before the start, growing", {"lags": NONE, "start": 5002}, WARN, "offset 5000 is before the"),
    (
        "so with no lag at one",
        {"lags": [5, 5, 0, 5, 5], "start": 5002},
        WARN,
        "offset 5000 is before",
    ),
    ("two commits", {"offsets": [1, 2], "lags": [0, 0]}, UNKNOWN, "2 of 3 commits within 600 s"),
    ("three", {"offsets": [1, 2, 3], "lags": [2, 1, 0], "lag": 0}, OK, "no lag"),
    ("no lag, whatever was", {"offsets": BACK, "lag": 0, "now_ms": 10**9}, OK, "no lag"),
    ("silent as long as its commits", {"now_ms": 900_000}, WARN, "lag went from 5 to 5"),
    ("silent for longer", {"now_ms": 900_001}, STOP, "no commit for 400 s, 9 records behind"),
    ("its record is newer", {"now_ms": 900_001, "unread_since_ms": 500_001}, WARN, "lag went"),
    ("its record is of the future", {"now_ms": 900_001, "unread_since_ms": 10**9}, STOP, "400 s"),
    ("its record is older", {"now_ms": 900_001, "unread_since_ms": 400_000}, STOP, "no commit"),
    ("silent, no lag at a commit", {"lags": [0] * 5, "now_ms": 900_001}, STOP, "no commit"),
    (
        "no lag at a commit",
        {"lags": [5, 5, 0, 5, 5]},
        OK,
        "9 records behind, and none at one of 5 commits",
    ),
    ("one record at least", {"lags": [5, 5, 1, 1, 1]}, OK, "offset went from 1000 to 5000"),
    ("back, no lag at a commit", {"offsets": BACK, "lags": [5, 5, 0, 5, 5]}, OK, "none at one of"),
    ("back", {"offsets": BACK}, REWIND, "the offset went back from 3000 to 2000, 9 records"),
    ("back by one", {"offsets": [5, 6, 7, 6, 7]}, REWIND, "the offset went back from 7 to 6"),
    ("of one offset", {"offsets": SAME}, STALL, "5 commits within 400 s are all of offset 1000"),
    ("but for the last", {"offsets": [1, 1, 1, 1, 2]}, WARN, "lag went from 5 to 5"),
    ("of one offset, ends unknown", {"offsets": SAME, "lags": NONE}, STALL, "5 commits within"),
    ("lag never smaller", {"lags": [5, 5, 6, 6, 7]}, WARN, "lag went from 5 to 7 within 400 s"),
    ("lag smaller once", {"lags": [5, 6, 7, 6, 8]}, OK, "offset went from 1000 to 5000"),
    ("a dip of little", {"lags": [75, 1836, 1832, 5000, 7200]}, WARN, "lag went from 75 to 7200"),
    ("dips that add up", {"lags": [50, 900, 890, 880, 950]}, OK, "offset went from 1000 to 5000"),
    ("three lags are known", {"lags": [5, None, 6, None, 7]}, WARN, "lag went from 5 to 7"),
    ("two lags are known", {"lags": [5, None, None, None, 7]}, OK, "offset went from 1000 to"),
    ("no lag is known", {"lags": NONE}, OK, "offset went from 1000 to 5000 within 400 s"),
]


def judge(given: dict[str, Any]) -> PartitionHealth:
    """Judge five commits within 400 s and a lag of 9, unless a row says something else."""
    settings = {"offsets": GROWING, "lags": [5] * 5, "lag": 9, "now_ms": 600_000} | given
    own = commits(settings.pop("offsets"), settings.pop("lags"))
    lag, start = settings.pop("lag"), settings.pop("start", 0)
    log = LogOffsets()
    if lag is not None:
        log = LogOffsets(start, lag + ((own[-1].offset or 0) if own else 0))
    return judge_partition(own, log, **settings)


@pytest.mark.fault("strangers-2")
@pytest.mark.fault("strangers-112")
@pytest.mark.fault("strangers-117")
@pytest.mark.parametrize(
    ("given", "status", "why"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_verdict_is_that_of_the_first_rule_that_holds(
    given: dict[str, Any], status: str, why: str
) -> None:
    judged = judge(given)
    assert judged.status == status
    assert why in judged.why


def test_each_rule_has_a_row() -> None:
    def like(rule: Rule) -> re.Pattern[str]:
        return re.compile(".*".join(map(re.escape, re.split(r"{.*?}", rule.why))))

    reached = [
        {rule.why for _, given, _, _ in ROWS if like(rule).match(judge(given).why)}
        for rule in RULES
    ]
    assert reached == [{rule.why} for rule in RULES]


# --- a deletion between commits


@pytest.mark.fault("tool-F10")
def test_commits_before_a_deletion_are_those_of_another_topic() -> None:
    # It had no lag at a commit, and an offset that is larger.
    deletion = Commit(550_000, "g", "t", 0, None)
    behind = [
        commit._replace(at_ms=commit.at_ms + 500_000) for commit in commits([1, 2, 3], [8, 16, 24])
    ]
    judged = judge_partition(
        [*commits(GROWING, [0] * 5), deletion, *behind], LogOffsets(0, 27), 850_000
    )
    assert (judged.status, judged.commits, judged.lag) == (WARN, 3, 24)


@pytest.mark.fault("tool-F10")
def test_what_is_left_behind_a_deletion_may_be_too_little() -> None:
    deletion = Commit(550_000, "g", "t", 0, None)
    again = Commit(560_000, "g", "t", 0, 1, 9)
    judged = judge_partition(
        [*commits(GROWING, [0] * 5), deletion, again], LogOffsets(0, 9), 600_000
    )
    assert (judged.status, judged.commits) == (UNKNOWN, 1)


# --- subscriptions


@pytest.mark.fault("tool-F7")
def test_a_topic_that_members_have_dropped_is_no_error_of_the_group() -> None:
    kept = [commit._replace(topic="kept") for commit in commits(GROWING, [5, 4, 3, 2, 1])]
    logs = {T0: LogOffsets(0, 9000), TopicPartition("kept", 0): LogOffsets(0, 5001)}
    both = [*commits(GROWING, [5] * 5), *kept]

    def judge(subscribed: frozenset[str] | None) -> dict[str, tuple[str, str]]:
        items = health_items("g", both, logs, 950_000, subscribed=subscribed)
        return {item["topic"]: (item["status"], item["verdict"]) for item in items}

    assert judge(frozenset({"kept"})) == {"kept": (STOP, ERR), "t": (DROPPED, ERR)}
    logs[TopicPartition("kept", 0)] = LogOffsets(0, 5000)
    assert judge(frozenset({"kept"})) == {"kept": (OK, OK), "t": (DROPPED, OK)}
    # Nothing that is left tells of the group.
    assert judge(frozenset({"another"}))["t"] == (DROPPED, UNKNOWN)
    # Without members, or with subscriptions that nobody can read, all is as it was.
    assert judge(None) == {"kept": (OK, ERR), "t": (STOP, ERR)}


# --- few commits, and none


def test_partition_whose_first_unread_record_is_new_has_not_stopped() -> None:
    # 9 and 10 of Burrow's cases: 15 commits a second apart, then 17 s without any.
    window = [Commit(1000 * n, "g", "t", 0, 80 + n, 80 + n) for n in range(15)]
    old = judge_partition(window, LogOffsets(0, 1025), 31_000)
    new = judge_partition(window, LogOffsets(0, 95), 31_000, unread_since_ms=30_500)
    assert (old.status, new.status) == (STOP, OK)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_partition_with_few_commits_is_unknown_and_the_reason_says_what_to_do(count: int) -> None:
    some = [c._replace(place=n) for n, c in enumerate(commits(GROWING, [0] * 5)[:count])]
    judged = judge_partition(some, LogOffsets(0, 1000 * count), 600_000)
    assert judged.status == UNKNOWN
    assert ("kgroup record" in judged.why) == (count > 0)


def test_commits_before_the_window_do_not_count() -> None:
    judged = judge_partition(
        commits(GROWING, [1] * 5), LogOffsets(0, 5001), 600_000, window_ms=150_000
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


@pytest.mark.fault("strangers-156")
@pytest.mark.parametrize(
    ("unread_since_ms", "status"), [(350_000, OK), (100_000, STALL), (None, STALL)]
)
def test_commits_before_the_first_unread_record_had_no_lag(
    unread_since_ms: int | None, status: str
) -> None:
    """`kgroup serve` did not see them, and called a group STALL that `kgroup health` calls OK."""
    unseen = commits(SAME, [None] * 5)
    judged = judge_partition(unseen, LogOffsets(0, 1300), 600_000, unread_since_ms=unread_since_ms)
    assert judged.status == status
