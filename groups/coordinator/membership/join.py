"""JoinGroup: a client becomes a member, or a member joins the next generation.

A new member first gets an id, and joins again with it, so that a client that goes away between the
two leaves no member behind (KIP-394). Static members need no such id: theirs is the instance id
that they are configured with (`static_members`).
"""

from __future__ import annotations

import attrs

from groups.coordinator.membership import static_members
from groups.coordinator.membership.events import Join, SessionExpired
from groups.coordinator.membership.group import Group, Member
from groups.coordinator.membership.history import Cause, Trigger
from groups.coordinator.membership.rebalance import (
    joined,
    prepare,
    remove_member,
    trigger_of,
    try_complete,
)
from groups.coordinator.membership.responses import Joined
from groups.coordinator.membership.state import GroupState
from groups.coordinator.shard import GroupShard
from groups.coordinator.subscriptions import CONSUMER, has_same_topics
from groups.runtime.effects import Effect, Reply, SetTimer
from protocol.errors import ErrorCode

NEW_MEMBER_TIMEOUT_MS = 300_000
"""Time for which the first JoinGroup of a member is parked at most: its client may be gone, and
cannot send heartbeats before it knows its id (KAFKA-7610)."""
MAX_HANDED_OUT = 10_000
"""Member ids of one group that may wait for their clients. They go with the session timeout."""


MAX_PROTOCOLS = 100
"""Most protocols (assignors) of a member."""
KEPT_RECORDS = 4
"""The largest metadata of all members may fill so many records: they are kept in memory."""


def join(shard: GroupShard, event: Join, now_ms: int) -> list[Effect]:
    """Decide a JoinGroup. It is parked until the members of the next generation are known."""
    config = shard.config
    if (
        not config.min_session_timeout_ms
        <= event.session_timeout_ms
        <= config.max_session_timeout_ms
    ):
        return refuse(event, ErrorCode.INVALID_SESSION_TIMEOUT, event.member_id)

    # Only a client without an id begins a group.
    group = shard.live_group(event.group_id)
    if group is None:
        if event.member_id:
            return refuse(event, ErrorCode.UNKNOWN_MEMBER_ID, event.member_id)
        group = shard.begin_group(event.group_id)
    if group.held_by is not None:
        return refuse(event, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, event.member_id)

    member = group.members.get(event.member_id)
    if not _is_admitted(group, member, event, config.max_size):
        effects = _refuse_for_size(shard, group, member, event, now_ms)
    elif event.member_id:
        effects = _join_known(shard, group, member, event, now_ms)
    else:
        effects = _join_new(shard, group, event, now_ms)
    effects += try_complete(group, now_ms)
    shard.release_group(event.group_id)
    return effects


def refuse(event: Join, error: ErrorCode, member_id: str = "") -> list[Effect]:
    """Respond with an error. A member keeps the id that comes with it; "" takes it away."""
    return [Reply(event.request_id, Joined(error, member_id))]


# ---- admission


def _is_admitted(group: Group, member: Member | None, event: Join, max_size: int) -> bool:
    """Return whether there is room for the member, and for its metadata (KIP-389)."""
    # All protocols of a member are kept, and one of them will be in the record.
    if len(event.protocols) > MAX_PROTOCOLS:
        return False

    sizes = [len(metadata) for _, metadata in event.protocols] or [0]
    largest = group.metadata_bytes + max(sizes)
    least = group.least_metadata_bytes + min(sizes)
    replaced = member or group.member_of_instance(event.group_instance_id)
    if replaced is not None:
        largest -= replaced.metadata_bytes
        least -= replaced.least_metadata_bytes
    # With so much it fits into no batch, whatever the assignor and the assignments are. Whether any
    # other record fits is for the log to say (fault groups-6, was: event.record_max_bytes // 2).
    fitting = event.record_max_bytes
    if least > fitting or largest > KEPT_RECORDS * event.record_max_bytes:
        return False

    if group.state is GroupState.EMPTY:
        return True
    # While all join again the first to do so have a place, whoever was a member (KAFKA-9885).
    if group.state is GroupState.PREPARING_REBALANCE:
        has_place = member is not None and member.parked_join is not None
        return has_place or group.parked_joins < max_size
    return member is not None or len(group.members) < max_size


def _refuse_for_size(
    shard: GroupShard, group: Group, member: Member | None, event: Join, now_ms: int
) -> list[Effect]:
    group.take_back(event.member_id)
    effects = refuse(event, ErrorCode.GROUP_MAX_SIZE_REACHED)
    if member is not None:
        reason = "the group is full (group.max.size), or its members' metadata are too large"
        trigger = trigger_of(Cause.MEMBER_KICKED, member, reason)
        effects += remove_member(group, member, trigger, shard.config, now_ms)
    return effects


# ---- new members


