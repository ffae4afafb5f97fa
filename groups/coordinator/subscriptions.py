"""Topics that the members of a group subscribe to, by the group's record."""

from __future__ import annotations

from offsets.records import GroupMetadata
from protocol.consumer_protocol import decode_topics
from protocol.primitives import WireError

CONSUMER = "consumer"


def subscribed_topics(metadata: GroupMetadata) -> frozenset[str] | None:
    """Return the topics of all members; None if they cannot be known.

    They are unknown for members that are no consumers, between two generations, and if a
    subscription cannot be decoded.
    """
    if metadata.protocol_type != CONSUMER or metadata.protocol is None:
        return None

    topics: set[str] = set()
    try:
        for member in metadata.members:
            topics.update(decode_topics(member.subscription))
    except WireError:
        return None
    return frozenset(topics)


def has_same_topics(before: bytes, after: bytes) -> bool:
    """Return whether two subscriptions are to the same topics; False if they cannot be read."""
    try:
        return set(decode_topics(before)) == set(decode_topics(after))
    except WireError:
        return False
