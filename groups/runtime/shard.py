"""The part that a coordinator provides: the state of one partition of its topic, and its rules.

A shard knows no log, no network and no clock. Stored state changes only in `replay` and
`end_transaction`. Loading and serving both call them with each record once, in log order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

EncodedRecord = tuple[bytes, bytes | None]
"""Key and value, as they are in the log."""

NO_PRODUCER = -1


class MalformedRecord(ValueError):
    """The shard cannot read a record; the text says why."""


class Shard(Protocol):
    """The state of one partition. The runtime makes a new one for each load.

    The rules are a function beside it, `decide(shard, event, now_ms)`. They read the state, and may
    change only the part of it that is not stored.
    """

    # ---- writing

    def encode(self, records: Sequence[Any]) -> list[EncodedRecord]:
        """Encode the records of an Append."""

    def begin_write(self, records: Sequence[Any]) -> None:
        """Note that records of an Append are in flight: accepted, and not replayed yet."""

    def end_write(self, records: Sequence[Any]) -> None:
        """Note that records are no longer in flight: they are replayed, or were not written."""

    # ---- replaying, to load and to serve

    def replay(self, records: Iterable[EncodedRecord], producer_id: int = NO_PRODUCER) -> None:
        """Apply records. Those of an open transaction, of `producer_id`, wait for its end.

        Raises MalformedRecord, and is then of no use.
        """

    def end_transaction(self, producer_id: int, is_committed: bool) -> None:
        """Apply the marker that ends a producer's transaction: its records count, or never will."""

    # ---- log lines and checks

    def describe(self) -> str:
        """Describe the shard for a log line: how much it holds."""

    def name(self, event: Any) -> str:
        """Name the subject of an event for a log line: "group orders"."""

    def check(self, unfinished: Sequence[Sequence[Any]]) -> None:
        """Assert what must hold between two steps. `unfinished`: records of appends in flight."""
