"""What a member of a ZooKeeper group knows: the state that `membership.decide` makes and reads."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

import attrs

from groups.zookeeper.effects import ClaimOwners
from groups.zookeeper.events import GroupSnapshot
from protocol.topic_partition import TopicPartition


class Phase(Enum):
    """Where a member is in its round: what it waits for."""

    OFFLINE = auto()
    REGISTERING = auto()
    DEBOUNCING = auto()
    READING_GROUP = auto()
    READING_OWNERS = auto()
    CLAIMING = auto()
    FETCHING_OFFSETS = auto()
    BACKING_OFF = auto()
    SETTLED = auto()
    ASIDE = auto()
    """Out of the group while no offset can be read, so that others have our share."""
    CLOSED = auto()


@attrs.frozen
class MembershipSettings:
    """The part of a consumer's settings that its membership follows. Times in ms."""

    partition_assignment_strategy: str = "range"
    exclude_internal_topics: bool = True
    rebalance_max_retries: int = 4
    rebalance_backoff_ms: int = 2000
    auto_commit_enable: bool = True


@attrs.frozen
class Membership:
    """What a member knows.

    `snapshot`: the reading that `assignment` was worked out from. `held`: partitions whose owner
    node is, or may be, ours in this session. `delivering`: what the streams get, with the thread.
    `target`: what the assignment of this round gives us. `blocked`: what of it another member still
    holds, and which. `claim`: what this round claimed last, and `claims_in_vain` how often it has
    failed with nothing changed since. `unreleased`: why what leaves has not left yet. `changed`:
    watches fired during the round. `told`: the listener knows of this round's releases.
    `complaint`: what was reported last.
    """

    consumer_id: str
    settings: MembershipSettings = MembershipSettings()
    phase: Phase = Phase.OFFLINE
    session_id: int = 0
    suspended_since_ms: int | None = None
    paused: bool = False
    joined: bool = False
    round: int = 0
    attempts: int = 0
    changed: bool = False
    snapshot: GroupSnapshot | None = None
    assignment: Mapping[TopicPartition, str] = attrs.field(factory=dict)
    announced: Mapping[TopicPartition, str] | None = None
    target: Mapping[TopicPartition, str] = attrs.field(factory=dict)
    held: frozenset[TopicPartition] = frozenset()
    delivering: Mapping[TopicPartition, str] = attrs.field(factory=dict)
    blocked: Mapping[TopicPartition, str] = attrs.field(factory=dict)
    claim: ClaimOwners | None = None
    claims_in_vain: int = 0
    unreleased: str | None = None
    told: bool = False
    complaint: str | None = None

    @property
    def is_news(self) -> bool:
        """Whether the assignment is another than the one that was announced."""
        return self.assignment is not self.announced and self.assignment != self.announced

    @property
    def in_the_way(self) -> list[tuple[str, list[TopicPartition]]]:
        """Who holds what is to be ours, and what of it."""
        held: dict[str, list[TopicPartition]] = {}
        for partition, owner in sorted(self.blocked.items()):
            held.setdefault(owner, []).append(partition)
        return [*held.items()]
