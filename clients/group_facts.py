"""What is known of a consumer group: facts of both kinds of group, and what follows from them.

A group keeps its membership in ZooKeeper (`/consumers/G/ids` and `owners`), with a coordinator, or
nowhere (it only commits). It keeps offsets in ZooKeeper, in Kafka, or in both. `GroupFacts` holds
whatever of that could be read.

Which store wins when both hold an offset is known for members of this library, which say what they
read, and during a migration, whose mode they obey. Else it is Kafka's for a group with a
coordinator, and the greater for any other, as the old consumer has it in dual-commit mode.
"""

import re
from collections.abc import Mapping, Sequence

import attrs

from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from zk.znodes import ConsumerRegistration

_WINNER = {
    "zookeeper": "zookeeper",
    "dual-zookeeper": "zookeeper",
    "dual-kafka": "kafka",
    "kafka": "kafka",
}


@attrs.frozen
class Member:
    """One member; `host` and `client_id` are None where the group's kind does not tell them."""

    consumer_id: str
    host: str | None = None
    client_id: str | None = None
    partitions: tuple[TopicPartition, ...] = ()
    streams: int | None = None
    """How many a member in ZooKeeper registered."""
    subscription: str | None = None
    """What it registered for, as text."""


@attrs.frozen
class ZooKeeperOffset:
    """An offset znode: the next offset to consume, and when it was last written."""

    offset: int
    committed_at_ms: int


@attrs.frozen
class LogOffsets:
    """Where a partition's log starts and ends (exclusive); None where no leader answered."""

    start: int | None = None
    end: int | None = None


@attrs.frozen
class ZooKeeperFacts:
    """What lies below `/consumers/G`."""

    has_ids: bool = False
    """Whether the group ever registered a member here."""
    members: tuple[Member, ...] = ()
    owners: Mapping[TopicPartition, str] = attrs.Factory(dict)
    """Partition to the consumer id of its owner, registered or not."""
    streams: Mapping[TopicPartition, int] = attrs.Factory(dict)
    """Partition to the number of the owner's stream that consumes it."""
    partitions: frozenset[TopicPartition] = frozenset()
    """All there are of the topics its members subscribe to or own: an unowned one is what one
    looks for."""
    offsets: Mapping[TopicPartition, ZooKeeperOffset] = attrs.Factory(dict)


@attrs.frozen
class CoordinatorFacts:
    """What the group's coordinator answers; `state` is Kafka's word."""

    state: str
    coordinator: str = ""
    """`host:port (id)`."""
    protocol_type: str = ""
    assignment_strategy: str = ""
    members: tuple[Member, ...] = ()
    offsets: Mapping[TopicPartition, OffsetAndMetadata] = attrs.Factory(dict)

    @property
    def known(self) -> bool:
        """Whether there is such a group: a coordinator calls one it never heard of Dead."""
        return self.state != "Dead" or bool(self.offsets)


