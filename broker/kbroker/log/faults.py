"""A fault is a finding of `kbroker log verify`; its outcome is what a starting broker does."""

from __future__ import annotations

from enum import Enum
from typing import Any

from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition


class Outcome(Enum):
    """The effect of a fault on a broker that starts on the directory as it is now."""

    CUT = "cut"
    """The broker truncates the log there; the lost records were never synced."""
    OFF_LINE = "off-line"
    """The lost records were synced; the partition is off-line unless another replica has them."""
    REBUILT = "rebuilt"
    """The broker builds the file from the log."""
    REMOVED = "removed"
    """The broker deletes the file and does without it."""
    IGNORED = "ignored"
    """The broker treats the file or the entry as absent."""
    SPLIT = "split"
    """The broker makes two segments of the one."""
    UNNOTICED = "unnoticed"
    """The broker does nothing until somebody reads there."""
    REFUSED = "refused"
    """The broker does not start with this directory."""


@frozen
class Fault:
    """A defect in `file`, a path below the verified directory.

    `position` is in bytes. `first_offset` and `last_offset`, inclusive, bound the lost records.
    All three are None if there is none or it is unknown.
    """

    partition: TopicPartition | None
    file: str
    description: str
    outcome: Outcome
    position: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None

    def to_item(self) -> dict[str, Any]:
        """Return the fault as a table's item, by the keys of its columns."""
        partition = self.partition
        return {
            "topic": None if partition is None else partition.topic,
            "partition": None if partition is None else partition.partition,
            "file": self.file,
            "position": self.position,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "outcome": self.outcome.value,
            "fault": self.description,
        }


def unreadable_file(partition: TopicPartition | None, file: str, error: OSError) -> Fault:
    """Return the fault of a file that cannot be read, by us or a broker of the same user."""
    description = f"cannot be read: {error.strerror or error}"
    return Fault(partition, file, description, Outcome.OFF_LINE)


@frozen
class VerifiedBytes:
    """A number of bytes of a log that were verified, for the progress display."""

    size_bytes: int


Finding = Fault | VerifiedBytes
