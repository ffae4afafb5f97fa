"""The lag of a group on one partition: one definition for all tables and metrics.

The rules are those that monitors have converged on after years of bugs:

- No commit and an empty log: lag 0, since there is nothing to read.
- No commit and a log with records: lag unknown (`-`). A total counts the whole log if a member
  holds the partition (it will read it), and nothing otherwise.
- Commit below the log start (retention overtook the group): the missing records can no longer be
  read, so lag counts from the log start, and the position is flagged.
- Nothing but markers of transactions behind the commit: lag 0. Markers have offsets, and a consumer
  does not commit behind them.
- Commit beyond the log end (the log was truncated or recreated): `lag` stays negative for programs,
  `shown` is 0 for people, and the position is flagged. Behind the last stable offset, and not
  behind the log's end, are the commits of a group that reads what is not committed: lag 0.

A position that is flagged is out of range: a consumer goes on where `auto.offset.reset` says.

The lag in time is the age of the first record that is not consumed. The time of a record is its
producer's, whose clock may be ahead: the age of one dated in the future is unknown, and never 0.
"""

from enum import Enum

from clients.groups.group_facts import LogOffsets
from protocol.frozen import frozen

MIN_DIFFERENCE_MS = 60_000
"""Smaller differences between clocks are none: so much may be the time between two looks."""


class Position(Enum):
    """The place of a committed offset relative to the log."""

    NONE = "none"
    IN_RANGE = "in-range"
    BELOW_LOG_START = "below-log-start"
    BEYOND_LOG_END = "beyond-log-end"
    UNKNOWN = "unknown"
    """The log's end could not be read (no leader)."""

    @property
    def flag(self) -> str | None:
        """The value, of a position that people have to know of; else None."""
        return self.value if self in OUT_OF_RANGE else None


OUT_OF_RANGE = {
    Position.BELOW_LOG_START: "before the log's start",
    Position.BEYOND_LOG_END: "beyond the log's end",
}
REASONS = {
    Position.BELOW_LOG_START: "records were deleted unread",
    Position.BEYOND_LOG_END: "the log was truncated, or its topic made again",
}
_ELSEWHERE = "where its auto.offset.reset says, or where `kgroup reset` puts it"
ADVICE = {
    Position.BELOW_LOG_START: f"a consumer goes on {_ELSEWHERE}",
    Position.BEYOND_LOG_END: "a consumer goes on where the log parts from what it read, if it "
    f"committed with a leader epoch (KIP-320), and otherwise {_ELSEWHERE}",
}
"""What to know of a commit that is out of range."""


@frozen
class Lag:
    """The lag in records; None if it is unknown."""

    lag: int | None
    position: Position
    behind_if_assigned: int
    """Count of this partition in a total, if a member of the group holds it."""

    @property
    def shown(self) -> int | None:
        """The lag for people: never negative."""
        return None if self.lag is None else max(self.lag, 0)

    def counted(self, assigned: bool) -> int:
        """Return the count of this partition in a sum over partitions."""
        if self.lag is None and assigned:
            return self.behind_if_assigned
        return self.shown or 0


def next_offset(committed: int | None, log: LogOffsets) -> int | None:
    """Return where a group goes on that has committed this; None if it has not."""
    if committed is None or committed < 0:
        return None

    start = log.start or 0
    # What retention took can no longer be read, nor can anyone be asked about it (fault tool-F4).
    if committed < start:
        return start
    return committed


def lag_of(committed: int | None, log: LogOffsets) -> Lag:
    """Return the lag of one partition.

    `committed` is the next offset to read; None or negative means nothing is committed. The end of
    the log is its high watermark, or its last stable offset for a read_committed group.
    """
    start = next_offset(committed, log)

    # The leader did not respond: there is no end to count to.
    if log.end is None:
        return Lag(None, Position.NONE if start is None else Position.UNKNOWN, 0)

    # Nothing is committed.
    if committed is None or start is None:
        log_length = log.end - (log.start or 0)
        return Lag(0 if log_length == 0 else None, Position.NONE, log_length)

    # The last stable offset is no end for those who read what is not committed.
    if log.end < committed <= (log.high_watermark or 0):
        return Lag(0, Position.IN_RANGE, 0)

    # The log was truncated or created again after the commit.
    if committed > log.end:
        return Lag(log.end - committed, Position.BEYOND_LOG_END, 0)

    behind = log.end - start
    # Markers have offsets, and no consumer commits behind the last ones (fault tool-F5).
    if log.markers_from is not None and start >= log.markers_from:
        behind = 0

    position = Position.BELOW_LOG_START if committed < start else Position.IN_RANGE
    return Lag(behind, position, behind)


def age_of(at_ms: int, now_ms: int) -> int | None:
    """Return how old a record is, in ms; None if it is dated in the future, so nobody can tell.

    One that is dated less than MIN_DIFFERENCE_MS after now is 0 ms old.
    """
    # Whose clock is ahead must not pass for one that is not behind (fault strangers-2).
    if at_ms - now_ms > MIN_DIFFERENCE_MS:
        return None
    return max(now_ms - at_ms, 0)


def time_lag_of(lag: Lag, next_record_ms: int | None, now_ms: int) -> int | None:
    """Return the lag in time, in ms: 0 where nothing is left to read, None where it is not known.

    `next_record_ms` is the time of the first record that is not consumed; None if it is not known.
    """
    if lag.lag == 0:
        return 0
    # Beyond the log's end nothing is left to read, and nobody knows what was.
    if lag.position not in (Position.IN_RANGE, Position.BELOW_LOG_START):
        return None
    return None if next_record_ms is None else age_of(next_record_ms, now_ms)
