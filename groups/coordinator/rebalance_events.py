"""A rebalance as an event of `__group_events`: why it was, who came, who left, what moved.

The coordinator notes bytes and ids while a group rebalances (`membership.history`). They are read
here, outside of its decisions. Where no client has said why it joined again, the cause is inferred:
a leader that joins with the same subscription has seen other partitions than the last time, and a
member that comes back with fewer partitions does the second step of a cooperative rebalance.

Java's consumer, franz-go and ours say why they join, in words of their own (KIP-800, JoinGroup 8).
librdkafka joins with version 5, which has no reason.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from groups.coordinator.membership.history import Cause, MemberNote, Rebalanced, Trigger
from groups.coordinator.subscriptions import CONSUMER
from groups.group_event import COORDINATOR, GroupEvent
from protocol.consumer_protocol import decode_assignment, decode_subscription, decode_topics
from protocol.frozen import frozen
from protocol.primitives import WireError
from protocol.topic_partition import TopicPartition

MAX_GROUPS = 10_000
"""Groups whose numbers of partitions are remembered; beyond it the longest silent is forgotten."""
MAX_CHARACTERS = 4_000_000
"""Characters of names in what is remembered of groups: clients chose their lengths."""
MAX_LATE = 10
"""Members that an event names as late: those that were latest."""
LATE_MS = 1000
"""Time after the beginning of a rebalance from which on a member that joins is late."""

GIVES_UP = (
    "need to revoke partitions and re-join",  # Java
    "cooperative rejoin after revoking what we lost",  # franz-go until 1.17
    "after revoking what we lost",  # franz-go
    "partitions are given up to other members",  # ours
)
"""Beginnings of the reasons of members that join again so that others get what they gave up."""

Counts = Mapping[str, int]
Owners = Mapping[TopicPartition, str]

NO_REBALANCES = (Cause.COORDINATOR_LOADED, Cause.STATIC_MEMBER_REPLACED)


@frozen
class _Last:
    """A group at its last event: partitions of its topics, and why it rebalanced."""

    counts: Counts | None
    trigger: Trigger | None

    def count_characters(self, group_id: str) -> int:
        """Return the characters of all names, with the group's own."""
        names = [group_id, *(self.counts or ())]
        if self.trigger is not None:
            trigger = self.trigger
            names += (trigger.member_id, trigger.client_id, trigger.reason or "")
        return sum(map(len, names))


@attrs.define(eq=False)
class RebalanceEvents:
    """Makes events of rebalances. `count_partitions(topic)` is 0 for a topic that is not there."""

    count_partitions: Callable[[str], int]
    _last: OrderedDict[str, _Last] = attrs.field(factory=OrderedDict)
    _characters: int = 0

    def describe(self, rebalanced: Rebalanced) -> dict[str, Any]:
        """Return the fields of an event."""
        before = {member.member_id for member in rebalanced.before}
        after = {member.member_id for member in rebalanced.after}
        trigger = self._find_trigger(rebalanced)
        moved, kept = _count_moves(rebalanced)
        event = GroupEvent(
            group=rebalanced.group_id,
            coordination=COORDINATOR,
            generation_before=rebalanced.generation_before,
            generation_after=rebalanced.generation_after,
            trigger=trigger.cause.value,
            member_id=trigger.member_id or None,
            client_id=trigger.client_id or None,
            reason=trigger.reason,
            started_ms=rebalanced.started_ms,
            ended_ms=rebalanced.ended_ms,
            members_added=sorted(after - before),
            members_gone=sorted(before - after),
            members_kept=sorted(before & after),
            late=_find_late(rebalanced),
            partitions_moved=moved,
            partitions_kept=kept,
            inferred=trigger.is_inferred,
        )
        return event.as_json()

    # ---- why

    def _find_trigger(self, rebalanced: Rebalanced) -> Trigger:
        """Return why it was, and remember what is needed for the next time."""
        group_id = rebalanced.group_id
        last = self._last.pop(group_id, None)
        if last is None:
            last = _Last(None, None)
        else:
            self._characters -= last.count_characters(group_id)
        counts = self._count(rebalanced)
        trigger = self._infer(rebalanced, last, counts)

        is_rebalance = trigger.cause not in NO_REBALANCES
        now = _Last(counts or last.counts, trigger if is_rebalance else last.trigger)
        self._last[group_id] = now
        self._characters += now.count_characters(group_id)
        # 10,000 with names of 32 KB would be a GB for good (fault strangers-28).
        while self._characters > MAX_CHARACTERS:
            self._forget_oldest()
        if len(self._last) > MAX_GROUPS:
            self._forget_oldest()
        return trigger

    def _forget_oldest(self) -> None:
        group_id, last = self._last.popitem(last=False)
        self._characters -= last.count_characters(group_id)

    def _infer(self, rebalanced: Rebalanced, last: _Last, counts: Counts | None) -> Trigger:
        """Return the trigger that the coordinator has noted, or a better one that can be seen."""
        trigger = rebalanced.trigger
        if not _is_rejoin(rebalanced):
            return trigger

        # A cooperative rebalance has two steps, and one cause.
        if last.trigger is not None and _gives_up(rebalanced):
            return attrs.evolve(last.trigger, reason=trigger.reason, is_inferred=True)

        # What the topics say. A consumer of a pattern drops a topic that is gone, and no topic has
        # fewer partitions than before unless it was made again.
        before = last.counts or {}
        if any(self.count_partitions(topic) < before[topic] for topic in before):
            return attrs.evolve(trigger, cause=Cause.TOPIC_DELETED, is_inferred=True)
        if trigger.cause is Cause.SUBSCRIPTION_CHANGED:
            return trigger
        if counts and any(counts[topic] > before.get(topic, counts[topic]) for topic in counts):
            return attrs.evolve(trigger, cause=Cause.PARTITIONS_ADDED, is_inferred=True)
        return trigger

    def _count(self, rebalanced: Rebalanced) -> Counts | None:
        """Count the partitions of the group's topics; None if they cannot be known."""
        topics = _topics_of(rebalanced.after or rebalanced.before, rebalanced.protocol_type)
        return None if topics is None else {topic: self.count_partitions(topic) for topic in topics}


def _is_rejoin(rebalanced: Rebalanced) -> bool:
    """Return whether a member began the rebalance that was one before, by joining again."""
    trigger = rebalanced.trigger
    if trigger.cause is Cause.MEMBER_JOINED:
        return _find_note(rebalanced.before, trigger.member_id) is not None
    return trigger.cause in (Cause.LEADER_REJOINED, Cause.SUBSCRIPTION_CHANGED)


def _gives_up(rebalanced: Rebalanced) -> bool:
    """Return whether the member says, or shows, that it has given up partitions to others."""
    trigger = rebalanced.trigger
    if trigger.cause is Cause.SUBSCRIPTION_CHANGED:
        return False
    if trigger.reason is not None and trigger.reason.startswith(GIVES_UP):
        return True

    before = _find_note(rebalanced.before, trigger.member_id)
    after = _find_note(rebalanced.after, trigger.member_id)
    if rebalanced.protocol_type != CONSUMER or before is None or after is None:
        return False
    try:
        owned_before = decode_subscription(before.metadata).owned_partitions
        owned_after = decode_subscription(after.metadata).owned_partitions
    except WireError:
        return False
    return not set(owned_before) <= set(owned_after)


def _find_note(members: Iterable[MemberNote], member_id: str) -> MemberNote | None:
    return next((member for member in members if member.member_id == member_id), None)


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