def _join_new(shard: GroupShard, group: Group, event: Join, now_ms: int) -> list[Effect]:
    if not _supports(group, event):
        return refuse(event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    # A static member that has restarted.
    instance_id = event.group_instance_id
    if instance_id is not None and instance_id in group.static_members:
        return static_members.replace(shard, group, event, now_ms)

    # Hand out an id first, unless the client is too old for it, or static.
    if event.needs_member_id and instance_id is None:
        # Clients come and go faster than their ids expire: this one tries again.
        if len(group.handed_out) >= MAX_HANDED_OUT:
            return refuse(event, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        expired = group.hand_out(event.new_member_id)
        return [
            SetTimer(expired, event.session_timeout_ms),
            *refuse(event, ErrorCode.MEMBER_ID_REQUIRED, event.new_member_id),
        ]
    session = SessionExpired(group.group_id, event.new_member_id)
    return _add(shard, group, event, session, now_ms)


def _add(
    shard: GroupShard, group: Group, event: Join, session: SessionExpired, now_ms: int
) -> list[Effect]:
    member = Member(
        session,
        event.group_instance_id,
        event.client_id,
        event.client_host,
        event.rebalance_timeout_ms,
        event.session_timeout_ms,
        event.protocols,
        is_new=True,
        connection=event.connection,
    )

    # The first member says what kind of group it is.
    if not group.members:
        group.protocol_type = event.protocol_type
    # The first generation waits for more like it.
    if group.initial_delay is not None and group.generation_id == 0:
        group.initial_delay.has_newcomer = True

    effects: list[Effect] = []
    group.add(member)
    # The session begins when it knows its id.
    effects.append(SetTimer(session, NEW_MEMBER_TIMEOUT_MS))
    if group.state is not GroupState.PREPARING_REBALANCE:
        trigger = trigger_of(Cause.MEMBER_JOINED, member, event.reason)
        effects += prepare(group, trigger, shard.config, now_ms)
    return effects + park(group, member, event, now_ms)


# ---- members that join again


def _join_known(
    shard: GroupShard, group: Group, member: Member | None, event: Join, now_ms: int
) -> list[Effect]:
    member_id = event.member_id
    if not _supports(group, event):
        return refuse(event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
    if member_id in group.handed_out:
        # Ids are handed out to dynamic members alone.
        if event.group_instance_id is not None:
            return refuse(event, ErrorCode.UNKNOWN_SERVER_ERROR, member_id)
        return _add(shard, group, event, group.handed_out[member_id], now_ms)

    error = static_members.refusal(group, member_id, event.group_instance_id)
    if error:
        return refuse(event, error, member_id)
    assert member is not None, "a member that is not refused is known"

    # The others wait for it, or the change concerns them all.
    if group.state is GroupState.PREPARING_REBALANCE:
        _update(group, member, event)
        return park(group, member, event, now_ms)
    trigger = _trigger(group, member, event)
    if trigger is None:
        # Its response was lost, or it asks once more: nothing has changed.
        return [Reply(event.request_id, joined(group, member))]
    effects = prepare(group, trigger, shard.config, now_ms)
    _update(group, member, event)
    return effects + park(group, member, event, now_ms)


def _trigger(group: Group, member: Member, event: Join) -> Trigger | None:
    """Return why the others have to join again; None if they need not."""
    is_leader = member.member_id == group.leader_id
    if event.protocols == member.protocols:
        # A leader joins again when the topics have changed, of which it alone knows.
        if group.state is not GroupState.STABLE or not is_leader:
            return None
    elif not _keeps_topics(group, member, event):
        return trigger_of(Cause.SUBSCRIPTION_CHANGED, member, event.reason)

    # Metadata have more than topics: owned partitions, generations, what assignors need.
    if is_leader:
        return trigger_of(Cause.LEADER_REJOINED, member, event.reason)
    return attrs.evolve(trigger_of(Cause.MEMBER_JOINED, member, event.reason), is_inferred=True)


def _keeps_topics(group: Group, member: Member, event: Join) -> bool:
    metadata = dict(event.protocols).get(group.protocol_name or "", b"")
    is_consumer = group.protocol_type == CONSUMER
    return is_consumer and has_same_topics(member.metadata_for(group.protocol_name), metadata)


def _update(group: Group, member: Member, event: Join) -> None:
    group.set_protocols(member, event.protocols)
    # A client may have other timeouts after a restart (KAFKA-14009).
    member.session_timeout_ms = event.session_timeout_ms
    member.rebalance_timeout_ms = event.rebalance_timeout_ms
    member.connection = event.connection


def park(group: Group, member: Member, event: Join, now_ms: int) -> list[Effect]:
    """Park the JoinGroup of a member. One that it sent before ends: its client has gone on."""
    effects: list[Effect] = []
    former_id = group.take_join(member)
    if former_id is not None:
        response = Joined(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        effects.append(Reply(former_id, response))
    group.park_join(member, event.request_id)
    group.note_joined(member, now_ms)
    return effects


def _supports(group: Group, event: Join) -> bool:
    return group.supports(event.protocol_type, [name for name, _ in event.protocols])
