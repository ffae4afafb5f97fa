"""A coordinator's shard with a clock, timers and a log of its own: all that `decide` needs, no I/O.

Requests get their responses here, each exactly once. Appends are replicated at once, unless the
desk holds them.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from typing import Any

import attrs

from groups.coordinator.config import GroupConfig
from groups.coordinator.decide import Event, decide
from groups.coordinator.events import CommitOffsets, DeleteGroup, GroupsLoaded
from groups.coordinator.membership.events import (
    Disconnected,
    Heartbeat,
    Join,
    Leave,
    Leaver,
    Sync,
)
from groups.coordinator.membership.group import Group, Protocols
from groups.coordinator.membership.history import Rebalanced
from groups.coordinator.membership.responses import Joined, Left, Synced
from groups.coordinator.responses import Done
from groups.coordinator.shard import GroupShard
from groups.runtime.effects import Append, Effect, Publish, Reply, SetTimer
from groups.runtime.events import Unloaded
from groups.runtime.shard import EncodedRecord
from offsets.records import (
    CommittedOffset,
    GroupKey,
    GroupMetadata,
    OffsetKey,
    Record,
    decode_value,
    encode_key,
)
from protocol.consumer_protocol import Subscription, encode_subscription
from protocol.errors import ErrorCode

NOW_MS = 1_700_000_000_000
GROUP_ID = "orders"
SESSION_MS = 500
REBALANCE_MS = 500
DELAY_MS = 50
CONFIG = GroupConfig(
    max_size=4,
    min_session_timeout_ms=10,
    max_session_timeout_ms=600_000,
    initial_rebalance_delay_ms=DELAY_MS,
)
RANGE: Protocols = (("range", b""),)
WRITTEN_ALL_THE_SAME = (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


def subscribed_to(*topics: str, name: str = "range") -> Protocols:
    """Return the protocols of a consumer of these topics."""
    return ((name, encode_subscription(Subscription(topics))),)


@attrs.define(eq=False)
class Request:
    """A request that was sent; `response` is None while it is parked."""

    request_id: int
    response: Any = None

    @property
    def error(self) -> ErrorCode:
        """Return the error of the response, which must be there."""
        assert self.response is not None, "it is parked"
        error: ErrorCode = self.response.error
        return error

    @property
    def is_parked(self) -> bool:
        """Return whether there is no response yet."""
        return self.response is None

    @property
    def joined(self) -> Joined:
        """Return the response to a JoinGroup."""
        assert isinstance(self.response, Joined)
        return self.response

    @property
    def synced(self) -> Synced:
        """Return the response to a SyncGroup."""
        assert isinstance(self.response, Synced)
        return self.response


class Desk:
    """One shard. `group` is the group of all requests that name no other."""

    def __init__(self, config: GroupConfig = CONFIG, shard: GroupShard | None = None) -> None:
        self.now_ms = NOW_MS
        self.config = config
        self.shard = shard or GroupShard(config=config)
        self.timers: dict[Any, tuple[int, int]] = {}
        self.in_flight: deque[Append] = deque()
        self.log: list[EncodedRecord] = []
        self.published: list[Rebalanced] = []
        self.holds = False
        """Whether appends wait for `replicate`."""
        self._requests: dict[int, Request] = {}
        self._numbers = itertools.count(1)

    # ---- what `decide` wants

    def take(self, event: Event) -> None:
        """Decide an event, and perform what comes of it."""
        effects = decide(self.shard, event, self.now_ms)
        self._perform(effects)
        self.shard.check([append.records for append in self.in_flight])
        if not self.holds:
            self.replicate()

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                request = self._requests[effect.request_id]
                assert request.response is None, f"request {effect.request_id} has two responses"
                request.response = effect.response
            elif isinstance(effect, SetTimer):
                self.timers.pop(effect.event, None)
                self.timers[effect.event] = self.now_ms + effect.after_ms, next(self._numbers)
            elif isinstance(effect, Publish):
                self.published.append(effect.value)
            else:
                self.shard.begin_write(effect.records)
                self.in_flight.append(effect)

    def replicate(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """End the appends in flight, and those that they bring about."""
        while self.in_flight:
            append = self.in_flight.popleft()
            if error in WRITTEN_ALL_THE_SAME:
                encoded = self.shard.encode(append.records)
                self.log += encoded
                self.shard.replay(encoded)
            self.shard.end_write(append.records)
            self._perform(decide(self.shard, attrs.evolve(append.then, error=error), self.now_ms))
            self.shard.check([append.records for append in self.in_flight])

    def fail(self, error: ErrorCode) -> None:
        """Let the oldest append fail."""
        append = self.in_flight.popleft()
        self.shard.end_write(append.records)
        self._perform(decide(self.shard, attrs.evolve(append.then, error=error), self.now_ms))

    def advance(self, duration_ms: int) -> None:
        """Let time pass: timers end in order."""
        until_ms = self.now_ms + duration_ms
        while self.timers:
            event, (due_ms, _) = min(self.timers.items(), key=lambda timer: timer[1])
            if due_ms > until_ms:
                break
            del self.timers[event]
            self.now_ms = due_ms
            self.take(event)
        self.now_ms = until_ms

    def move(self) -> None:
        """Let another broker coordinate the groups: all it has is what was replicated."""
        self.timers.clear()
        self._perform(decide(self.shard, Unloaded(), self.now_ms))
        while self.in_flight:
            self.fail(ErrorCode.NOT_COORDINATOR)
        assert all(request.response is not None for request in self._requests.values())

        self.shard = GroupShard(config=self.config)
        self.shard.replay(self.log)
        self.take(GroupsLoaded(list(self.shard.groups)))

    # ---- requests

    def _request(self) -> Request:
        request = Request(next(self._numbers))
        self._requests[request.request_id] = request
        return request

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: Protocols = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        version: int = 5,
        client_id: str = "client",
        reason: str | None = None,
        connection: int = 1,
        record_max_bytes: int = 1_048_588,
        group_id: str = GROUP_ID,
    ) -> Request:
        """Send a JoinGroup. Versions before 4 need no member id."""
        request = self._request()
        self.take(
            Join(
                request.request_id,
                group_id,
                member_id,
                instance,
                f"{instance or client_id}-{request.request_id}",
                client_id,
                "/127.0.0.1",
                session_ms,
                rebalance_ms,
                protocol_type,
                protocols,
                needs_member_id=version >= 4,
                can_skip_assignment=version >= 9,
                reason=reason,
                connection=connection,
                record_max_bytes=record_max_bytes,
            )
        )
        return request

    def join_twice(self, **options: Any) -> Request:
        """Join as a new member does: once for an id, and again with it."""
        first = self.join(**options)
        assert first.error is ErrorCode.MEMBER_ID_REQUIRED
        return self.join(first.joined.member_id, **options)

    def sync(
        self,
        joined: Joined,
        assignments: dict[str, bytes] | None = None,
        *,
        member_id: str | None = None,
        generation_id: int | None = None,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        group_id: str = GROUP_ID,
    ) -> Request:
        """Send a SyncGroup of a member that has joined."""
        request = self._request()
        self.take(
            Sync(
                request.request_id,
                group_id,
                joined.generation_id if generation_id is None else generation_id,
                joined.member_id if member_id is None else member_id,
                instance,
                protocol_type,
                protocol_name,
                list((assignments or {}).items()),
            )
        )
        return request

    def beat(
        self,
        joined: Joined,
        *,
        generation_id: int | None = None,
        instance: str | None = None,
        group_id: str = GROUP_ID,
    ) -> ErrorCode:
        """Send a Heartbeat; return its error."""
        request = self._request()
        generation_id = joined.generation_id if generation_id is None else generation_id
        self.take(
            Heartbeat(request.request_id, group_id, generation_id, joined.member_id, instance)
        )
        return request.error

    def disconnect(self, member_id: str, request: Request) -> None:
        """Close the connection on which a request of a member is parked."""
        assert request.is_parked
        self.take(Disconnected(request.request_id, GROUP_ID, member_id))

    def leave(
        self, *leavers: Leaver, client_id: str = "client", connection: int = 1
    ) -> list[ErrorCode]:
        """Send a LeaveGroup; return the error of each member."""
        request = self._request()
        self.take(Leave(request.request_id, GROUP_ID, leavers, client_id, connection))
        assert isinstance(request.response, Left)
        assert not request.error
        return [*request.response.errors]

    def commit(
        self,
        offset: int | None = 42,
        *,
        joined: Joined | None = None,
        generation_id: int | None = None,
        member_id: str | None = None,
        instance: str | None = None,
        topic: str = "t",
        partition: int = 0,
        connection: int = 1,
    ) -> Request:
        """Send an OffsetCommit: of a member, or from outside the group; None has no offset."""
        request = self._request()
        joined = joined or Joined()
        records: list[Record] = []
        if offset is not None:
            value = CommittedOffset(offset, -1, "", self.now_ms)
            records.append((OffsetKey(GROUP_ID, topic, partition), value))
        self.take(
            CommitOffsets(
                request.request_id,
                GROUP_ID,
                joined.generation_id if generation_id is None else generation_id,
                joined.member_id if member_id is None else member_id,
                instance,
                records,
                connection,
            )
        )
        assert request.response is None or isinstance(request.response, Done)
        return request

    def delete(self) -> Request:
        """Send a DeleteGroups."""
        request = self._request()
        self.take(DeleteGroup(request.request_id, GROUP_ID))
        return request

    # ---- scenes

    def form(
        self, *options: dict[str, Any], assignments: Sequence[bytes] = (), **for_all: Any
    ) -> list[Joined]:
        """Form a stable group of members that join with these options; the first one leads."""
        requests = [self.join(version=3, **for_all, **option) for option in options]
        while requests[0].is_parked:
            self.advance(DELAY_MS)
        return self.assign([request.joined for request in requests], assignments)

    def assign(self, members: list[Joined], assignments: Sequence[bytes] = ()) -> list[Joined]:
        """Let all members of a generation sync, the leader last."""
        ids = [member.member_id for member in members]
        given = dict(zip(ids, [*assignments, *([b""] * len(ids))], strict=False))
        followers = [member for member in members if member.member_id != member.leader_id]
        leaders = [member for member in members if member.member_id == member.leader_id]
        syncs = [self.sync(member) for member in followers]
        syncs += [self.sync(member, given) for member in leaders]
        assert [sync.error for sync in syncs] == [ErrorCode.NONE] * len(syncs)
        return members

    @property
    def record(self) -> GroupMetadata:
        """Return the record of the group that was written last."""
        values = dict(self.log)
        record = decode_value(GroupKey(GROUP_ID), values[encode_key(GroupKey(GROUP_ID))])
        assert isinstance(record, GroupMetadata)
        return record

    @property
    def group(self) -> Group:
        """Return the group, which has members or is about to."""
        group = self.shard.live_group(GROUP_ID)
        assert group is not None
        return group

    @property
    def state(self) -> str:
        """Return the state of the group, by name."""
        group = self.shard.live_group(GROUP_ID)
        if group is None:
            return "Empty" if self.shard.knows(GROUP_ID) else "Dead"
        return str(group.state.value)
