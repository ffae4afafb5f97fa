"""The history of one partition, and the requirements after a crash that follow from it.

A `Line` is a log's contents as they went on: an append makes the line longer, a truncation begins
another line that shares the older one's beginning. What is found after a crash has to be a run of
one line that was begun by then, and of no line that a sync has put an end to.

Facts are noted with the number of operations the disk had seen: a thing may be there from its
first operation on, and must be there from its last one on.
"""

from __future__ import annotations

import attrs

NEVER = 2**63 - 1


@attrs.frozen
class Batch:
    """One batch, or message of an older format, as it is in the file."""

    base_offset: int
    last_offset: int
    data: bytes = attrs.field(repr=False)
    timestamp: int
    leader_epoch: int
    appended_ms: int = attrs.field(default=0, eq=False)


# What happened to a partition. Each may show from `at` on, or is certain from `at` on.


@attrs.frozen
class Appended:
    """A batch was appended, and may be there."""

    at: int
    batch: Batch


@attrs.frozen
class Truncated:
    """All from `offset` on may be gone; after it comes what `contents` say."""

    at: int
    offset: int


@attrs.frozen
class Emptied:
    """The log was emptied, and goes on at `offset`."""

    at: int
    offset: int


@attrs.frozen
class Compacted:
    """Batches of these may have taken the place of what was there."""

    at: int
    batches: tuple[Batch, ...]


@attrs.frozen
class Raised:
    """The log may start at `offset`."""

    at: int
    offset: int


@attrs.frozen
class StartKept:
    """The log start has been checkpointed, and is kept once the directory was synced."""

    at: int
    offset: int


@attrs.frozen
class Done:
    """All before this was done, as far as a killed process can leave it."""

    at: int


@attrs.frozen
class Synced:
    """A flush ended: all below `end_offset` at its beginning is on disk."""

    at: int
    end_offset: int
    line: int


@attrs.frozen
class Acknowledged:
    """Up to `end_offset` it was said to be kept."""

    at: int
    end_offset: int


@attrs.frozen
class Making:
    """The partition may be there."""

    at: int


@attrs.frozen
class Made:
    """The partition is there, for good."""

    at: int


@attrs.frozen
class Deleted:
    """The partition may be gone."""

    at: int


@attrs.frozen
class Gone:
    """The partition is gone, for good."""

    at: int


Fact = (
    Appended
    | Truncated
    | Emptied
    | Compacted
    | Raised
    | StartKept
    | Done
    | Synced
    | Acknowledged
    | Making
    | Made
    | Deleted
    | Gone
)


@attrs.define
class Line:
    """Batches in order; `start_offset` is where they go on without any."""

    batches: list[Batch]
    start_offset: int = 0

    @property
    def end_offset(self) -> int:
        """One above the last offset."""
        return self.batches[-1].last_offset + 1 if self.batches else self.start_offset


@attrs.define
class Floor:
    """What must be there: all below `end_offset`, of line number `line` or a later one."""

    line: int = 0
    end_offset: int = 0
    log_start: int = 0

    def cut(self, offset: int) -> None:
        """Only what is below `offset` is still asked for."""
        self.end_offset = min(self.end_offset, offset)
        self.log_start = min(self.log_start, offset)


@attrs.define
class Requirement:
    """The requirements on one partition's log after a crash."""

    lines: list[Line] = attrs.field(factory=lambda: [Line([])])
    if_killed: Floor = attrs.field(factory=Floor)
    without_power: Floor = attrs.field(factory=Floor)
    highest_start: int = 0
    acknowledged_end: int = 0
    must_exist: bool = False
    may_exist: bool = False

    def add(self, fact: Fact, root_syncs: list[int]) -> None:
        """Take the next fact into account."""
        match fact:
            case Appended(_, batch):
                self.lines[-1].batches.append(batch)
            case Truncated(_, offset):
                self._cut(offset)
            case Emptied(_, offset):
                self.lines.append(Line([], offset))
                self.if_killed.cut(0)
                self.without_power.cut(0)
                self.acknowledged_end = 0
                self.highest_start = max(self.highest_start, offset)
            case Compacted(_, batches):
                self.lines.append(Line(list(batches), self.lines[-1].start_offset))
            case Raised(_, offset):
                self.highest_start = max(self.highest_start, offset)
            case StartKept(at, offset):
                self.if_killed.log_start = max(self.if_killed.log_start, offset)
                if any(sync > at for sync in root_syncs):
                    self.without_power.log_start = max(self.without_power.log_start, offset)
            case Done():
                self.if_killed.line = len(self.lines) - 1
                self.if_killed.end_offset = self.lines[-1].end_offset
            case Synced(_, end_offset, line):
                if line == len(self.lines) - 1:
                    self.without_power.line = line
                    self.without_power.end_offset = end_offset
            case Acknowledged(_, end_offset):
                self.acknowledged_end = max(self.acknowledged_end, end_offset)
            case Making():
                self.may_exist = True
            case Made():
                self.must_exist = True
            case Deleted():
                self.must_exist = False
                self.lines.append(Line([]))
                self.if_killed, self.without_power = Floor(), Floor()
                self.acknowledged_end = 0
            case Gone():
                self.may_exist = False
                self.if_killed.line = self.without_power.line = len(self.lines) - 1

    def _cut(self, offset: int) -> None:
        line = self.lines[-1]
        kept = Line([b for b in line.batches if b.last_offset < offset], line.start_offset)
        self.lines.append(kept)
        self.if_killed.cut(kept.end_offset)
        self.without_power.cut(kept.end_offset)
        self.acknowledged_end = min(self.acknowledged_end, kept.end_offset)


@attrs.define(eq=False)
class History:
    """The facts of one partition."""

    facts: list[Fact] = attrs.field(factory=list)

    @property
    def line(self) -> int:
        """The number of the line that is being written."""
        return sum(
            isinstance(fact, Truncated | Emptied | Compacted | Deleted) for fact in self.facts
        )

    def note(self, fact: Fact) -> None:
        """Add what is known now."""
        self.facts.append(fact)

    def requirement(self, at: int, root_syncs: list[int]) -> Requirement:
        """Return the requirements after `at` operations, with the root synced at these."""
        required = Requirement()
        for fact in self.facts:
            if fact.at <= at:
                required.add(fact, [sync for sync in root_syncs if sync <= at])
        return required
