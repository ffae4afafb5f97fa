"""Say whether a group consumes, from its commits alone: Burrow's rules, and ours. Pure.

The rules look at the commits of a window that ends with the last commit, so that a group that
stopped long ago is judged as well. They are the table RULES: the first whose condition holds is the
verdict. With fewer than three commits there is nothing to go by: it is UNKNOWN, and OK only where
all is read and no other commits are to be expected.

Source: Burrow, core/internal/evaluator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import attrs

from clients.groups.group_facts import LogOffsets
from clients.groups.group_view import WHY_UNOWNED
from clients.groups.lag import ADVICE, REASONS, Position, age_of, lag_of
from clients.watching.commit_history import Commit
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition

OK, WARN, ERR, UNKNOWN = "OK", "WARN", "ERR", "UNKNOWN"
STOP, STALL, REWIND, DROPPED = "STOP", "STALL", "REWIND", "DROPPED"
MIN_COMMITS = 3
WINDOW_MS = 600_000
DIP_SHARE = 50
"""A lag that falls by less than a fiftieth of what it grew in all has only grown."""

SEVERITY = (OK, UNKNOWN, WARN, ERR)
"""Verdicts of groups, the worst last."""
EXIT_CODES = {OK: 0, WARN: 1, ERR: 2, UNKNOWN: 3}


@frozen
class Case:
    """What the rules look at: the commits of the window, and what there is to consume now."""

    commits: Sequence[Commit]
    lag: int | None
    now_ms: int
    window_ms: int
    unread_since_ms: int | None
    """When the first record behind the last commit was written, if it is known."""
    is_subscribed: bool
    position: Position
    log: LogOffsets

    @property
    def count(self) -> int:
        """The number of commits."""
        return len(self.commits)

    @property
    def is_seen_when_it_moves(self) -> bool:
        """True if no record tells of the last commit, but of its time: the next is another offset.

        So it is in ZooKeeper, where members write what has changed, and where groups are asked.
        """
        # A partition where nothing comes never has more commits (fault strangers-117, was: False).
        return self.commits[-1].place < 0 <= self.commits[-1].at_ms

    @property
    def span_ms(self) -> int:
        """The time from the first commit to the last one."""
        return self.commits[-1].at_ms - self.commits[0].at_ms

    @property
    def silent_ms(self) -> int:
        """The time since the last commit in which there was something to consume."""
        silent_ms = self.now_ms - self.commits[-1].at_ms
        unread_ms = None
        if self.unread_since_ms is not None:
            unread_ms = age_of(self.unread_since_ms, self.now_ms)
        return silent_ms if unread_ms is None else min(silent_ms, unread_ms)

    @property
    def offsets(self) -> list[int]:
        """The offsets that were committed."""
        return [commit.offset for commit in self.commits if commit.offset is not None]

    @property
    def lags(self) -> list[int]:
        """The lags at the commits; those whose end nobody saw say nothing."""
        lags = map(self._lag_at, self.commits)
        return [lag for lag in lags if lag is not None]

    def _lag_at(self, commit: Commit) -> int | None:
        """Return the lag at a commit; None if it is not known."""
        unread_ms = self.unread_since_ms
        is_last = commit.offset == self.commits[-1].offset
        if commit.lag is None and is_last and unread_ms and 0 <= commit.at_ms < unread_ms:
            # What is unread since was not there yet (fault strangers-156, was: None).
            return 0
        return commit.lag

    @property
    def rewind(self) -> tuple[int, int] | None:
        """The first offset that is smaller than the one before it, behind that one."""
        steps = pairwise(self.offsets)
        return next(((before, after) for before, after in steps if after < before), None)

    @property
    def grows(self) -> bool:
        """True if the lag never became smaller, but for dips, as far as it was seen.

        Which commits are seen differs from look to look, and a producer pauses now and then.
        """
        lags = self.lags
        if len(lags) < MIN_COMMITS:
            return False
        deepest = max(most - lag for most, lag in zip(accumulate(lags, max), lags, strict=True))
        # Burrow takes the least one for a recovery (fault strangers-112, was: 0).
        most_dip = max(0, lags[-1] - lags[0]) // DIP_SHARE
        return deepest <= most_dip

    # What sentences say: they have no negative index, and no function.

    @property
    def last_offset(self) -> int:
        """The offset of the last commit."""
        return self.offsets[-1]

    @property
    def last_lag(self) -> int:
        """The lag at the last commit of which it is known."""
        return self.lags[-1]

    @property
    def is_overtaken(self) -> bool:
        """Return whether retention has deleted the record at the last offset."""
        return self.position is Position.BELOW_LOG_START

    @property
    def span(self) -> str:
        """The text of `span_ms`."""
        return _seconds(self.span_ms)

    @property
    def silence(self) -> str:
        """The text of `silent_ms`."""
        return _seconds(self.silent_ms)

    @property
    def window(self) -> str:
        """The text of `window_ms`."""
        return _seconds(self.window_ms)


NO_COMMIT = "it has no commit; is it consumed?"
UNOWNED = f"it has records, and no member owns it: {WHY_UNOWNED}"


class Rule(NamedTuple):
    """A condition, the status of a partition for which it holds, and why; `c` is the Case."""

    holds: Callable[[Case], bool]
    status: str
    why: str


OVERTAKEN = (
    "its offset {c.last_offset} is before the log's start {c.log.start}: "
    f"{REASONS[Position.BELOW_LOG_START]}; {ADVICE[Position.BELOW_LOG_START]}"
)

RULES = (
    # Its members read all that they subscribe to.
    Rule(
        lambda c: not c.is_subscribed,
        DROPPED,
        "no member subscribes to it any longer; its offset expires offsets.retention.minutes "
        "after its commit",
    ),
    # Nothing can be told.
    Rule(lambda c: not c.commits, UNKNOWN, NO_COMMIT),
    Rule(
        lambda c: c.lag is None,
        UNKNOWN,
        "the end of its log could not be read; see if its topic is there, and has a leader",
    ),
    # A consumer does not go on where it was.
    Rule(
        lambda c: c.position is Position.BEYOND_LOG_END,
        WARN,
        "its offset {c.last_offset} is beyond the log's end {c.log.end}: "
        f"{REASONS[Position.BEYOND_LOG_END]}; {ADVICE[Position.BEYOND_LOG_END]}",
    ),
    Rule(lambda c: c.is_overtaken and (c.lag == 0 or c.count < MIN_COMMITS), WARN, OVERTAKEN),
    # Nothing is left to consume, and no more commits are to come.
    Rule(lambda c: c.lag == 0 and c.is_seen_when_it_moves, OK, "no lag"),
    Rule(
        lambda c: c.count < MIN_COMMITS,
        UNKNOWN,
        f"{{c.count}} of {MIN_COMMITS} commits within {{c.window}} are known; "
        "run `kgroup record` or `kgroup serve`, or take a longer --window",
    ),
    # Nothing is left to consume.
    Rule(lambda c: c.lag == 0, OK, "no lag"),
    # Silence for longer than its commits were apart from first to last.
    Rule(
        lambda c: c.silent_ms > c.span_ms,
        STOP,
        "no commit for {c.silence}, {c.lag} records behind; before, "
        "{c.count} commits within {c.span}",
    ),
    # Commits go on.
    Rule(
        lambda c: 0 in c.lags and not c.is_overtaken,
        OK,
        "{c.lag} records behind, and none at one of {c.count} commits within {c.span}",
    ),
    Rule(
        lambda c: c.rewind is not None,
        REWIND,
        "the offset went back from {c.rewind[0]} to {c.rewind[1]}, {c.lag} records behind",
    ),
    Rule(
        lambda c: len(set(c.offsets)) == 1,
        STALL,
        "{c.count} commits within {c.span} are all of offset {c.offsets[0]}, "
        "{c.lag} records behind",
    ),
    Rule(
        lambda c: c.grows,
        WARN,
        "lag went from {c.lags[0]} to {c.last_lag} within {c.span}",
    ),
    # Growing offsets do not say what was between them.
    Rule(lambda c: c.is_overtaken, WARN, OVERTAKEN),
    Rule(lambda c: True, OK, "offset went from {c.offsets[0]} to {c.last_offset} within {c.span}"),
)
"""The verdict is that of the first rule that holds."""


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
    is_subscribed: bool = True,
) -> PartitionHealth:
    """Judge a partition by its commits, in their order: those since its offset was deleted last.

    `unread_since_ms` is when the first record behind the last commit was written, if it is known.
    `is_subscribed` is False if the group has members, and none of them subscribes to the topic.
    """
    deletions = [number for number, commit in enumerate(commits) if commit.offset is None]
    # Before that it was another topic's, or another life of the group (fault tool-F10).
    if deletions:
        commits = commits[deletions[-1] + 1 :]

    commits = [commit for commit in commits if commit.offset is not None]
    last = commits[-1] if commits else None
    lag = lag_of(last.offset if last else None, log)
    # What is dated after the last one was so by a clock that was set since, and makes no span.
    case = Case(
        [c for c in commits if last and last.at_ms - window_ms <= c.at_ms <= last.at_ms],
        lag.shown if last else None,
        now_ms,
        window_ms,
        unread_since_ms,
        is_subscribed,
        lag.position,
        log,
    )
    rule = next(rule for rule in RULES if rule.holds(case))

    # The time of a commit is -1 where only a coordinator tells of it.
    last_commit_ms = last.at_ms if last is not None and last.at_ms >= 0 else None
    return PartitionHealth(
        rule.status, rule.why.format(c=case), case.count, case.lag, last_commit_ms
    )


def judge_group(partitions: Iterable[PartitionHealth]) -> str:
    """Return the verdict on a group: ERR for STOP, STALL and REWIND, else its worst partition.

    What it no longer subscribes to says nothing of it.
    """
    statuses = {partition.status for partition in partitions} - {DROPPED}
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
    subscribed: frozenset[str] | None = None,
    unowned: Collection[TopicPartition] = (),
    owned: Collection[TopicPartition] = (),
) -> list[dict[str, Any]]:
    """Return one item for each partition that has a committed offset, with the group's verdict.

    `subscribed` are the topics that its members subscribe to; None if that is not known. Those of
    the `unowned`, which no member owns, and of the `owned`, that have records and no offset get an
    item too.
    """
    by_partition: dict[TopicPartition, list[Commit]] = {}
    for commit in commits:
        by_partition.setdefault(commit.topic_partition, []).append(commit)

    judged = {}
    for partition, own in sorted(by_partition.items()):
        # A partition whose offset was deleted is no longer the group's.
        if own[-1].offset is None:
            continue

        is_subscribed = True
        # Members that dropped a topic have not stopped to read it by mistake (fault tool-F7).
        if subscribed is not None:
            is_subscribed = partition.topic in subscribed

        judged[partition] = judge_partition(
            own,
            logs.get(partition, LogOffsets()),
            now_ms,
            window_ms,
            (unread_since_ms or {}).get(partition),
            is_subscribed,
        )
    without = dict.fromkeys(unowned, PartitionHealth(WARN, UNOWNED, 0, None, None))
    # Who never commits stands still, for all that is known (fault strangers-104).
    without |= dict.fromkeys(owned, PartitionHealth(UNKNOWN, NO_COMMIT, 0, None, None))
    for partition, health in sorted(without.items()):
        log = logs.get(partition, LogOffsets())
        if partition not in judged and (log.end or 0) > (log.start or 0):
            judged[partition] = health
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
