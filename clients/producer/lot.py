"""The delivery of records that one call sends: one future for all of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, overload

from clients.errors import RecordsNotDelivered
from clients.producer.deliveries import RecordMetadata
from clients.producer.shared_waiter import SharedWaiter
from protocol.frozen import frozen

if TYPE_CHECKING:
    import asyncio

Result = RecordMetadata | Exception
ResultOfRun = tuple[int, int, Result]
"""The number of the first record, how many there are, and what became of the first of them."""


class Lot:
    """Collects the results of records, and completes `future` when it has all of them."""

    def __init__(
        self, topic: str, count: int, future: asyncio.Future[Sequence[RecordMetadata]]
    ) -> None:
        self._topic = topic
        self._count = count
        self._future = future
        self._remaining = count
        self._runs: list[ResultOfRun] = []
        if not count:
            self._complete()

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> LotRecords:
        """Return what waits for the record of this number, and maybe for those behind it."""
        return LotRecords(self, number)

    def settle(self, number: int, count: int, result: Result) -> None:
        """Take the result of records, once for each. For those behind the first it follows."""
        self._runs.append((number, count, result))
        self._remaining -= count
        if not self._remaining:
            self._complete()

    def fail_from(self, number: int, error: Exception) -> None:
        """Fail the records from this one on, none of which was buffered."""
        self.settle(number, self._count - number, error)

    def _complete(self) -> None:
        # The caller may have cancelled its future.
        if self._future.done():
            return

        self._runs.sort(key=itemgetter(0))
        if any(isinstance(result, Exception) for _, _, result in self._runs):
            results = list(_results(self._runs))
            self._future.set_exception(RecordsNotDelivered(self._topic, results))
            self._future.exception()  # mark as seen: the log and the metrics report it too
        else:
            self._future.set_result(Places(self._runs))


@frozen
class LotRecords(SharedWaiter):
    """Stands for the futures of one or more records of a lot, from `first` on."""

    lot: Lot
    first: int

    def set_results(self, first: RecordMetadata, count: int) -> None:
        """Take the places of the records in the log."""
        self.lot.settle(self.first, count, first)

    def set_exceptions(self, error: Exception, count: int) -> None:
        """Take the reason why the records were given up."""
        self.lot.settle(self.first, count, error)

    def parts(self, count: int) -> Iterable[LotRecords]:
        """Return what waits for each of the records."""
        return [self.lot[number] for number in range(self.first, self.first + count)]


class Places(Sequence[RecordMetadata]):
    """The places of records in the log, made when they are asked for: few callers look at all."""

    def __init__(self, runs: Sequence[ResultOfRun]) -> None:
        self._runs = runs
        self._firsts = [first for first, _, _ in runs]

    def __len__(self) -> int:
        return sum(count for _, count, _ in self._runs)

    @overload
    def __getitem__(self, index: int) -> RecordMetadata: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[RecordMetadata]: ...

    def __getitem__(self, index: int | slice) -> RecordMetadata | Sequence[RecordMetadata]:
        if isinstance(index, slice):
            return list(self)[index]

        number = range(len(self))[index]
        first, _, place = self._runs[bisect_right(self._firsts, number) - 1]
        assert isinstance(place, RecordMetadata)
        return _behind(place, number - first)

    def __iter__(self) -> Iterator[RecordMetadata]:
        for result in _results(self._runs):
            assert isinstance(result, RecordMetadata)
            yield result

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


def _results(runs: Iterable[ResultOfRun]) -> Iterator[Result]:
    """Yield the result of each record."""
    for _, count, result in runs:
        if isinstance(result, Exception):
            yield from repeat(result, count)
        else:
            for distance in range(count):
                yield _behind(result, distance)


def _behind(place: RecordMetadata, distance: int) -> RecordMetadata:
    """Return the place so many records later; an offset that is not known stays so."""
    if place.offset < 0:
        return place
    return place._replace(offset=place.offset + distance)
