"""One group as its coordinator has it in memory: members, generation, parked requests.

The group's record in the log has its last generation that was assigned. All else is lost with the
coordinator: who is joining, which requests are parked, which member ids were handed out. The next
coordinator begins from the record (`Group.of_record`), and members find out by their next request.

The methods keep the parts of a group in step with one another. The rules are beside this module.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any, TypeVar

import attrs

from groups.coordinator.membership.events import Protocols, ReplacementStored, SessionExpired
from groups.coordinator.membership.history import History
from groups.coordinator.membership.state import NEXT_STATES, GroupState
from groups.runtime.effects import RequestId
from offsets.records import GroupMember, GroupMetadata

T = TypeVar("T")

LAST_GENERATION = 2**31 - 1

# In place of a collection of their own, for nearly all groups at nearly all times.
_NOBODY: frozenset[str] = frozenset()
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@attrs.define(eq=False, weakref_slot=False)
class Member:
    """A member of a group.

    - `assignment`: what the leader assigned to it in the last generation that became stable.
    - `parked_join`, `parked_sync`: its requests that wait for a response.
    - `is_new`: it joined for the first time, and has no response yet that names its id.
    - `connection`: the connection of its last JoinGroup; 0 for a member of the record.
    - `session`: the event that ends its session. It names the member, so that a heartbeat, of
      which there are many, makes no event of its own.
    """

    session: SessionExpired
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    parked_join: RequestId | None = None
    parked_sync: RequestId | None = None
    is_new: bool = False
    connection: int = 0

    @property
    def member_id(self) -> str:
        """Return its id."""
        return self.session.member_id

    def metadata_for(self, protocol_name: str | None) -> bytes:
        """Return the member's metadata for an assignor; empty for one that it does not have."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    @property
    def metadata_bytes(self) -> int:
        """Return the size of its largest metadata: the record may hold any of them."""
        return max((len(metadata) for _, metadata in self.protocols), default=0)

    @property
    def least_metadata_bytes(self) -> int:
        """Return the size of its smallest metadata: the record has no less of it."""
        return min((len(metadata) for _, metadata in self.protocols), default=0)


@attrs.define(eq=False, weakref_slot=False)
class InitialDelay:
    """The wait of a group that was empty for more members (KIP-134).

    - `delay_ms`: how long it lasts.
    - `remaining_ms`: the longest time for further ones.
    - `has_newcomer`: a member was added since it began.
    """

    delay_ms: int
    remaining_ms: int
    has_newcomer: bool = False


