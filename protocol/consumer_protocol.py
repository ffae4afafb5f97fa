"""Subscriptions and assignments inside JoinGroup and SyncGroup (protocol type `consumer`).

Both begin with their version as an int16. Later versions only append fields, so that a version
beyond the known ones is read as the highest of them, and what follows is not read. Brokers need
nothing of it but the topics of a subscription.

| version | a subscription has | since |
|---|---|---|
| 0 | topics, bytes for the assignor | 0.9 |
| 1 | the partitions that the member owns (KIP-429) | 2.4 |
| 2 | the generation in which it got them (KIP-792) | 3.4 |
| 3 | the member's rack (KIP-881) | 3.5 |

An assignment has the same fields in all of them: partitions, and bytes for the assignor.

Source: Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment schemas.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from protocol.encoding import Buffer, decode, encode
from protocol.frozen import frozen
from protocol.primitives import WireError
from protocol.topic_partition import TopicPartition, by_topic
from protocol.wire import BYTES, INT16, INT32, STRING, Array, message, nested, wire

LAST_VERSION = 3
NO_GENERATION = -1
_VERSION_BYTES = 2


@nested
class PartitionsOfTopic:
    """Partitions of one topic."""

    topic: str = wire(STRING)
    partitions: Sequence[int] = wire(Array(INT32))


@message(versions="0-3")
class ConsumerProtocolSubscription:
    """A subscription on the wire, behind its version."""

    topics: Sequence[str] = wire(Array(STRING))
    user_data: bytes | None = wire(BYTES, nullable=0)
    owned_partitions: Sequence[PartitionsOfTopic] = wire(
        Array(PartitionsOfTopic), since=1, default=()
    )
    generation_id: int = wire(INT32, since=2, default=NO_GENERATION)
    rack_id: str | None = wire(STRING, since=3, nullable=3, default=None)


@message(versions="0-3")
class ConsumerProtocolAssignment:
    """An assignment on the wire, behind its version."""

    assigned_partitions: Sequence[PartitionsOfTopic] = wire(Array(PartitionsOfTopic))
    user_data: bytes | None = wire(BYTES, nullable=0)


@message()
class _Topics:
    """The beginning of a subscription of any version."""

    version: int = wire(INT16)
    topics: Sequence[str] = wire(Array(STRING))


@frozen
class Subscription:
    """A member's topics, and what it owns when it joins.

    `user_data` is for the assignor. `generation_id` is the one in which the member got the owned
    partitions; -1 if it is not known.
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = NO_GENERATION
    rack_id: str | None = None


@frozen
class Assignment:
    """The partitions assigned to a member, in the order of the assignor."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


def encode_subscription(subscription: Subscription, version: int = LAST_VERSION) -> bytes:
    """Encode a subscription, its topics and partitions sorted as Java's clients sort them."""
    body = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=_grouped(subscription.owned_partitions),
        generation_id=subscription.generation_id,
        rack_id=subscription.rack_id,
    )
    return version.to_bytes(_VERSION_BYTES, "big") + encode(body, version)


def decode_subscription(buf: Buffer) -> Subscription:
    """Read a subscription of any version. Raises WireError."""
    body: ConsumerProtocolSubscription
    body, _ = decode(ConsumerProtocolSubscription, _read_version(buf), buf, _VERSION_BYTES)
    return Subscription(
        tuple(body.topics),
        body.user_data,
        _flat(body.owned_partitions),
        body.generation_id,
        body.rack_id,
    )


def decode_topics(buf: Buffer) -> Sequence[str]:
    """Read the topics of a subscription, whatever follows them. Raises WireError."""
    subscription: _Topics = decode(_Topics, 0, buf)[0]
    return subscription.topics


def encode_assignment(assignment: Assignment, version: int = LAST_VERSION) -> bytes:
    """Encode an assignment."""
    body = ConsumerProtocolAssignment(
        assigned_partitions=_grouped(assignment.partitions), user_data=assignment.user_data
    )
    return version.to_bytes(_VERSION_BYTES, "big") + encode(body, version)


def decode_assignment(buf: Buffer) -> Assignment:
    """Read an assignment; a member without one has no bytes. Raises WireError."""
    if not buf:
        return Assignment()

    body: ConsumerProtocolAssignment
    body, _ = decode(ConsumerProtocolAssignment, _read_version(buf), buf, _VERSION_BYTES)
    return Assignment(_flat(body.assigned_partitions), body.user_data)


def _read_version(buf: Buffer) -> int:
    """Return the version to read with. Raises WireError."""
    if len(buf) < _VERSION_BYTES:
        raise WireError(f"{len(buf)} bytes have no version")
    version = int.from_bytes(buf[:_VERSION_BYTES], "big", signed=True)
    if version < 0:
        raise WireError(f"version {version} of the consumer protocol")
    return min(version, LAST_VERSION)


def _grouped(partitions: Iterable[TopicPartition]) -> list[PartitionsOfTopic]:
    return [
        PartitionsOfTopic(topic=topic, partitions=[p.partition for p in same_topic])
        for topic, same_topic in by_topic(partitions)
    ]


def _flat(topics: Iterable[PartitionsOfTopic]) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic, partition) for topic in topics for partition in topic.partitions
    )
