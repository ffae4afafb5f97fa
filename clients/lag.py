"""How far a group is behind on one partition: one definition for every table, metric and check.

The rules are those monitors have converged on after years of bugs:

- nothing committed and an empty log: lag 0, there is nothing to read;
- nothing committed but data: lag unknown (`-`). Totals count the whole log for a partition that a
  member holds (it will have to read it), nothing for one that nobody holds;
- committed below the log start (retention overtook the group): the missing records cannot be
  read any more, so lag counts from the log start, and the position is flagged;
- committed beyond the log end (the log was truncated or recreated): `lag` keeps the negative
  number for programs, `shown` is 0 for people, and the position is flagged.
"""

from enum import Enum

import attrs


class Position(Enum):
    """Where a committed offset stands relative to the log."""

    NONE = "none"
    IN_RANGE = "in-range"
    BELOW_LOG_START = "below-log-start"
    BEYOND_LOG_END = "beyond-log-end"
    UNKNOWN = "unknown"
    """The log's end could not be read (no leader)."""


@attrs.frozen
class Lag:
    """`lag` in records; None when it cannot be said."""

    lag: int | None
    position: Position
    behind_if_assigned: int
    """What a total counts for this partition when a member of the group holds it."""

    @property
    def shown(self) -> int | None:
        """For people: never negative."""
        return None if self.lag is None else max(self.lag, 0)

    def counted(self, assigned: bool) -> int:
        """What a sum over partitions adds for this one."""
        return (
            (self.shown or 0) if self.lag is not None or not assigned else self.behind_if_assigned
        )


def lag_of(committed: int | None, log_start_offset: int | None, log_end_offset: int | None) -> Lag:
    """Lag of one partition.

    `committed` is the next offset to read; None or negative means nothing is committed.
    `log_end_offset` is the high watermark, or the last stable offset for a read_committed group.
    Offsets that could not be read are None.
    """
    has_commit = committed is not None and committed >= 0
    if log_end_offset is None:
        return Lag(None, Position.UNKNOWN if has_commit else Position.NONE, 0)
    start = log_start_offset or 0
    if committed is None or committed < 0:
        held = log_end_offset - start
        return Lag(0 if held == 0 else None, Position.NONE, held)
    if committed > log_end_offset:
        return Lag(log_end_offset - committed, Position.BEYOND_LOG_END, 0)
    behind = log_end_offset - max(committed, start)
    position = Position.BELOW_LOG_START if committed < start else Position.IN_RANGE
    return Lag(behind, position, behind)
