"""The delivery of a batch that the caller has encoded: one object for all its records."""

from collections.abc import Iterable
from itertools import repeat
from typing import Self

import attrs

from clients.producer.deliveries import RecordMetadata
from clients.producer.shared_waiter import SharedWaiter


@attrs.define(eq=False)
class SharedDelivery(SharedWaiter):
    """Stands for the futures of `remaining` records; it is done when all of them are.

    A batch may be split, so that some of its records are delivered and others fail. The sender's
    thread sets the results, another one may read them.
    """

    remaining: int
    first: RecordMetadata | None = None
    """Where the record is that was delivered first."""
    error: Exception | None = None
    """The first failure of a record."""

    def done(self) -> bool:
        """Return whether every record was delivered or has failed."""
        return self.remaining == 0

    def set_results(self, first: RecordMetadata, count: int) -> None:
        """Count records that were delivered."""
        if self.first is None:
            self.first = first
        self.remaining -= count

    def set_exceptions(self, error: Exception, count: int) -> None:
        """Count records that were given up."""
        if self.error is None:
            self.error = error
        self.remaining -= count

    def parts(self, count: int) -> Iterable[Self]:
        """Return this for each record."""
        return repeat(self, count)
