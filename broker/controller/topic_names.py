"""Check the names of new topics.

Two names that differ only in `.` and `_` would have the same metrics in Kafka. Such names
*collide*, and a topic is not created beside one with a colliding name.
"""

from __future__ import annotations

from collections.abc import Iterable

from protocol.errors import ApiError, ErrorCode
from protocol.topic_name import explain_illegal


class TopicNames:
    """A set of names that finds a colliding name in constant time."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        # By folded name; a dict of names instead of a set, so that they keep their order.
        self._by_folded: dict[str, dict[str, None]] = {}
        for name in names:
            self.add(name)

    def __contains__(self, name: str) -> bool:
        return name in self._by_folded.get(_folded(name), ())

    def add(self, name: str) -> None:
        """Add a name, if it is missing."""
        self._by_folded.setdefault(_folded(name), {})[name] = None

    def discard(self, name: str) -> None:
        """Remove a name, if it is there."""
        names = self._by_folded.get(_folded(name), {})
        names.pop(name, None)
        if not names:
            self._by_folded.pop(_folded(name), None)

    def find_colliding(self, name: str) -> str | None:
        """Return another name that differs from this one only in `.` and `_`, if there is one."""
        names = self._by_folded.get(_folded(name), {})
        return next((other for other in names if other != name), None)


def check_name(name: str, existing: TopicNames) -> None:
    """Refuse an impossible name. Raises ApiError: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS."""
    check_legal(name)
    if name in existing:
        raise already_exists(name)
    if (other := existing.find_colliding(name)) is not None:
        collision = f"Topic '{name}' collides with existing topics: {other}"
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, collision)


def check_legal(name: str) -> None:
    """Refuse a name that no topic can have. Raises ApiError(INVALID_TOPIC_EXCEPTION)."""
    if (reason := explain_illegal(name)) is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def already_exists(name: str) -> ApiError:
    """Return the error for an existing topic, in Kafka's words, which scripts look for."""
    return ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def _folded(name: str) -> str:
    return name.replace(".", "_")
