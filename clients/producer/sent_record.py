"""The future of a record that a thread sent."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures._base import FINISHED, RUNNING

from clients.producer.deliveries import RecordMetadata

_lock = threading.Lock()
"""Held to create a condition, and to set a result that nobody waits for."""


class SentRecord(Future[RecordMetadata]):
    """A Future that creates its condition only for a waiter or a callback.

    Most futures are read when they are done, or never, and the condition costs as much as all
    other work for a record. A sent record cannot be cancelled, so it is running from the start.
    """

    def __init__(self) -> None:  # without Future's, which creates the condition
        self._state = RUNNING
        self._result: RecordMetadata | None = None
        self._exception: BaseException | None = None
        self._waiters = []
        self._done_callbacks: list[Callable[[Future[RecordMetadata]], object]] = []
        self._created: threading.Condition | None = None

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        with _lock:
            if self._created is None:
                self._created = threading.Condition()
            return self._created

    def done(self) -> bool:
        """Return whether there is a result or an exception."""
        return self._state == FINISHED

    def set_result(self, result: RecordMetadata) -> None:
        """Set the result, and wake the waiters."""
        # Without a condition nobody waits: two assignments are enough.
        with _lock:
            if self._created is None:
                self._result = result
                self._state = FINISHED
                return

        super().set_result(result)
