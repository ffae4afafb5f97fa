"""Members of a group, as the assignors see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from protocol.consumer_protocol import Subscription
from protocol.frozen import frozen
from protocol.java_order import java_order


@frozen
class MemberSubscription:
    """A member and its subscription, as the response to JoinGroup shows them to the leader.

    `group_instance_id` is the name of a static member (KIP-345).
    """

    member_id: str
    subscription: Subscription
    group_instance_id: str | None = None


def sort_members(members: Iterable[MemberSubscription]) -> list[MemberSubscription]:
    """Sort members as Java's clients do: static ones first, by instance id, then by member id.

    A static member that restarts has a new member id. In this order it gets its old share again.
    """
    return sorted(members, key=_place)


def topics_by_member(
    members: Iterable[MemberSubscription], partition_counts: Mapping[str, int]
) -> dict[str, frozenset[str]]:
    """Return for each member, by its id, the topics that it subscribes to and that exist."""
    topics_of: dict[str, frozenset[str]] = {}
    # Most members of a group have the same topics, and then share one set.
    existing: dict[tuple[str, ...], frozenset[str]] = {}

    for member in members:
        topics = member.subscription.topics
        if topics not in existing:
            existing[topics] = frozenset(
                topic for topic in topics if partition_counts.get(topic, 0) > 0
            )
        topics_of[member.member_id] = existing[topics]

    return topics_of


def _place(member: MemberSubscription) -> tuple[bool, bytes]:
    if member.group_instance_id is not None:
        return False, java_order(member.group_instance_id)
    return True, java_order(member.member_id)
