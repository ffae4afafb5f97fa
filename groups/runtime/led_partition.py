"""Runtime state of one partition that this broker leads: its shard, and what is in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs

from groups.runtime.journal import Journal
from groups.runtime.shard import Shard
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    import asyncio

S = TypeVar("S", bound=Shard)


@attrs.define(eq=False)
class LedPartition(Generic[S]):
    """One partition of the topic.

    `refusal`: the error for its requests; NONE once it is served. `in_flight_until`: the end of the
    batch in flight; None if there is none. `is_held_up`: the log takes no appends now.
    `loaded_until`: where the load ended, until all of that is replicated.
    """

    partition: int
    journal: Journal
    shard: S
    refusal: ErrorCode = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    in_flight_until: int | None = None
    is_held_up: bool = False
    loaded_until: int | None = None
    failed_appends: int = 0
    timers: dict[Any, asyncio.TimerHandle] = attrs.field(factory=dict)

    def check(self) -> None:
        """Assert what must hold after each step."""
        in_flight = self.in_flight_until is not None
        assert in_flight == self.journal.has_in_flight
        assert self.loaded_until is None or self.refusal
        assert not (in_flight and self.refusal), "nothing is written before it is served"
