"""What `kbroker log verify` finds wrong, and what becomes of it when a broker starts."""

from __future__ import annotations

from enum import Enum
from typing import Any

import attrs

from protocol.topic_partition import TopicPartition


class Outcome(Enum):
    """What a broker that starts on the directory, as it is now, makes of a fault."""

    CUT = "cut"
    """The log is cut there: what is lost was never synced, or never acknowledged by a flush."""
    OFF_LINE = "off-line"
    """The partition is off-line, for what is lost was synced; unless another replica has it."""
    REBUILT = "rebuilt"
    """The file is made anew from the log."""
    REMOVED = "removed"
    """The file goes, and others serve."""
    IGNORED = "ignored"
    """The file, or the entry, counts for nothing."""
    SPLIT = "split"
    """The segment is made into two."""
    UNNOTICED = "unnoticed"
    """Nothing, until somebody reads there."""
    REFUSED = "refused"
    """The broker does not start with this directory."""


@attrs.frozen
class Fault:
    """Something wrong in `file`, a path below the directory that was verified.

    `position` is in bytes; `first_offset` and `last_offset`, inclusive, are those of the records
    that are lost. Each is None where there is none, or it cannot be known.
    """

    partition: TopicPartition | None
    file: str
    what: str
    outcome: Outcome
    position: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None

    def item(self) -> dict[str, Any]:
        """As a row under the columns' keys."""
        partition = self.partition
        return {
            "topic": None if partition is None else partition.topic,
            "partition": None if partition is None else partition.partition,
            "file": self.file,
            "position": self.position,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "outcome": self.outcome.value,
            "fault": self.what,
        }


def unreadable(partition: TopicPartition | None, file: str, error: OSError) -> Fault:
    """What cannot be read here, and then by no broker of the same user."""
    what = f"cannot be read: {error.strerror or error}"
    return Fault(partition, file, what, Outcome.OFF_LINE)


@attrs.frozen
class Verified:
    """Bytes of a log that were looked at."""

    size_bytes: int


Found = Fault | Verified
