"""The delivery of records that one call sends: one future for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple, cast

from clients.errors import RecordsNotDelivered
from clients.producer.deliveries import RecordMetadata

if TYPE_CHECKING:
    import asyncio


class Lot:
    """Collects the results of records, and completes `future` when it has all of them."""

    def __init__(
        self, topic: str, count: int, future: asyncio.Future[Sequence[RecordMetadata]]
    ) -> None:
        self.results: list[RecordMetadata | Exception | None] = [None] * count
        """By the record's number; None while it is in flight."""
        self._topic = topic
        self._future = future
        self._remaining = count
        if not count:
            self._complete()

    def records(self) -> list[LotRecord]:
        """Return what stands for each record, in order."""
        # A third of the time of LotRecord's own constructor.
        fields = zip(repeat(self), range(len(self.results)))
        return list(map(tuple.__new__, repeat(LotRecord), fields))

    def settle(self, number: int, result: RecordMetadata | Exception) -> None:
        """Take the result of a record."""
        self.results[number] = result
        self._remaining -= 1
        if not self._remaining:
            self._complete()

    def fail_from(self, number: int, error: Exception) -> None:
        """Fail the records from this one on, none of which was buffered."""
        for unbuffered in range(number, len(self.results)):
            self.settle(unbuffered, error)

    def _complete(self) -> None:
        # The caller may have cancelled its future.
        if self._future.done():
            return

        if any(isinstance(result, Exception) for result in self.results):
            self._future.set_exception(RecordsNotDelivered(self._topic, self.results))
            self._future.exception()  # mark as seen: the log and the metrics report it too
        else:
            self._future.set_result(cast(list[RecordMetadata], self.results))


class LotRecord(NamedTuple):
    """Stands for the future of one record of a lot."""

    lot: Lot
    number: int

    def done(self) -> bool:
        """Return whether the record was delivered or has failed."""
        return self.lot.results[self.number] is not None

    def set_result(self, result: RecordMetadata) -> None:
        """Take the record's place in the log."""
        self.lot.settle(self.number, result)

    def set_exception(self, error: Exception) -> None:
        """Take the reason why the record was given up."""
        self.lot.settle(self.number, error)

    def exception(self) -> Exception | None:
        """Return that reason."""
        result = self.lot.results[self.number]
        return result if isinstance(result, Exception) else None
