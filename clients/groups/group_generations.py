"""The generations of a group, as the records of `__consumer_offsets` show them. Pure.

A coordinator writes a record when a generation is assigned, and when the last member is gone. Stock
brokers write nothing else of a rebalance: not what began it, and not when.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from groups.coordinator.subscriptions import CONSUMER
from offsets.records import (
    GroupKey,
    GroupMember,
    GroupMetadata,
    RecordError,
    decode_value,
    encode_key,
)
from protocol.consumer_protocol import decode_assignment
from protocol.primitives import WireError
from protocol.topic_partition import TopicPartition

Item = Mapping[str, Any]


def judge_generations(items: Sequence[Item]) -> str:
    """Say what the records show, and what they cannot."""
    if not items:
        return "no generation of the group is in __consumer_offsets"
    noun = "record" if len(items) == 1 else "records"
    return (
        f"{len(items)} {noun} of __consumer_offsets, in which older ones are compacted away; they "
        "do not say why the group rebalanced, who was late, or how long it stood: only "
        "coordinators of this project write that, to __group_events"
    )


@attrs.define(eq=False)
class Generations:
    """Reads the records of one group in the order of the log."""

    group_id: str
    _key: bytes = attrs.field(init=False)
    _last: GroupMetadata | None = None

    def __attrs_post_init__(self) -> None:
        self._key = encode_key(GroupKey(self.group_id))

    def read(self, key: bytes | None, value: bytes | None, written_ms: int) -> Item | None:
        """Return what a record shows of a generation; None if it is of something else.

        The fields have the names of events. What changed is None without the record before.
        """
        if key != self._key:
            return None
        try:
            metadata = decode_value(GroupKey(self.group_id), value)
        except RecordError:
            return None

        # A tombstone: the group is gone.
        before, self._last = self._last, metadata if isinstance(metadata, GroupMetadata) else None
        if self._last is None:
            return None
        return _describe(self.group_id, before, self._last, written_ms)


def _describe(
    group_id: str, before: GroupMetadata | None, after: GroupMetadata, written_ms: int
) -> dict[str, Any]:
    clients = {member.member_id: member.client_id for member in after.members}
    present = clients.keys()
    former = None if before is None else {member.member_id for member in before.members}
    moved, kept = _count_moves(before, after)
    return {
        "group": group_id,
        "generation_before": None if before is None else before.generation_id,
        "generation_after": after.generation_id,
        "protocol_type": after.protocol_type,
        "protocol": after.protocol,
        "leader_id": after.leader,
        "leader": clients.get(after.leader or ""),
        "members": sorted(present),
        "ended_ms": written_ms,
        "members_added": None if former is None else sorted(present - former),
        "members_gone": None if former is None else sorted(former - present),
        "members_kept": None if former is None else sorted(present & former),
        "partitions_moved": moved,
        "partitions_kept": kept,
    }


def _count_moves(
    before: GroupMetadata | None, after: GroupMetadata
) -> tuple[int | None, int | None]:
    """Return how many partitions have another owner, and how many the same; None if not known."""
    if before is None or after.protocol_type != CONSUMER:
        return None, None
    try:
        former = _owners(before.members)
        owners = _owners(after.members)
    except WireError:
        return None, None
    kept = sum(1 for partition, owner in owners.items() if former.get(partition) == owner)
    return len(owners) - kept, kept


def _owners(members: Iterable[GroupMember]) -> Mapping[TopicPartition, str]:
    return {
        # A static member is the same one after a restart.
        partition: member.group_instance_id or member.member_id
        for member in members
        for partition in decode_assignment(member.assignment).partitions
    }
