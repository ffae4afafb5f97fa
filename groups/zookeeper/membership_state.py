"""The state of one member of a ZooKeeper group, which `membership.decide` reads and replaces."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

import attrs

from groups.zookeeper.effects import ClaimOwners
from groups.zookeeper.events import GroupSnapshot
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition


class Phase(Enum):
    """The step of a round that a member waits for; `=>` names the phases that may follow.

    From every phase but CLOSED a member also goes to OFFLINE when its session expires or another
    one begins, and to CLOSED when the application leaves or the session is closed.
    """

    OFFLINE = auto()
    """There is no session; nothing is held or delivered.

    A session begins => REGISTERING
    """

    REGISTERING = auto()
    """Our ids node is being created, or will be after a pause.

    It stands => READING_GROUP
    It failed => REGISTERING
    The id is in use, and we have never joined => CLOSED
    """

    DEBOUNCING = auto()
    """Something has changed; we wait for the rest of the burst.

    The timer ends => READING_GROUP
    """

    READING_GROUP = auto()
    """Members and topics are being read.

    All is read => READING_OWNERS
    The group changed meanwhile => DEBOUNCING
    The reading failed or makes no sense, or strategies conflict => BACKING_OFF
    Our own registration is gone => REGISTERING
    Our strategy conflicts with the group's, and we have never joined => CLOSED
    """

    READING_OWNERS = auto()
    """The owner nodes that concern us are being read.

    Something is free, or moves between our threads => CLAIMING
    Nothing is => FETCHING_OFFSETS
    The reading failed, or the same claim has failed too often => BACKING_OFF
    ... and the group has changed => DEBOUNCING
    """

    CLAIMING = auto()
    """A claim is in flight.

    It stands => FETCHING_OFFSETS
    A peer was faster => READING_OWNERS
    It failed otherwise => BACKING_OFF
    ... and the group has changed => DEBOUNCING
    """

    FETCHING_OFFSETS = auto()
    """Committed offsets of our partitions that are not delivered yet are being read.

    All that we should have is delivered => SETTLED
    Some of it is not => BACKING_OFF
    None of it is for long, and others could consume it => ASIDE
    The group has changed => DEBOUNCING
    """

    BACKING_OFF = auto()
    """The round has left something undone; we try again after a pause.

    The timer ends => READING_GROUP
    Something changes => DEBOUNCING
    """

    SETTLED = auto()
    """All that the assignment gives us is delivered.

    Something changes => DEBOUNCING
    The audit is due => READING_GROUP
    A release turns out to have failed => BACKING_OFF
    """

    ASIDE = auto()
    """Out of the group while no offset can be read, so that others take our share.

    An offset can be read => REGISTERING
    """

    CLOSED = auto()
    """This member has ended, and ignores every event. No phase follows."""


_FROM_ANY = frozenset({Phase.OFFLINE, Phase.CLOSED})

NEXT_PHASES: Mapping[Phase, frozenset[Phase]] = {
    Phase.OFFLINE: _FROM_ANY | {Phase.REGISTERING},
    Phase.REGISTERING: _FROM_ANY | {Phase.REGISTERING, Phase.READING_GROUP},
    Phase.DEBOUNCING: _FROM_ANY | {Phase.READING_GROUP},
    Phase.READING_GROUP: _FROM_ANY
    | {Phase.READING_OWNERS, Phase.DEBOUNCING, Phase.BACKING_OFF, Phase.REGISTERING},
    Phase.READING_OWNERS: _FROM_ANY
    | {Phase.CLAIMING, Phase.FETCHING_OFFSETS, Phase.BACKING_OFF, Phase.DEBOUNCING},
    Phase.CLAIMING: _FROM_ANY
    | {Phase.FETCHING_OFFSETS, Phase.READING_OWNERS, Phase.BACKING_OFF, Phase.DEBOUNCING},
    Phase.FETCHING_OFFSETS: _FROM_ANY
    | {Phase.SETTLED, Phase.BACKING_OFF, Phase.DEBOUNCING, Phase.ASIDE},
    Phase.BACKING_OFF: _FROM_ANY | {Phase.READING_GROUP, Phase.DEBOUNCING},
    Phase.SETTLED: _FROM_ANY | {Phase.READING_GROUP, Phase.DEBOUNCING, Phase.BACKING_OFF},
    Phase.ASIDE: _FROM_ANY | {Phase.REGISTERING},
    Phase.CLOSED: frozenset(),
}
"""The legal moves: phase -> the phases that may follow. `Membership.enter` holds members to it."""


AT_REST = frozenset({Phase.SETTLED, Phase.BACKING_OFF})
"""The phases in which a member waits for a change or a timer."""


@frozen
class MembershipSettings:
    """The part of a consumer's settings that its membership follows. Times in ms."""

    partition_assignment_strategy: str = "range"
    exclude_internal_topics: bool = True
    rebalance_max_retries: int = 4
    rebalance_backoff_ms: int = 2000
    auto_commit_enable: bool = True