@attrs.define(eq=False, weakref_slot=False)
class Group:
    """A group that has members, or is about to.

    Thousands of groups rest at a time, so what only a rebalance needs is there only during one.

    - `state_since_ms`: wall clock of the last change of state.
    - `protocol_type`: "" before the first member.
    - `static_members`: instance id -> member id (KIP-345).
    - `handed_out`: member ids that clients are to join with (KIP-394), and what ends the wait.
    - `unsynced`: members of the generation whose SyncGroup is missing.
    - `initial_delay`: None unless the group was empty, and waits for more members.
    - `oversized`: records in a row that were too large for the log.
    - `held_by`: connection of a client that resets offsets. Until it has, no member may join.
    - `history`: what is noted of the rebalance in progress; None while there is none.
    - `replacements`: those of static members that wait for the record in flight to be written, and
      then for one that has them all; None while none is in flight.
    """

    group_id: str
    state: GroupState = GroupState.EMPTY
    state_since_ms: int = -1
    generation_id: int = 0
    protocol_type: str = ""
    protocol_name: str | None = None
    leader_id: str | None = None
    members: dict[str, Member] = attrs.field(factory=dict)
    static_members: Mapping[str, str] = _NOTHING
    handed_out: Mapping[str, SessionExpired] = _NOTHING
    unsynced: Set[str] = _NOBODY
    initial_delay: InitialDelay | None = None
    oversized: int = 0
    held_by: int | None = None
    history: History | None = None
    replacements: list[ReplacementStored] | None = None
    metadata_bytes: int = 0
    least_metadata_bytes: int = 0
    parked_joins: int = 0
    # Name of an assignor -> number of members that have it; None until it is needed.
    _supporters: dict[str, int] | None = None

    @classmethod
    def of_record(cls, group_id: str, record: GroupMetadata) -> Group:
        """Return the group as its record says: stable if it has members.

        The record has the metadata of the chosen assignor alone, so each member has just that one.
        """
        group = cls(
            group_id,
            GroupState.STABLE if record.members else GroupState.EMPTY,
            record.state_timestamp_ms,
            record.generation_id,
            record.protocol_type,
            # Members have an assignor, even if its name is missing.
            (record.protocol or "") if record.members else None,
        )
        for member in record.members:
            # Others may have written what makes no sense: each id counts once.
            is_new = member.member_id not in group.members
            if is_new and member.group_instance_id not in group.static_members:
                group.add(_member_of_record(group_id, member, record.protocol or ""))
        if record.leader in group.members:
            group.leader_id = record.leader
        return group

    # ---- members

    def add(self, member: Member) -> None:
        """Add a member. The first one leads the group."""
        assert member.member_id not in self.members, "a member is added once"
        assert member.group_instance_id not in self.static_members, "an instance is added once"
        self.members[member.member_id] = member
        self.take_back(member.member_id)
        if member.group_instance_id is not None:
            self._note_instance(member.group_instance_id, member.member_id)
        if self.leader_id is None:
            self.leader_id = member.member_id
        member.protocols = self._shared(member.protocols)
        self._count(member, 1)

    def remove(self, member: Member) -> None:
        """Remove a member that has no parked request; another one leads in its place."""
        assert member.parked_join is None, "its JoinGroup has had a response"
        del self.members[member.member_id]
        self.note_synced(member.member_id)
        if member.group_instance_id is not None:
            self.static_members = _without(self.static_members, member.group_instance_id)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)
        self._count(member, -1)

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member another id, because its client has restarted."""
        assert member.group_instance_id is not None
        former_id = member.member_id
        # In its place, so that the order of members stays.
        member.session = SessionExpired(self.group_id, member_id)
        self.members = {known.member_id: known for known in self.members.values()}
        self._note_instance(member.group_instance_id, member_id)
        if self.leader_id == former_id:
            self.leader_id = member_id
        if former_id in self.unsynced:
            self.unsynced = {*self.unsynced - {former_id}, member_id}

    def member_of_instance(self, group_instance_id: str | None) -> Member | None:
        """Return the static member with this instance id; None if there is none."""
        if group_instance_id is None:
            return None
        return self.members.get(self.static_members.get(group_instance_id, ""))

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        """Replace what a member supports."""
        self._count(member, -1)
        member.protocols = self._shared(protocols)
        self._count(member, 1)

    def _shared(self, protocols: Protocols) -> Protocols:
        """Return the leader's protocols if they are equal: most members can share one copy."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.protocols == protocols:
            return leader.protocols
        return protocols

    def _note_instance(self, group_instance_id: str, member_id: str) -> None:
        if not isinstance(self.static_members, dict):
            self.static_members = {}
        self.static_members[group_instance_id] = member_id

    def _count(self, member: Member, sign: int) -> None:
        self.metadata_bytes += sign * member.metadata_bytes
        self.least_metadata_bytes += sign * member.least_metadata_bytes
        if self._supporters is not None:
            _count_names(self._supporters, member, sign)

    @property
    def supporters(self) -> Mapping[str, int]:
        """Return how many members have each assignor, by its name; counted when asked for first."""
        if self._supporters is None:
            self._supporters = {}
            for member in self.members.values():
                _count_names(self._supporters, member, 1)
        return self._supporters

    # ---- member ids on their way, and missing SyncGroups

    def hand_out(self, member_id: str) -> SessionExpired:
        """Note an id that a client is to join with; return what ends the wait for it."""
        if not isinstance(self.handed_out, dict):
            self.handed_out = {}
        expired = self.handed_out[member_id] = SessionExpired(self.group_id, member_id)
        return expired

    def take_back(self, member_id: str) -> None:
        """Forget an id that was handed out."""
        self.handed_out = _without(self.handed_out, member_id)

    def take_back_all(self) -> None:
        """Forget all ids that were handed out: their clients begin again."""
        self.handed_out = _NOTHING

    def note_synced(self, member_id: str) -> None:
        """Note that a member has sent its SyncGroup, or will not."""
        if isinstance(self.unsynced, set):
            self.unsynced.discard(member_id)
        self.unsynced = self.unsynced or _NOBODY

    @property
    def subscriptions(self) -> Iterator[bytes]:
        """Go through what each member subscribes to, by the assignor that the group has chosen."""
        return (member.metadata_for(self.protocol_name) for member in self.members.values())

    @property
    def is_stable(self) -> bool:
        """Return whether every member has its assignment."""
        return self.state is GroupState.STABLE

    # ---- parked requests

    def note_joined(self, member: Member, now_ms: int) -> None:
        """Note when a member has joined, if a rebalance is in progress."""
        if self.history is not None:
            self.history.joined_ms[member.member_id] = now_ms

    def park_join(self, member: Member, request_id: RequestId) -> None:
        """Park the JoinGroup of a member that has none parked."""
        assert member.parked_join is None, "a response comes before the next request"
        member.parked_join = request_id
        self.parked_joins += 1

    def take_join(self, member: Member) -> RequestId | None:
        """Return and clear the parked JoinGroup of a member."""
        request_id = member.parked_join
        if request_id is not None:
            member.parked_join = None
            self.parked_joins -= 1
        return request_id

    @property
    def is_join_complete(self) -> bool:
        """Return whether everyone has joined who could."""
        return self.parked_joins == len(self.members) and not self.handed_out

    @property
    def is_idle(self) -> bool:
        """Return whether nothing is kept here that its record does not say."""
        is_empty = self.state is GroupState.EMPTY
        return is_empty and not self.handed_out and self.held_by is None

    # ---- protocols

    def supports(self, protocol_type: str, names: Sequence[str]) -> bool:
        """Return whether a client of this type, with assignors `names`, can be a member."""
        if not self.members:
            return bool(protocol_type) and bool(names)
        if protocol_type != self.protocol_type:
            return False
        return any(self.supporters.get(name) == len(self.members) for name in names)

    def choose_protocol(self) -> str:
        """Return the assignor with most votes: each member votes for the first that all support.

        Where two have as many votes, the one counts that the earlier member voted for.
        """
        votes: Counter[str] = Counter()
        for member in self.members.values():
            votes[self._vote(member)] += 1
        return votes.most_common(1)[0][0]

    def _vote(self, member: Member) -> str:
        for name, _ in member.protocols:
            if self.supporters[name] == len(self.members):
                return name
        raise AssertionError("members have an assignor in common")

    # ---- timeouts and generations

    @property
    def rebalance_timeout_ms(self) -> int:
        """Return how long members may take to join again: as long as the slowest of them."""
        timeouts = (member.rebalance_timeout_ms for member in self.members.values())
        return max(timeouts, default=0)

    @property
    def next_generation(self) -> int:
        """Return the number of the next generation; a negative one, or the last, is followed by 1.

        A group that begins has generation 0 and goes on with 1.
        """
        if 0 <= self.generation_id < LAST_GENERATION:
            return self.generation_id + 1
        return 1

    def move_to(self, state: GroupState, now_ms: int) -> None:
        """Change the state."""
        assert state in NEXT_STATES[self.state], f"{self.state} is not followed by {state}"
        self.state = state
        self.state_since_ms = now_ms
        # A group at rest needs no such count.
        if state is GroupState.STABLE:
            self._supporters = None

    def record(self, assignments: Mapping[str, bytes]) -> GroupMetadata:
        """Return the group's record with these assignments: member id -> bytes."""
        return GroupMetadata(
            protocol_type=self.protocol_type,
            generation_id=self.generation_id,
            protocol=self.protocol_name,
            leader=self.leader_id,
            state_timestamp_ms=self.state_since_ms,
            members=tuple(
                GroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    session_timeout_ms=member.session_timeout_ms,
                    subscription=member.metadata_for(self.protocol_name),
                    assignment=assignments.get(member.member_id, b""),
                )
                for member in self.members.values()
            ),
        )

    # ---- checks

    def check(self) -> None:
        """Assert what must hold between two steps. For tests: this walks all state."""
        members = self.members.values()

        # Members and the indexes over them.
        assert all(member_id == member.member_id for member_id, member in self.members.items())
        static = {m.group_instance_id: m.member_id for m in members if m.group_instance_id}
        assert self.static_members == static, "each instance id has one member"
        assert (self.leader_id in self.members) == bool(self.members), "a member leads"
        assert not self.handed_out.keys() & self.members.keys(), (
            "an id is handed out, or a member's"
        )
        supporters = Counter(name for member in members for name in dict(member.protocols))
        assert self._supporters in (None, supporters), "the supporters of assignors are counted"
        assert self.metadata_bytes == sum(member.metadata_bytes for member in members)
        least = sum(member.least_metadata_bytes for member in members)
        assert self.least_metadata_bytes == least
        assert not members or len(members) in supporters.values(), "all have one in common"

        # Parked requests.
        joins = [member.parked_join for member in members if member.parked_join is not None]
        syncs = [member.parked_sync for member in members if member.parked_sync is not None]
        assert self.parked_joins == len(joins), "parked joins are counted"
        assert len(set(joins + syncs)) == len(joins + syncs), "a request is parked once"

        # States.
        assert (self.state is GroupState.EMPTY) <= (not self.members), "an empty group is empty"
        is_completing = self.state is GroupState.COMPLETING_REBALANCE
        assert not syncs or is_completing, "a sync is parked while the leader's is waited for"
        assert self.unsynced <= self.members.keys(), "only members sync"
        assert not self.unsynced or is_completing or self.state is GroupState.STABLE
        if is_completing or self.state is GroupState.STABLE:
            assert self.members, "a generation has members"
            assert self.protocol_name is not None, "a generation has an assignor"
        is_preparing = self.state is GroupState.PREPARING_REBALANCE
        assert self.initial_delay is None or is_preparing, "a delay is one of a rebalance"
        assert (self.history is not None) == (is_preparing or is_completing), "a rebalance has one"
        assert self.held_by is None or not self.members, "a held group has no members"


def _member_of_record(group_id: str, member: GroupMember, protocol_name: str) -> Member:
    rebalance_timeout_ms = member.rebalance_timeout_ms
    return Member(
        SessionExpired(group_id, member.member_id),
        member.group_instance_id,
        member.client_id,
        member.client_host,
        # Records of version 0 have one timeout for both.
        member.session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms,
        member.session_timeout_ms,
        ((protocol_name, member.subscription),),
        member.assignment,
    )


def _count_names(supporters: dict[str, int], member: Member, sign: int) -> None:
    """Count a member's assignors in, or out."""
    # A name counts once, however often a member lists it.
    for name in {name for name, _ in member.protocols}:
        count = supporters.get(name, 0) + sign
        if count:
            supporters[name] = count
        else:
            del supporters[name]


def _without(known: Mapping[str, T], key: str) -> Mapping[str, T]:
    """Return `known` without a key: changed in place, and _NOTHING when it was the last."""
    if isinstance(known, dict):
        known.pop(key, None)
    return known or _NOTHING
