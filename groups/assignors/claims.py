"""Claims of members: the partitions that they say they own, and since which generation.

`sticky` has both in the user data of a subscription, since its members release everything before
they join. Java wrote version 0 of that, without the generation, before 2.3.

`cooperative-sticky` takes the partitions that the subscription itself names. Its generation comes
from the subscription too, if that is of version 2 or later, and else from the user data. Some
clients write the user data of `sticky` there.

User data come from other clients. If it cannot be decoded, the member claims nothing by it.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.consumer_protocol import NO_GENERATION, PartitionsOfTopic, Subscription
from protocol.encoding import decode, encode
from protocol.frozen import frozen
from protocol.primitives import WireError
from protocol.topic_partition import TopicPartition, by_topic
from protocol.wire import INT32, Array, message, wire


@frozen
class Claim:
    """Partitions of a member, and the generation in which it got them; -1 if it is not known."""

    partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = NO_GENERATION


@message(versions="0-1")
class StickyUserData:
    """The user data of `sticky`, which does not say its version."""

    previous_assignment: Sequence[PartitionsOfTopic] = wire(Array(PartitionsOfTopic))
    generation_id: int = wire(INT32, since=1, default=NO_GENERATION)


@message()
class CooperativeUserData:
    """The user data of `cooperative-sticky`."""

    generation_id: int = wire(INT32)


def encode_sticky_data(claim: Claim | None) -> bytes | None:
    """Encode the user data of `sticky`; None before the first assignment."""
    if claim is None:
        return None

    topics = [
        PartitionsOfTopic(topic=topic, partitions=[partition.partition for partition in partitions])
        for topic, partitions in by_topic(claim.partitions)
    ]
    body = StickyUserData(previous_assignment=topics, generation_id=claim.generation_id)
    return encode(body, version=1)


def encode_cooperative_data(claim: Claim | None) -> bytes:
    """Encode the user data of `cooperative-sticky`; with -1 before the first assignment."""
    generation_id = NO_GENERATION if claim is None else claim.generation_id
    return encode(CooperativeUserData(generation_id=generation_id), version=0)


def read_sticky_claim(subscription: Subscription) -> Claim:
    """Return what a member of `sticky` claims; its user data alone counts, as for Java."""
    user_data = subscription.user_data
    if not user_data:
        return Claim()

    body = _decode_sticky_data(user_data, 1) or _decode_sticky_data(user_data, 0)
    if body is None:
        return Claim()

    partitions = tuple(
        TopicPartition(topic.topic, number)
        for topic in body.previous_assignment
        for number in topic.partitions
    )
    return Claim(partitions, body.generation_id)


def read_cooperative_claim(subscription: Subscription) -> Claim:
    """Return what a member of `cooperative-sticky` claims."""
    generation_id = subscription.generation_id
    if generation_id < 0 and subscription.user_data:
        generation_id = _decode_generation(subscription.user_data)
    return Claim(subscription.owned_partitions, generation_id)


def _decode_sticky_data(user_data: bytes, version: int) -> StickyUserData | None:
    body: StickyUserData
    try:
        body, _ = decode(StickyUserData, version, user_data)
    except WireError:
        return None
    return body


def _decode_generation(user_data: bytes) -> int:
    # The data of `sticky` are longer than a number. Read as one, they would give the number of
    # topics for a generation.
    sticky_data = _decode_sticky_data(user_data, 1)
    if sticky_data is not None:
        return sticky_data.generation_id

    body: CooperativeUserData
    try:
        body, _ = decode(CooperativeUserData, 0, user_data)
    except WireError:
        return NO_GENERATION
    return body.generation_id
