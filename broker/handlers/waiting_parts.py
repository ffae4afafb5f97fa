"""The parts of a request that wait for their partitions, each looked at when its own one moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Generic, Protocol, TypeVar

import attrs

from broker.network.dispatch import Outcome
from protocol.topic_partition import TopicPartition


class WaitingPart(Protocol):
    """One partition's part of a request."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that it waits for."""


P = TypeVar("P", bound=WaitingPart)


@attrs.define(eq=False)
class WaitingParts(Generic[P]):
    """The parts that wait, by partition. A `Wait` under keys of their partitions has its methods.

    `is_done(part)` may append, and wake this request by that. `end_late` ends a part whose time is
    up, `respond` makes the response when no part waits any more.
    """

    waiting: dict[TopicPartition, list[P]]
    is_done: Callable[[P], bool]
    end_late: Callable[[P], None]
    respond: Callable[[], Outcome]
    _moved: set[TopicPartition] = attrs.field(factory=set)
    _is_trying: bool = False

    @classmethod
    def of(
        cls,
        parts: Sequence[P],
        is_done: Callable[[P], bool],
        end_late: Callable[[P], None],
        respond: Callable[[], Outcome],
    ) -> WaitingParts[P]:
        """Group parts by partition: a request may name one more than once."""
        waiting: dict[TopicPartition, list[P]] = {}
        for part in parts:
            waiting.setdefault(part.topic_partition, []).append(part)
        return cls(waiting, is_done, end_late, respond)

    def note_moved(self, key: Any) -> None:
        """Look at the key's partition with the next try."""
        _, topic_partition = key
        self._moved.add(topic_partition)

    def try_complete(self, expired: bool) -> Outcome | None:
        """Respond if nothing is left to wait for, or the time is up."""
        # An append in here moves its partition again, which the try that is running looks at.
        if self._is_trying:
            return None
        self._is_trying = True
        try:
            self._look_at_moved(all_of_them=expired)
        finally:
            self._is_trying = False
        if self.waiting and not expired:
            return None

        # What is appended stays appended: the client may not know.
        for part in chain.from_iterable(self.waiting.values()):
            self.end_late(part)
        return self.respond()

    def _look_at_moved(self, *, all_of_them: bool) -> None:
        # Nothing says what has moved, or the time is up.
        if all_of_them or not self._moved:
            self._moved.update(self.waiting)

        # Looking may append, and an append moves partitions again.
        while self._moved:
            topic_partition = self._moved.pop()
            parts = self.waiting.pop(topic_partition, [])
            left = [part for part in parts if not self.is_done(part)]
            if left:
                self.waiting[topic_partition] = left
