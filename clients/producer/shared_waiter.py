"""Wait for many consecutive records of a batch, in the place of a future for each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clients.producer.deliveries import RecordMetadata


class SharedWaiter:
    """Takes the results of one or more consecutive records at once."""

    def set_results(self, first: RecordMetadata, count: int) -> None:
        """Take the place of the first record; the others lie behind it, one offset each."""
        raise NotImplementedError

    def set_exceptions(self, error: Exception, count: int) -> None:
        """Take the reason why records were given up."""
        raise NotImplementedError

    def parts(self, count: int) -> Iterable[SharedWaiter]:
        """Return what waits for each of the records alone."""
        raise NotImplementedError
