"""Runtime state of one partition that this broker leads: its shard, and what is in flight."""

from __future__ import annotations

from typing import Generic, TypeVar

import attrs

from groups.event_timers import EventTimers
from groups.runtime.journal import Entry, Journal
from groups.runtime.shard import Shard
from protocol.errors import ErrorCode

S = TypeVar("S", bound=Shard)


@attrs.define(eq=False)
class LedPartition(Generic[S]):
    """One partition of the topic.

    - `refusal`: the error for its requests; NONE while it is served.
    - `in_flight_until`: end offset of the batch in flight; None if there is none.
    - `is_held_up`: the log takes no appends now.
    - `untimed`: appends with a time limit that does not count yet: most end at once.
    - `ending`: number of calls in progress that end entries; checks wait for them.
    - `loaded_until`: end offset of the load, until all below it is replicated; else None.
    """

    partition: int
    journal: Journal
    shard: S
    refusal: ErrorCode = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    in_flight_until: int | None = None
    is_held_up: bool = False
    loaded_until: int | None = None
    failed_appends: int = 0
    untimed: list[Entry] = attrs.field(factory=list)
    ending: int = 0
    timers: EventTimers = attrs.field(init=False)

    @property
    def is_appending(self) -> bool:
        """True while the log takes a batch: its end is not known yet."""
        return self.in_flight_until is None and self.journal.has_in_flight

    def check(self) -> None:
        """Assert what must hold between two steps. For tests: this walks all state."""
        is_writing = self.in_flight_until is not None
        assert is_writing == self.journal.has_in_flight, "a batch in flight has an end offset"
        assert self.loaded_until is None or self.refusal, "it is served before all is replicated"
        assert not (is_writing and self.refusal), "nothing is written before it is served"
        self.shard.check([entry.append.records for entry in self.journal.unfinished()])
