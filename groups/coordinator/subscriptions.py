"""What the members of a group subscribe to, as far as their group's record says."""

from __future__ import annotations

from offsets.records import GroupMetadata
from protocol.consumer_protocol import decode_subscription
from protocol.primitives import WireError

CONSUMER = "consumer"


def subscribed_topics(metadata: GroupMetadata) -> frozenset[str] | None:
    """The topics of all members; None where that cannot be known: they are no consumers, are
    between two generations, or what one of them said cannot be read."""
    if metadata.protocol_type != CONSUMER or metadata.protocol is None:
        return None
    topics: set[str] = set()
    try:
        for member in metadata.members:
            topics.update(decode_subscription(member.subscription))
    except WireError:
        return None
    return frozenset(topics)