@frozen
class Membership:
    """One member's view of its group, and how far its round is.

    - `suspended_since_ms`: when the server last answered, while there is no connection.
    - `is_paused`: the lease has ended; nothing is delivered or committed.
    - `has_joined`: a round has settled at least once.
    - `round`, `attempts`: number of the round; pauses since the last round that settled.
    - `has_changed`: a watch fired during the round.
    - `snapshot`: the reading from which `assignment` and `target` were computed. `target` is our
      share of the assignment.
    - `announced`: the assignment that the listener was last given.
    - `held`: partitions whose owner node is, or may be, ours in this session.
    - `delivering`: partition -> thread id, for the partitions that the streams get.
    - `blocked`: partition of the target -> the other member that holds its node.
    - `claim`, `claims_in_vain`: the last claim of this round, and how often it has failed while
      nothing changed.
    - `release_failure`: why a partition that leaves is still owned by us.
    - `has_announced_release`: the listener knows what this round releases.
    - `complaint`: the problem that was reported last.
    """

    consumer_id: str
    settings: MembershipSettings = MembershipSettings()
    phase: Phase = Phase.OFFLINE

    # The session and its lease.
    session_id: int = 0
    suspended_since_ms: int | None = None
    is_paused: bool = False

    # The round.
    has_joined: bool = False
    round: int = 0
    attempts: int = 0
    has_changed: bool = False

    # The three things that a round compares, and what it found.
    snapshot: GroupSnapshot | None = None
    assignment: Mapping[TopicPartition, str] = attrs.field(factory=dict)
    announced: Mapping[TopicPartition, str] | None = None
    target: Mapping[TopicPartition, str] = attrs.field(factory=dict)
    held: frozenset[TopicPartition] = frozenset()
    delivering: Mapping[TopicPartition, str] = attrs.field(factory=dict)
    blocked: Mapping[TopicPartition, str] = attrs.field(factory=dict)

    # What is in the way of settling.
    claim: ClaimOwners | None = None
    claims_in_vain: int = 0
    release_failure: str | None = None
    has_announced_release: bool = False
    complaint: str | None = None

    def enter(self, phase: Phase) -> Membership:
        """Return this member in `phase`."""
        assert phase in NEXT_PHASES[self.phase], f"{self.phase.name} to {phase.name}"
        return attrs.evolve(self, phase=phase)

    def check(self) -> None:
        """Assert what must hold between two events. For tests."""
        self._check_session()
        self._check_partitions()
        if self.phase is Phase.SETTLED:
            self._check_settled()

    def _check_session(self) -> None:
        if self.phase is Phase.OFFLINE:
            assert not self.session_id, "it is offline, and has a session"
            assert not self.held, "it is offline, and holds partitions of the former session"
        elif self.phase is not Phase.CLOSED:
            assert self.session_id, f"{self.phase.name} needs a session"
        if self.is_paused and self.phase not in (Phase.OFFLINE, Phase.CLOSED):
            assert self.suspended_since_ms is not None, "it pauses with a connection"

        between_rounds = (Phase.OFFLINE, Phase.REGISTERING, Phase.ASIDE, *AT_REST)
        if self.phase in between_rounds:
            assert not self.has_changed, f"{self.phase.name} ignores a change of the group"

    def _check_partitions(self) -> None:
        assert self.target.items() <= self.assignment.items(), "the target is not assigned"
        assert self.delivering.keys() <= self.held, "it delivers what it does not hold"
        assert self.delivering.keys().isdisjoint(self.blocked), "it delivers what others hold"
        if self.phase in (Phase.ASIDE, Phase.OFFLINE):
            assert not self.delivering, f"{self.phase.name} delivers nothing"
        if self.phase is Phase.CLAIMING:
            assert self.claim is not None, "it claims nothing"
            assert self.claim.round == self.round, "the claim is of an earlier round"
            assert self.claim.create.keys() <= self.held, "it claims what it will not hold"

    def _check_settled(self) -> None:
        assert self.delivering == self.target, "settled, and its target is not delivered"
        assert not self.blocked, "settled, and others hold a part of its target"
        assert self.release_failure is None, "settled, and a partition is not released"
        assert self.announced == self.assignment, "settled, and the listener knows another"
        assert not self.attempts, "settled, and it counts attempts"
        assert self.complaint is None, "settled, and it complains"

    @property
    def has_new_assignment(self) -> bool:
        """True if the assignment differs from the one that was announced."""
        return self.assignment is not self.announced and self.assignment != self.announced

    @property
    def blockers(self) -> list[tuple[str, list[TopicPartition]]]:
        """Members that hold partitions of our target, each with these partitions."""
        partitions_of: dict[str, list[TopicPartition]] = {}
        for partition, owner in sorted(self.blocked.items()):
            partitions_of.setdefault(owner, []).append(partition)
        return [*partitions_of.items()]
