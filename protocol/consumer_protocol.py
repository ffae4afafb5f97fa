"""Subscriptions and assignments inside JoinGroup and SyncGroup (protocol type `consumer`).

A Subscription is: int16 version, [topic], bytes for the assignor. An Assignment is: int16 version,
[topic, [int32 partition]], bytes for the assignor. Brokers do not read either. Later versions only
append fields, so all of them are read as version 0.
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
    """The partitions assigned to a member; the bytes after them are not read."""

    version: int = wire(INT16)
    topics: Sequence[AssignmentTopic] = wire(Array(AssignmentTopic))


@message()
class Subscription:
    """The topics a member subscribes to; the bytes after them are not read."""

    version: int = wire(INT16)
    topics: Sequence[str] = wire(Array(STRING))


def decode_subscription(buf: Buffer) -> Sequence[str]:
    """Read the topics that a member subscribes to. Raises WireError."""
    subscription: Subscription = decode(Subscription, 0, buf)[0]
    return subscription.topics


def decode_assignment(buf: Buffer) -> tuple[TopicPartition, ...]:
    """Read the partitions of a member, sorted. Raises WireError."""
    if not buf:
        return ()  # the member has no assignment

    assignment, _ = decode(Assignment, 0, buf)
    return tuple(
        sorted(
            TopicPartition(topic.topic, partition_id)
            for topic in assignment.topics
            for partition_id in topic.partitions
        )
    )
