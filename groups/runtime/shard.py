"""What a coordinator provides: the state of one partition of its topic, and its rules.

A shard knows no log, no network and no clock. What is stored changes in `replay` and
`end_transaction` alone. Loading and serving call them alike, with each record once, in log order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

EncodedRecord = tuple[bytes, bytes | None]
"""Key and value, as they are in the log."""

NO_PRODUCER = -1


class MalformedRecord(ValueError):
    """A record that the shard cannot read; the text says why."""


class Shard(Protocol):
    """The state of one partition. The runtime makes a new one for each load.

    The rules are a function beside it, `Decide`. They read the state, and may change in it only
    what is not stored.
    """

    def encode(self, records: Sequence[Any]) -> list[EncodedRecord]:
        """Encode the records of an Append."""

    def begin_write(self, records: Sequence[Any]) -> None:
        """Take note that records of an Append are in flight: accepted, and not replayed yet."""

    def end_write(self, records: Sequence[Any]) -> None:
        """Take note that records are not in flight any more: replayed, or not written."""

    def replay(self, records: Iterable[EncodedRecord], producer_id: int = NO_PRODUCER) -> None:
        """Apply records. Those of an open transaction, of `producer_id`, wait for its end.

        Raises MalformedRecord, and is then of no use.
        """

    def end_transaction(self, producer_id: int, is_committed: bool) -> None:
        """Apply the marker that ends a producer's transaction: its records count, or never will."""

    def describe(self) -> str:
        """Say for a line of the log how much the shard holds."""

    def name(self, event: Any) -> str:
        """Say for a line of the log what an event is about: "group orders"."""
