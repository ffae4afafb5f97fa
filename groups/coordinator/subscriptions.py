"""Topics that the members of a group subscribe to."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.consumer_protocol import decode_topics
from protocol.primitives import WireError

CONSUMER = "consumer"


def topics_of(protocol_type: str, subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of subscriptions.

    None for members that are no consumers, and if a subscription cannot be decoded.
    """
    if protocol_type != CONSUMER:
        return None

    topics: set[str] = set()
    try:
        for subscription in subscriptions:
            topics.update(decode_topics(subscription))
    except WireError:
        return None
    return frozenset(topics)


def has_same_topics(before: bytes, after: bytes) -> bool:
    """Return whether two subscriptions are to the same topics; False if they cannot be read."""
    try:
        return set(decode_topics(before)) == set(decode_topics(after))
    except WireError:
        return False
