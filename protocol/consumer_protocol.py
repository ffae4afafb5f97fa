"""What consumers put inside JoinGroup and SyncGroup, opaque to brokers (protocol type `consumer`).

A Subscription is: int16 version, [topic], bytes of the assignor's own. An Assignment is: int16
version, [topic, [int32 partition]], bytes of the assignor's own. Later versions only append, so
every one is read as version 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.encoding import Buffer, decode
from protocol.topic_partition import TopicPartition
from protocol.wire import INT16, INT32, STRING, Array, message, nested, wire


@nested
class AssignmentTopic:
    """Partitions of one topic."""

    topic: str = wire(STRING)
    partitions: Sequence[int] = wire(Array(INT32))


@message()
class Assignment:
    """Which partitions a member was given; what follows them is not read."""

    version: int = wire(INT16)
    topics: Sequence[AssignmentTopic] = wire(Array(AssignmentTopic))


@message()
class Subscription:
    """What a member wants to consume; what follows the topics is not read."""

    version: int = wire(INT16)
    topics: Sequence[str] = wire(Array(STRING))


def decode_subscription(buf: Buffer) -> Sequence[str]:
    """The topics a member subscribes to. Raises WireError."""
    subscription: Subscription = decode(Subscription, 0, buf)[0]
    return subscription.topics


def decode_assignment(buf: Buffer) -> tuple[TopicPartition, ...]:
    """The partitions of a member, sorted; none for the empty bytes of a member without assignment.

    Raises WireError.
    """
    if not buf:
        return ()
    assignment, _ = decode(Assignment, 0, buf)
    return tuple(
        sorted(
            TopicPartition(t.topic, partition)
            for t in assignment.topics
            for partition in t.partitions
        )
    )