@attrs.frozen
class GroupFacts:
    """All that is known of one group; None for a side that was not, or could not be, asked."""

    group: str
    zookeeper: ZooKeeperFacts | None = None
    coordinator: CoordinatorFacts | None = None
    storage: str | None = None
    """Where its members keep offsets: a migration's mode, or what they say of their settings;
    None when that is not known."""

    @property
    def exists(self) -> bool:
        """Whether either side knows it."""
        return self.zookeeper is not None or (
            self.coordinator is not None and self.coordinator.known
        )

    @property
    def coordination(self) -> str:
        """Who decides which member owns what: `coordinator`, `zookeeper` or `none`."""
        if self.coordinator is not None and self.coordinator.protocol_type:
            return "coordinator"
        if self.zookeeper is not None and self.zookeeper.has_ids:
            return "zookeeper"
        return "none"

    @property
    def members(self) -> tuple[Member, ...]:
        """Of both kinds, in the order they should be listed."""
        sides = (self.zookeeper, self.coordinator)
        return tuple(member for side in sides if side is not None for member in side.members)

    @property
    def partitions(self) -> set[TopicPartition]:
        """Every partition that is owned or waits to be, or that an offset is kept for."""
        found = {tp for member in self.members for tp in member.partitions}
        if self.zookeeper is not None:
            found |= self.zookeeper.partitions | self.zookeeper.owners.keys()
            found |= self.zookeeper.offsets.keys()
        if self.coordinator is not None:
            found |= self.coordinator.offsets.keys()
        return found

    @property
    def state(self) -> str:
        """Kafka's word; for a group in ZooKeeper judged by its owners."""
        if self.coordination == "zookeeper" and self.zookeeper is not None:
            return _state_of_owners(self.zookeeper)
        if self.coordinator is not None and self.coordinator.known:
            return self.coordinator.state
        return "Empty" if self.exists else "Dead"

    def zk_offset(self, tp: TopicPartition) -> ZooKeeperOffset | None:
        """What ZooKeeper holds for the partition."""
        return None if self.zookeeper is None else self.zookeeper.offsets.get(tp)

    def kafka_offset(self, tp: TopicPartition) -> OffsetAndMetadata | None:
        """What the coordinator holds for the partition."""
        return None if self.coordinator is None else self.coordinator.offsets.get(tp)

    def winner(self, tp: TopicPartition) -> str | None:
        """The store whose offset counts, "zookeeper" or "kafka"; None when neither holds one."""
        in_zookeeper, in_kafka = self.zk_offset(tp), self.kafka_offset(tp)
        if in_zookeeper is None and in_kafka is None:
            return None
        if self.storage in _WINNER:
            return _WINNER[self.storage]
        if in_zookeeper is None:
            return "kafka"
        if in_kafka is None:
            return "zookeeper"
        if self.coordination == "coordinator" or in_kafka.offset >= in_zookeeper.offset:
            return "kafka"
        return "zookeeper"

    def current_offset(self, tp: TopicPartition) -> int | None:
        """The next offset the group will consume; None when nothing that counts is committed."""
        winner = self.winner(tp)
        held = self.kafka_offset(tp) if winner == "kafka" else self.zk_offset(tp)
        return held.offset if held else None

    def is_diverged(self, tp: TopicPartition) -> bool:
        """Whether the stores differ where they should not: one that is not written may."""
        if self.storage in ("zookeeper", "kafka") or self.coordinator is None:
            return False
        in_zookeeper, in_kafka = self.zk_offset(tp), self.kafka_offset(tp)
        if in_zookeeper is None or in_kafka is None:
            differ = (in_zookeeper is None) != (in_kafka is None)
            return differ and self.storage is not None  # else: a group that knows one store
        return in_zookeeper.offset != in_kafka.offset


def _state_of_owners(facts: ZooKeeperFacts) -> str:
    if not facts.members:
        return "Empty"
    registered = {member.consumer_id for member in facts.members}
    owned = {tp for tp, consumer_id in facts.owners.items() if consumer_id in registered}
    settled = owned >= facts.partitions | facts.owners.keys()
    return "Stable" if settled else "PreparingRebalance"


_DEFAULT_FORM = re.compile(r"(?P<host>.+)-\d+-[0-9a-f]{8}")


def host_of(group: str, consumer_id: str) -> str | None:
    """The host in a ZooKeeper consumer id `<group>_<host>-<ms>-<8 hex>`; None in another form."""
    match = _DEFAULT_FORM.fullmatch(consumer_id.removeprefix(f"{group}_"))
    return match["host"] if match and consumer_id.startswith(f"{group}_") else None


def zookeeper_members(
    group: str,
    ids: Sequence[str],
    owners: Mapping[TopicPartition, str],
    registrations: Mapping[str, ConsumerRegistration] | None = None,
) -> tuple[Member, ...]:
    """The registered members with what each owns and, where its registration could be read, wants.

    `owners` maps to consumer ids.
    """
    read = registrations or {}
    owned: dict[str, list[TopicPartition]] = {}
    for tp in sorted(owners):
        owned.setdefault(owners[tp], []).append(tp)
    return tuple(
        Member(
            id_,
            host_of(group, id_),
            partitions=tuple(owned.get(id_, ())),
            streams=max(read[id_].subscription.values(), default=0) if id_ in read else None,
            subscription=_subscription_text(read[id_]) if id_ in read else None,
        )
        for id_ in sorted(ids)
    )


def _subscription_text(registration: ConsumerRegistration) -> str:
    """`static flights=2`, `white_list fl.*=1`: streams behind each topic or pattern."""
    wanted = (f"{name}={count}" for name, count in sorted(registration.subscription.items()))
    return " ".join([registration.pattern, *wanted])
