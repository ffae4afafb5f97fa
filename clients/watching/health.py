"""Say whether a group consumes, from its commits alone: Burrow's rules. Pure.

The rules look at the commits of a window that ends with the last commit, so that a group that
stopped long ago is judged as well. In this order:

- No lag now: OK.
- STOP: there has been something to consume without a commit for longer than the window's commits
  were apart from first to last.
- No lag at some commit: OK.
- REWIND: an offset was smaller than the one before it.
- STALL: commits go on, and their offset stays the same.
- WARN: offsets grow, and the lag never became smaller.

With fewer than three commits there is nothing to go by: the verdict is UNKNOWN, and never OK.

Source: Burrow, core/internal/evaluator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import attrs

from clients.groups.group_facts import LogOffsets
from clients.groups.lag import lag_of
from clients.watching.commit_history import Commit
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition

OK, WARN, ERR, UNKNOWN = "OK", "WARN", "ERR", "UNKNOWN"
STOP, STALL, REWIND = "STOP", "STALL", "REWIND"
MIN_COMMITS = 3
WINDOW_MS = 600_000

SEVERITY = (OK, UNKNOWN, WARN, ERR)
"""Verdicts of groups, the worst last."""
EXIT_CODES = {OK: 0, WARN: 1, ERR: 2, UNKNOWN: 3}


@frozen
class PartitionHealth:
    """The verdict on a partition, and the numbers that made it."""

    status: str
    why: str
    commits: int
    lag: int | None
    last_commit_ms: int | None


def judge_partition(
    commits: Sequence[Commit],
    log: LogOffsets,
    now_ms: int,
    window_ms: int = WINDOW_MS,
    unread_since_ms: int | None = None,
) -> PartitionHealth:
    """Judge a partition by its commits, in their order. Deletions are left out.

    `unread_since_ms` is when the first record behind the last commit was written, if it is known.
    """
    commits = [commit for commit in commits if commit.offset is not None]
    if not commits:
        return PartitionHealth(UNKNOWN, "it has no commit; is it consumed?", 0, None, None)
    last = commits[-1]
    window = [commit for commit in commits if commit.at_ms >= last.at_ms - window_ms]
    lag = lag_of(last.offset, log).shown
    status, why = _judge(window, lag, now_ms, window_ms, unread_since_ms or last.at_ms)
    # The time of a commit is -1 where only a coordinator tells of it.
    last_commit_ms = last.at_ms if last.at_ms >= 0 else None
    return PartitionHealth(status, why, len(window), lag, last_commit_ms)


def _judge(
    window: Sequence[Commit], lag: int | None, now_ms: int, window_ms: int, unread_since_ms: int
) -> tuple[str, str]:
    if lag is None:
        return UNKNOWN, "the end of its log could not be read; see if it has a leader"
    if len(window) < MIN_COMMITS:
        return UNKNOWN, (
            f"{len(window)} of {MIN_COMMITS} commits within {_seconds(window_ms)} are known; "
            "run `kgroup record` or `kgroup serve`, or take a longer --window"
        )
    if lag == 0:
        return OK, "no lag"

    first, last = window[0], window[-1]
    silent_ms = now_ms - max(last.at_ms, unread_since_ms)
    span_ms = last.at_ms - first.at_ms
    if silent_ms > span_ms:
        return STOP, (
            f"no commit for {_seconds(silent_ms)}, {lag} records behind; before, "
            f"{len(window)} commits within {_seconds(span_ms)}"
        )

    if any(commit.lag == 0 for commit in window):
        return OK, f"{lag} records behind, none at a commit within {_seconds(span_ms)}"

    offsets = [commit.offset for commit in window if commit.offset is not None]
    for before, after in pairwise(offsets):
        if after < before:
            return REWIND, f"the offset went back from {before} to {after}, {lag} records behind"
    if len(set(offsets)) == 1:
        return STALL, (
            f"{len(window)} commits within {_seconds(span_ms)} are all of offset {last.offset}, "
            f"{lag} records behind"
        )

    # Commits whose end nobody saw say nothing of lag.
    lags = [commit.lag for commit in window if commit.lag is not None]
    if len(lags) >= MIN_COMMITS and all(after >= before for before, after in pairwise(lags)):
        return WARN, f"lag went from {lags[0]} to {lags[-1]} within {_seconds(span_ms)}"
    return OK, f"offset went from {offsets[0]} to {offsets[-1]} within {_seconds(span_ms)}"


def judge_group(partitions: Iterable[PartitionHealth]) -> str:
    """Return the verdict on a group: ERR for STOP, STALL and REWIND, else its worst partition."""
    statuses = {partition.status for partition in partitions}
    if statuses & {STOP, STALL, REWIND}:
        return ERR
    for status in (WARN, UNKNOWN):
        if status in statuses:
            return status
    return OK if statuses else UNKNOWN


def health_items(
    group: str,
    commits: Iterable[Commit],
    logs: Mapping[TopicPartition, LogOffsets],
    now_ms: int,
    window_ms: int = WINDOW_MS,
    unread_since_ms: Mapping[TopicPartition, int] | None = None,
) -> list[dict[str, Any]]:
    """Return one item for each partition that has a committed offset, with the group's verdict."""
    by_partition: dict[TopicPartition, list[Commit]] = {}
    for commit in commits:
        by_partition.setdefault(commit.topic_partition, []).append(commit)

    # A partition whose offset was deleted is no longer the group's.
    judged = {
        partition: judge_partition(
            own,
            logs.get(partition, LogOffsets()),
            now_ms,
            window_ms,
            (unread_since_ms or {}).get(partition),
        )
        for partition, own in sorted(by_partition.items())
        if own[-1].offset is not None
    }
    verdict = judge_group(judged.values())
    return [
        {
            "group": group,
            "verdict": verdict,
            "topic": partition.topic,
            "partition": partition.partition,
            "last_commit_ms": health.last_commit_ms,
        }
        | attrs.asdict(health)
        for partition, health in judged.items()
    ]


def judge_all(verdicts: Mapping[str, str]) -> tuple[str, str]:
    """Return the worst verdict of the groups, and a sentence."""
    if not verdicts:
        return UNKNOWN, "no group was found"
    worst = max(verdicts.values(), key=SEVERITY.index)
    counts = [
        f"{sum(1 for verdict in verdicts.values() if verdict == status)} {status}"
        for status in reversed(SEVERITY)
        if status in verdicts.values()
    ]
    noun = "group" if len(verdicts) == 1 else "groups"
    return worst, f"{len(verdicts)} {noun}: {', '.join(counts)}"


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.0f} s"
