"""The future of a record that was sent by a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures._base import FINISHED, RUNNING

from clients.producer.deliveries import RecordMetadata

_making = threading.Lock()
"""Held while a condition is made, and while a result is set that nobody waits for."""


class SentRecord(Future[RecordMetadata]):
    """A Future that makes its condition when somebody waits for it, or asks to be called.

    Most are looked at when they are done, or never, and the condition costs as much as all else
    that is done for a record. What is sent cannot be cancelled, so it is running from the start.
    """

    def __init__(self) -> None:  # not Future's, which makes the condition
        self._state = RUNNING
        self._result: RecordMetadata | None = None
        self._exception: BaseException | None = None
        self._waiters = []
        self._done_callbacks: list[Callable[[Future[RecordMetadata]], object]] = []
        self._made: threading.Condition | None = None

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        with _making:
            if self._made is None:
                self._made = threading.Condition()
            return self._made

    def done(self) -> bool:
        """Whether there is a result, or an exception."""
        return self._state == FINISHED

    def set_result(self, result: RecordMetadata) -> None:
        """Set it, and wake who waits."""
        with _making:
            if self._made is None:
                self._result = result
                self._state = FINISHED
                return
        super().set_result(result)
