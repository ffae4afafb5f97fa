"""A rebalance as an event of `__group_events`: why it was, who came, who left, what moved.

The coordinator notes bytes and ids while a group rebalances (`membership.history`). They are read
here, outside of its decisions. Where no client has said why it joined again, the cause is inferred:
a leader that joins with the same subscription has seen other partitions than the last time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from groups.coordinator.membership.history import Cause, MemberNote, Rebalanced
from groups.coordinator.subscriptions import CONSUMER
from protocol.consumer_protocol import decode_assignment, decode_topics
from protocol.primitives import WireError
from protocol.topic_partition import TopicPartition

VERSION = 1
COORDINATION = "coordinator"
MAX_GROUPS = 10_000
"""Groups whose numbers of partitions are remembered; beyond it the longest silent is forgotten."""
MAX_LATE = 10
"""Members that an event names as late: those that were latest."""
LATE_MS = 1000
"""Time after the beginning of a rebalance from which on a member that joins is late."""

METADATA_CHANGED = "cached metadata has changed"
"""What Java's leader says when topics have other partitions (KIP-800)."""
SUBSCRIPTION_CHANGED = "subscription has changed"

Counts = Mapping[str, int]
Owners = Mapping[TopicPartition, str]


@attrs.define(eq=False)
class RebalanceEvents:
    """Makes events of rebalances. `count_partitions(topic)` is 0 for a topic that is not there."""

    count_partitions: Callable[[str], int]
    _counts: OrderedDict[str, Counts] = attrs.field(factory=OrderedDict)

    def describe(self, rebalanced: Rebalanced) -> dict[str, Any]:
        """Return the fields of an event. Times are in ms of the wall clock."""
        before = {member.member_id for member in rebalanced.before}
        after = {member.member_id for member in rebalanced.after}
        cause, is_inferred = self._find_cause(rebalanced)
        moved, kept = _count_moves(rebalanced)
        trigger = rebalanced.trigger
        return {
            "version": VERSION,
            "group": rebalanced.group_id,
            "coordination": COORDINATION,
            "generation_before": rebalanced.generation_before,
            "generation_after": rebalanced.generation_after,
            "trigger": cause.value,
            "member_id": trigger.member_id or None,
            "client_id": trigger.client_id or None,
            "reason": trigger.reason,
            "started_ms": rebalanced.started_ms,
            "ended_ms": rebalanced.ended_ms,
            "members_added": sorted(after - before),
            "members_gone": sorted(before - after),
            "members_kept": sorted(before & after),
            "late": _find_late(rebalanced),
            "partitions_moved": moved,
            "partitions_kept": kept,
            "inferred": is_inferred,
        }

    # ---- why

    def _find_cause(self, rebalanced: Rebalanced) -> tuple[Cause, bool]:
        """Return the cause, and whether it is inferred."""
        last = self._counts.get(rebalanced.group_id)
        now = self._count(rebalanced)
        cause = rebalanced.trigger.cause
        reason = rebalanced.trigger.reason or ""

        # What the client has said, or the coordinator has seen.
        says_metadata = reason.startswith(METADATA_CHANGED)
        if cause not in (Cause.LEADER_REJOINED, Cause.SUBSCRIPTION_CHANGED):
            return cause, rebalanced.trigger.is_inferred
        if reason.startswith(SUBSCRIPTION_CHANGED):
            return Cause.SUBSCRIPTION_CHANGED, False

        # What the topics say: only they can have made a leader join again without a change.
        if says_metadata or cause is Cause.LEADER_REJOINED:
            changed = _compare(last, now)
            if changed is not None:
                return changed, True
        return cause, rebalanced.trigger.is_inferred

    def _count(self, rebalanced: Rebalanced) -> Counts | None:
        """Count the partitions of the group's topics, and remember that for the next time."""
        topics = _topics_of(rebalanced.after or rebalanced.before, rebalanced.protocol_type)
        if topics is None:
            return None

        counts = {topic: self.count_partitions(topic) for topic in topics}
        self._counts[rebalanced.group_id] = counts
        self._counts.move_to_end(rebalanced.group_id)
        if len(self._counts) > MAX_GROUPS:
            self._counts.popitem(last=False)
        return counts


def _compare(last: Counts | None, now: Counts | None) -> Cause | None:
    """Return what became of the topics between two generations; None if nothing did."""
    if last is None or now is None:
        return None
    if any(last[topic] and not now.get(topic) for topic in last):
        return Cause.TOPIC_DELETED
    if any(now[topic] > last.get(topic, 0) for topic in now):
        return Cause.PARTITIONS_ADDED
    return None


def _topics_of(members: Iterable[MemberNote], protocol_type: str) -> set[str] | None:
    """Return the topics that members subscribe to; None if they cannot be known."""
    if protocol_type != CONSUMER:
        return None
    topics: set[str] = set()
    try:
        for metadata in {member.metadata for member in members}:
            topics.update(decode_topics(metadata))
    except WireError:
        return None
    return topics


# ---- who was late


def _find_late(rebalanced: Rebalanced) -> list[dict[str, Any]]:
    """Return the members for which the others waited, the latest first.

    `late_ms` counts from the beginning; it is None for those that did not come at all.
    """
    clients = {member.member_id: member.client_id for member in rebalanced.before}
    clients |= {member.member_id: member.client_id for member in rebalanced.after}
    late: list[dict[str, Any]] = [
        {"member_id": member_id, "client_id": clients.get(member_id), "late_ms": None}
        for member_id in rebalanced.timed_out
    ]

    # Those that came, from the latest on.
    joined = sorted(rebalanced.joined_ms.items(), key=lambda item: item[1], reverse=True)
    for member_id, joined_ms in joined:
        late_ms = joined_ms - rebalanced.started_ms
        if late_ms >= LATE_MS and member_id not in rebalanced.timed_out:
            client_id = clients.get(member_id)
            late.append({"member_id": member_id, "client_id": client_id, "late_ms": late_ms})
    return late[:MAX_LATE]


# ---- what moved


def _count_moves(rebalanced: Rebalanced) -> tuple[int | None, int | None]:
    """Return how many partitions have another owner, and how many the same; None if not known."""
    if rebalanced.protocol_type != CONSUMER or not rebalanced.is_assigned:
        return None, None
    try:
        before = _owners(rebalanced.before)
        after = _owners(rebalanced.after)
    except WireError:
        return None, None

    kept = sum(1 for partition, owner in after.items() if before.get(partition) == owner)
    return len(after) - kept, kept


def _owners(members: Iterable[MemberNote]) -> Owners:
    return {
        # A static member is the same one after a restart.
        partition: member.group_instance_id or member.member_id
        for member in members
        for partition in decode_assignment(member.assignment).partitions
    }
