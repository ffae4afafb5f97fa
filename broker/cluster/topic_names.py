"""The names of topics: which of them cannot stand beside each other.

Two names that differ only in `.` and `_` would have the same metrics in Kafka, so a topic is not
created beside such another one.
"""

from __future__ import annotations

from collections.abc import Iterable

from protocol.errors import ApiError, ErrorCode
from protocol.topic_name import explain_illegal


class TopicNames:
    """A set of names that knows which of them collides with another, however many there are."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._by_folded: dict[str, dict[str, None]] = {}
        for name in names:
            self.add(name)

    def __contains__(self, name: str) -> bool:
        return name in self._by_folded.get(_folded(name), ())

    def add(self, name: str) -> None:
        """Take a name in, if it is not there."""
        self._by_folded.setdefault(_folded(name), {})[name] = None

    def discard(self, name: str) -> None:
        """Take a name out, if it is there."""
        same = self._by_folded.get(_folded(name), {})
        same.pop(name, None)
        if not same:
            self._by_folded.pop(_folded(name), None)

    def colliding(self, name: str) -> str | None:
        """Another name that differs from this one only in `.` and `_`."""
        same = self._by_folded.get(_folded(name), {})
        return next((other for other in same if other != name), None)


def check_name(name: str, existing: TopicNames) -> None:
    """Raises ApiError: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS."""
    check_legal(name)
    if name in existing:
        raise already_exists(name)
    if (other := existing.colliding(name)) is not None:
        collision = f"Topic '{name}' collides with existing topics: {other}"
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, collision)


def check_legal(name: str) -> None:
    """Raises ApiError(INVALID_TOPIC_EXCEPTION) for a name that no topic can have."""
    if (fault := explain_illegal(name)) is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)


def already_exists(name: str) -> ApiError:
    """The error for a topic that is there, in the words by which scripts know it."""
    return ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def _folded(name: str) -> str:
    return name.replace(".", "_")
