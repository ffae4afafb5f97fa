"""The state of one consumer in a group at a coordinator, which `decide` reads and replaces."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

import attrs

from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition

NO_GENERATION = -1
NO_MEMBER_ID = ""


class Phase(Enum):
    """The step that a consumer waits for; `=>` names the phases that may follow.

    From every phase a consumer also goes to CLOSED, when the application leaves or its place is
    taken for good, and to ASIDE when the application asks for no message for too long.
    """

    JOINING = auto()
    """A JoinGroup is in flight, behind all that must be given up before it.

    The generation has begun, and we lead it => ASSIGNING
    ... and another leads it => SYNCING
    It is refused => JOINING, at once or with another identity
    The coordinator is away => BACKING_OFF
    """

    ASSIGNING = auto()
    """The assignment of the whole group is being computed.

    It is there => SYNCING
    It cannot be computed => BACKING_OFF
    """

    SYNCING = auto()
    """A SyncGroup is in flight.

    We have our assignment => STARTING
    The group rebalances once more => JOINING
    The coordinator is away => BACKING_OFF
    """

    STARTING = auto()
    """Committed offsets of the partitions that we got are being read.

    They are delivered => STABLE
    We had to give up others => JOINING
    """

    STABLE = auto()
    """Nothing is to be done but to consume.

    The group rebalances, or our topics have changed => JOINING
    """

    BACKING_OFF = auto()
    """Something failed that may pass.

    The pause ends => JOINING
    """

    ASIDE = auto()
    """Out of the group: the application did not ask for messages for max.poll.interval.ms.

    It asks again => JOINING
    """

    CLOSED = auto()
    """This consumer has ended, and ignores every event. No phase follows."""


_FROM_ANY = frozenset({Phase.CLOSED, Phase.ASIDE})
# A generation may be lost in any phase that has one.
_AND_REJOIN = _FROM_ANY | {Phase.JOINING}

NEXT_PHASES: Mapping[Phase, frozenset[Phase]] = {
    Phase.JOINING: _AND_REJOIN | {Phase.ASSIGNING, Phase.SYNCING, Phase.BACKING_OFF},
    Phase.ASSIGNING: _AND_REJOIN | {Phase.SYNCING, Phase.BACKING_OFF},
    Phase.SYNCING: _AND_REJOIN | {Phase.STARTING, Phase.BACKING_OFF},
    Phase.STARTING: _AND_REJOIN | {Phase.STABLE},
    Phase.STABLE: _AND_REJOIN,
    Phase.BACKING_OFF: _AND_REJOIN,
    Phase.ASIDE: _AND_REJOIN,
    Phase.CLOSED: frozenset(),
}


@frozen
class ConsumerSettings:
    """The settings of a consumer.

    `strategies` are names of assignors, the preferred one first. A consumer is `is_cooperative` if
    all of them are: it then keeps its partitions while the group rebalances (KIP-429).
    """

    group_id: str
    strategies: tuple[str, ...]
    is_cooperative: bool
    group_instance_id: str | None = None
    auto_commit: bool = True
    retry_backoff_ms: int = 100


@frozen
class Consumer:
    """One consumer.

    - `member_id`, `generation_id`: its identity; "" and -1 without one.
    - `round`: number of the last JoinGroup. Results carry it, so that stale ones are recognized.
    - `topics`: those that it subscribes to.
    - `is_leader`: it has assigned the partitions of its generation.
    - `owned`: the partitions that are assigned to it, and delivered or about to be.
    - `undelivered`: those of them whose committed offset is not read yet.
    - `joins_because`: the reason in the last JoinGroup; one that hands out an id is sent twice.
    - `rejoins`: why it has to join once more as soon as it can; None if it need not.
    - `is_suspended`: no heartbeat was accepted for the session timeout. Others may own its
      partitions, so it delivers nothing; it is a member until a coordinator says otherwise.
    - `heartbeats_failed`: what sends heartbeats has ended, and none was accepted since.
    """

    settings: ConsumerSettings
    phase: Phase = Phase.JOINING
    member_id: str = NO_MEMBER_ID
    generation_id: int = NO_GENERATION
    round: int = 0
    topics: frozenset[str] = frozenset()
    protocol_name: str = ""
    is_leader: bool = False
    owned: frozenset[TopicPartition] = frozenset()
    undelivered: frozenset[TopicPartition] = frozenset()
    rejoins: str | None = None
    joins_because: str = ""
    is_suspended: bool = False
    heartbeats_failed: bool = False

    def enter(self, phase: Phase) -> Consumer:
        """Return the consumer in another phase."""
        assert phase in NEXT_PHASES[self.phase], f"{self.phase} is not followed by {phase}"
        return attrs.evolve(self, phase=phase)

    @property
    def has_generation(self) -> bool:
        """Return whether it is a member of a generation."""
        return self.generation_id != NO_GENERATION

    def check(self) -> None:
        """Assert what must hold between two events."""
        assert self.undelivered <= self.owned, "only what is owned is to be delivered"
        assert not self.has_generation or self.member_id, "a generation has members with ids"
        if self.phase in (Phase.ASIDE, Phase.CLOSED):
            assert not self.owned, "who is out of the group owns nothing"
        if self.phase in (Phase.SYNCING, Phase.ASSIGNING, Phase.STARTING, Phase.STABLE):
            assert self.has_generation, "there is a generation from joining on"
        if self.phase is Phase.JOINING and not self.settings.is_cooperative:
            assert not self.owned, "all is given up before joining"
        if self.phase is Phase.STABLE:
            assert self.rejoins is None, "whoever must join again does not rest"
