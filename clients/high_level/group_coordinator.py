"""The coordinator of a group, as one member sees it: its requests, and the leader's assignment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import attrs

from clients.cluster import Cluster
from clients.high_level.heartbeats import (
    ATTEMPTS_PER_SESSION,
    HeartbeatIdentity,
    Heartbeats,
    is_place_lost,
)
from clients.high_level.member_config import REBALANCE_GRACE_MS, MemberConfig
from clients.transport.connection import Connection
from groups.assignors.assignor import Assignor
from groups.assignors.assignor_table import find_assignor
from groups.assignors.claims import Claim
from groups.assignors.members import MemberSubscription
from groups.consumer import effects as do
from groups.consumer import events as on
from protocol.api_key import ApiKey
from protocol.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from protocol.errors import ErrorCode, KgroupError
from protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupRequestMember
from protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from protocol.primitives import WireError
from protocol.shielded import wait_shielded
from protocol.topic_partition import TopicPartition

CONSUMER = "consumer"
CONNECTION = "group"
"""A JoinGroup is parked for as long as others take; commits go by another connection."""
FIRST_VERSION_OF_INSTANCES = 5
MAX_REASON = 255
GIVEN_BACK = "the consumer has given up joining"

CountPartitions = Callable[[Collection[str]], Awaitable[Mapping[str, int]]]
"""Returns the numbers of partitions of topics; 0 for those that do not exist."""


@attrs.define(eq=False)
class GroupCoordinatorCalls:
    """The calls of one member (`groups.consumer.member.Coordinator`)."""

    cluster: Cluster
    config: MemberConfig
    heartbeats: Heartbeats
    count_partitions: CountPartitions
    on_assigned: Callable[[Mapping[str, int]], None] = lambda counts: None
    """Gets the numbers of partitions with which the group was assigned, if we lead it."""
    _claim: Claim | None = None
    _giving_back: asyncio.Task[None] | None = None

    # ---- JoinGroup

    async def join(self, effect: do.SendJoin) -> on.JoinResponded:
        """Join. Raises KgroupError."""
        joining = asyncio.ensure_future(self._ask(partial(self._send_join, effect)))
        try:
            response = await wait_shielded(joining)
        except asyncio.CancelledError:
            if effect.member_id:
                joining.cancel()
            else:
                # Who gets an id that nobody uses holds up the group for a session (fault groups-3).
                self._giving_back = asyncio.create_task(self._give_back(joining))
            raise
        if isinstance(response, on.JoinResponded):
            return response
        # It assigns nothing (KIP-814), and watches for new partitions all the same.
        if response.skip_assignment and response.leader == response.member_id:
            await self._note_partitions(response)
        return on.JoinResponded(
            effect.round,
            ErrorCode.of(response.error_code),
            response.member_id,
            response.generation_id,
            response.protocol_name or "",
            response.leader,
            [
                on.GroupMember(member.member_id, member.group_instance_id, bytes(member.metadata))
                for member in response.members
            ],
            response.skip_assignment,
        )

    async def _give_back(self, joining: asyncio.Future[Any]) -> None:
        """Leave with the id that a JoinGroup hands out which nobody waits for any longer."""
        with suppress(KgroupError):
            response = await joining
            if response.member_id:
                await self.leave(do.SendLeave(response.member_id, GIVEN_BACK))

    async def settle(self, patience_s: float) -> None:
        """Wait for what was given up and is in flight still, and then no longer."""
        if self._giving_back is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._giving_back

    async def _send_join(
        self, effect: do.SendJoin, connection: Connection
    ) -> JoinGroupResponse | on.JoinResponded:
        # An older broker would take a static member for a usual one.
        is_old = connection.version_of(ApiKey.JOIN_GROUP) < FIRST_VERSION_OF_INSTANCES
        if is_old and self.config.group_instance_id is not None:
            return on.JoinResponded(effect.round, ErrorCode.UNSUPPORTED_VERSION)

        config = self.config
        request = JoinGroupRequest(
            group_id=config.group_id,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            member_id=effect.member_id,
            group_instance_id=config.group_instance_id,
            protocol_type=CONSUMER,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=self._subscribe(name, effect))
                for name in config.partition_assignment_strategy
            ],
            reason=effect.reason[:MAX_REASON],
        )
        patience_ms = max(
            config.socket_timeout_ms, config.max_poll_interval_ms + REBALANCE_GRACE_MS
        )
        response: JoinGroupResponse = await connection.call(request, timeout_ms=patience_ms)
        return response

    async def _note_partitions(self, response: JoinGroupResponse) -> None:
        topics: set[str] = set()
        for member in response.members:
            # One that cannot be read had nothing assigned either.
            with suppress(WireError):
                topics.update(decode_subscription(bytes(member.metadata)).topics)
        self.on_assigned(await self.count_partitions(topics))

    def _subscribe(self, strategy: str, effect: do.SendJoin) -> bytes:
        assignor: Assignor = find_assignor(strategy)
        return encode_subscription(
            Subscription(
                effect.topics,
                assignor.user_data(self._claim),
                tuple(sorted(effect.owned)),
                effect.generation_id,
            )
        )

    # ---- the leader's part

    async def assign(self, effect: do.ComputeAssignment) -> on.AssignmentComputed:
        """Share out all partitions, in a thread: a large group takes seconds."""
        members: list[MemberSubscription] = []
        for member in effect.members:
            try:
                subscription = decode_subscription(member.metadata)
            except WireError as error:
                problem = f"the subscription of {member.member_id} cannot be read: {error}"
                return on.AssignmentComputed(effect.round, problem=problem)
            members.append(
                MemberSubscription(member.member_id, subscription, member.group_instance_id)
            )

        topics = {topic for member in members for topic in member.subscription.topics}
        counts = await self.count_partitions(topics)
        assignor = find_assignor(effect.protocol_name)
        existing = {topic: count for topic, count in counts.items() if count}
        assignments = await asyncio.to_thread(assignor.assign, existing, members)
        self.on_assigned(counts)
        encoded = {
            member_id: encode_assignment(assignment)
            for member_id, assignment in assignments.items()
        }
        return on.AssignmentComputed(effect.round, encoded)

    # ---- SyncGroup

    async def sync(self, effect: do.SendSync) -> on.SyncResponded:
        """Sync. Raises KgroupError."""
        config = self.config
        request = SyncGroupRequest(
            group_id=config.group_id,
            generation_id=effect.generation_id,
            member_id=effect.member_id,
            group_instance_id=config.group_instance_id,
            protocol_type=CONSUMER,
            protocol_name=effect.protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in effect.assignments.items()
            ],
        )
        # It is parked until the leader has assigned, which may take as long as joining.
        patience_ms = max(
            config.socket_timeout_ms, config.max_poll_interval_ms + REBALANCE_GRACE_MS
        )
        response: SyncGroupResponse = await self._ask(
            lambda connection: connection.call(request, timeout_ms=patience_ms)
        )
        error = ErrorCode.of(response.error_code)
        if error is not ErrorCode.NONE:
            return on.SyncResponded(effect.round, error)
        return on.SyncResponded(effect.round, error, self._read(response.assignment, effect))

    def _read(self, assignment: bytes, effect: do.SendSync) -> frozenset[TopicPartition] | None:
        try:
            partitions = decode_assignment(assignment).partitions
        except WireError:
            return None
        # What a sticky assignor says of us in the next round.
        self._claim = Claim(partitions, effect.generation_id)
        return frozenset(partitions)

    # ---- the rest

    async def leave(self, effect: do.SendLeave) -> None:
        """Leave. Raises KgroupError."""
        member = LeaveGroupRequestMember(
            member_id=effect.member_id,
            group_instance_id=self.config.group_instance_id,
            reason=effect.reason[:MAX_REASON],
        )
        request = LeaveGroupRequest(
            group_id=self.config.group_id, member_id=effect.member_id, members=[member]
        )
        # A JoinGroup may be parked on our own connection, and brokers respond in order.
        await self.cluster.call_coordinator(self.config.group_id, request)

    def begin_heartbeats(self, effect: do.BeginHeartbeats) -> None:
        """Send heartbeats with this identity."""
        self.heartbeats.begin(HeartbeatIdentity(effect.member_id, effect.generation_id))

    def hasten_heartbeats(self) -> None:
        """Send the next heartbeats soon."""
        self.heartbeats.hasten()

    def end_heartbeats(self) -> None:
        """Send no more heartbeats."""
        self.heartbeats.end()

    def forget(self) -> None:
        """Look for the coordinator before the next call."""
        self.cluster.forget_coordinator(self.config.group_id)

    def describe(self) -> str:
        """Name the broker that is the coordinator, or was it last."""
        return self.heartbeats.coordinator

    async def _ask(self, ask: Callable[[Connection], Awaitable[Any]]) -> Any:
        """Send what may be parked for minutes, for as long as the coordinator is there."""
        checking = asyncio.create_task(self._check_coordinator())
        try:
            return await self.cluster.ask_coordinator(
                self.config.group_id,
                ask,
                CONNECTION,
                # One that is deposed must not make us forget our id (fault groups-3, was: None).
                is_doubtful=is_place_lost,
                is_parked=True,
            )
        finally:
            checking.cancel()

    async def _check_coordinator(self) -> None:
        limit_ms = self.config.session_timeout_ms // ATTEMPTS_PER_SESSION
        while True:
            await asyncio.sleep(self.config.heartbeat_interval_ms / 1000)
            with suppress(KgroupError):
                # Who has no generation has no heartbeats, which would tell it (fault groups-3).
                await self.cluster.check_coordinator(self.config.group_id, limit_ms)


def changed_topics(before: Mapping[str, int], now: Mapping[str, int]) -> Sequence[str]:
    """Return the topics whose number of partitions is another than when they were assigned."""
    return sorted(
        topic for topic in before.keys() | now.keys() if before.get(topic) != now.get(topic)
    )
