"""The facts about a consumer group of either kind, and what follows from them.

A group keeps its members in ZooKeeper (`/consumers/G/ids` and `owners`), at a coordinator, or
nowhere (it only commits). It keeps offsets in ZooKeeper, in Kafka, or in both. `GroupFacts` holds
what could be read of all that.

If both stores hold an offset, one of them wins. Members of this library publish the store that they
read, and follow the mode of a migration; for them the winner is known. Of other groups it is Kafka
if the group has a coordinator, and otherwise the larger offset, as in dual-commit mode of the old
consumer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from protocol.frozen import frozen
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from zk.consumer_znodes import ConsumerRegistration

STABLE = "Stable"
"""The state of a group whose members all know their partitions."""

# The store that counts, by `storage`: the dual modes write both and read the one they name.
_WINNER = {
    "zookeeper": "zookeeper",
    "dual-zookeeper": "zookeeper",
    "dual-kafka": "kafka",
    "kafka": "kafka",
}


def counting_store(storage: str | None) -> str | None:
    """Return the store that counts by the `storage` of a group; None if that does not say."""
    return None if storage is None else _WINNER.get(storage)


@frozen
class MemberFacts:
    """A member; `host` and `client_id` are None if its kind of group does not have them."""

    consumer_id: str
    host: str | None = None
    client_id: str | None = None
    partitions: tuple[TopicPartition, ...] = ()
    group_instance_id: str | None = None
    """The name of a static member."""
    foreign_assignment: bytes | None = None
    """Assignment in a protocol that is not the consumers'; its partitions are unknown."""
    streams: int | None = None
    """Number of streams of a member in ZooKeeper."""
    subscription: str | None = None
    """Its registered subscription as text."""
    topics: frozenset[str] | None = None
    """The topics that a consumer at the coordinator subscribes to."""


@frozen
class ZooKeeperOffset:
    """An offset znode: the next offset to consume, and the times of its last and first write."""

    offset: int
    committed_at_ms: int
    created_at_ms: int = -1


@frozen
class LogOffsets:
    """The start and end (exclusive) of a partition's log; None if no leader responded."""

    start: int | None = None
    end: int | None = None
    markers_from: int | None = None
    """From here to the end there are only markers of transactions, and perhaps before it; None
    where nobody looked, or there are records (`clients.groups.marker_tails`)."""
    high_watermark: int | None = None
    """Where `end` is the last stable offset, and a commit is behind that."""

    @property
    def records_end(self) -> int | None:
        """The end without markers behind it, as far as it is known."""
        return self.end if self.markers_from is None else self.markers_from


@frozen
class OffsetTimes:
    """The times of a committed offset, in ms; None where they are not known."""

    committed_at_ms: int | None = None
    expires_at_ms: int | None = None
    next_record_ms: int | None = None
    """Timestamp of the first record that is not consumed."""
    deleted_at_ms: int | None = None
    """The earliest time at which retention may delete that record."""


NO_TIMES = OffsetTimes()


@frozen
class ZooKeeperFacts:
    """The facts below `/consumers/G`."""

    has_ids: bool = False
    """True if the group ever registered a member here."""
    members: tuple[MemberFacts, ...] = ()
    owners: Mapping[TopicPartition, str] = attrs.Factory(dict)
    """Consumer id of each partition's owner, registered or not."""
    streams: Mapping[TopicPartition, int] = attrs.Factory(dict)
    """Number of the owner's stream that consumes each partition."""
    partitions: frozenset[TopicPartition] = frozenset()
    """All partitions of topics that members subscribe to or own. Users look for unowned ones."""
    offsets: Mapping[TopicPartition, ZooKeeperOffset] = attrs.Factory(dict)


@frozen
class CoordinatorFacts:
    """The facts from the group's coordinator; `state` is Kafka's word."""

    state: str
    coordinator: str = ""
    """`host:port (id)`."""
    coordinator_id: int = -1
    type: str = "classic"
    """`classic`, or `consumer` where the coordinator assigns partitions (KIP-848)."""
    protocol_type: str = ""
    assignment_strategy: str = ""
    members: tuple[MemberFacts, ...] = ()
    offsets: Mapping[TopicPartition, OffsetAndMetadata] = attrs.Factory(dict)
    unowned: frozenset[TopicPartition] = frozenset()
    """Partitions of topics that members subscribe to, and which no member owns."""

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that members subscribe to, or own; None without members.

        They are known of a stable group of consumers alone: else it is None too.
        """
        if self.state != STABLE or not self.members:
            return None

        topics: set[str] = set()
        for member in self.members:
            if member.topics is None:
                return None
            topics |= member.topics
            topics.update(partition.topic for partition in member.partitions)
        return frozenset(topics)

    @property
    def exists(self) -> bool:
        """True if the group exists; a coordinator calls unknown groups Dead."""
        return self.state != "Dead" or bool(self.offsets)


@frozen
class GroupFacts:
    """The facts about a group; None for a side that was not, or could not be, read."""

    group: str
    zookeeper: ZooKeeperFacts | None = None
    coordinator: CoordinatorFacts | None = None
    storage: str | None = None
    """Store of the members' offsets: a migration's mode, or the members' own settings; None if
    unknown."""

    @property
    def exists(self) -> bool:
        """True if either side knows the group."""
        return self.zookeeper is not None or (
            self.coordinator is not None and self.coordinator.exists
        )

    @property
    def coordination(self) -> str:
        """The side that assigns partitions to members: `coordinator`, `zookeeper` or `none`."""
        zookeeper, coordinator = self.zookeeper, self.coordinator

        # Both may know the group: those that have members now come first.
        if coordinator is not None and coordinator.members:
            return "coordinator"
        if zookeeper is not None and zookeeper.members:
            return "zookeeper"

        # A protocol type is left of members that were at the coordinator.
        if coordinator is not None and coordinator.protocol_type:
            return "coordinator"
        return "zookeeper" if zookeeper is not None and zookeeper.has_ids else "none"

    @property
    def type(self) -> str:
        """The protocol of the group's members: `classic`, `consumer` or `zookeeper`."""
        coordinator = self.coordinator
        if self.coordination == "zookeeper" or coordinator is None or not coordinator.exists:
            return "zookeeper"
        return coordinator.type

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that members subscribe to; None without members, or if it is not known."""
        has_others = self.zookeeper is not None and bool(self.zookeeper.members)
        if self.coordinator is None or has_others:
            return None
        return self.coordinator.subscribed_topics

    @property
    def has_both_kinds(self) -> bool:
        """True if there are members in ZooKeeper and at the coordinator: each consumes it all."""
        return bool(
            self.zookeeper is not None
            and self.zookeeper.members
            and self.coordinator is not None
            and self.coordinator.members
        )

    @property
    def members(self) -> tuple[MemberFacts, ...]:
        """Members of both kinds, in the order of listings."""
        sides = (self.zookeeper, self.coordinator)
        return tuple(member for side in sides if side is not None for member in side.members)

    @property
    def partitions(self) -> set[TopicPartition]:
        """All partitions that are owned or wait for an owner, or have a committed offset."""
        partitions = {partition for member in self.members for partition in member.partitions}
        if self.zookeeper is not None:
            partitions |= self.zookeeper.partitions | self.zookeeper.owners.keys()
            partitions |= self.zookeeper.offsets.keys()
        if self.coordinator is not None:
            partitions |= self.coordinator.offsets.keys()
            # Nobody consumes them, which no tool would tell of (fault strangers-96).
            partitions |= self.coordinator.unowned
        return partitions

    @property
    def state(self) -> str:
        """Kafka's word; for a group in ZooKeeper derived from its owners.

        "Unknown" if the coordinator, which could not be read, may have members.
        """
        if self.coordinator is None and not self.members:
            return "Unknown"
        if self.coordination == "zookeeper" and self.zookeeper is not None:
            return _state_of_owners(self.zookeeper)
        if self.coordinator is not None and self.coordinator.exists:
            return self.coordinator.state
        return "Empty" if self.exists else "Dead"

    def zk_offset(self, partition: TopicPartition) -> ZooKeeperOffset | None:
        """Return ZooKeeper's offset of the partition."""
        return None if self.zookeeper is None else self.zookeeper.offsets.get(partition)

    def kafka_offset(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """Return the coordinator's offset of the partition."""
        return None if self.coordinator is None else self.coordinator.offsets.get(partition)

    def winner(self, partition: TopicPartition) -> str | None:
        """Return the store whose offset counts, "zookeeper" or "kafka"; None without one."""
        in_zookeeper = self.zk_offset(partition)
        in_kafka = self.kafka_offset(partition)
        if in_zookeeper is None and in_kafka is None:
            return None

        # The members say which store they read.
        if (counting := counting_store(self.storage)) is not None:
            return counting

        # Otherwise the store that has an offset, then the side in charge, then the larger offset.
        if in_zookeeper is None:
            return "kafka"
        if in_kafka is None:
            return "zookeeper"
        if self.coordination == "coordinator" or in_kafka.offset >= in_zookeeper.offset:
            return "kafka"
        return "zookeeper"

    def current_offset(self, partition: TopicPartition) -> int | None:
        """Return the next offset to consume; None without a committed offset that counts."""
        winner = self.winner(partition)
        committed = self.kafka_offset(partition) if winner == "kafka" else self.zk_offset(partition)
        return committed.offset if committed else None

    def is_dual(self, partition: TopicPartition) -> bool:
        """Return whether the group may read either store, so that both must hold its offset."""
        # A group that ZooKeeper does not know has its offsets in Kafka alone.
        if self.zookeeper is None:
            return False

        # Its members say which stores they use.
        if self.storage is not None:
            return self.storage.startswith("dual")

        # Nobody says: if both hold an offset, an old consumer may use the larger one.
        has_both = (
            self.zk_offset(partition) is not None and self.kafka_offset(partition) is not None
        )
        return has_both and self.coordination != "coordinator"

    def is_diverged(self, partition: TopicPartition) -> bool:
        """Return whether the stores differ and should not; an unwritten store may differ."""
        # One store is in use, or only one could be read.
        if self.storage in ("zookeeper", "kafka") or self.coordinator is None:
            return False

        in_zookeeper = self.zk_offset(partition)
        in_kafka = self.kafka_offset(partition)

        # One store lacks the offset, which is a difference only if both should be written.
        if in_zookeeper is None or in_kafka is None:
            differ = (in_zookeeper is None) != (in_kafka is None)
            return differ and self.storage is not None  # otherwise the group may use one store

        return in_zookeeper.offset != in_kafka.offset


def without_offsets(groups: Iterable[GroupFacts]) -> list[str]:
    """Return the groups at coordinators that have neither members nor offsets, and still exist."""
    return [
        facts.group
        for facts in groups
        if (known := facts.coordinator) is not None
        and known.state == "Empty"
        and known.protocol_type in ("consumer", "")
        and not known.offsets
    ]


def _state_of_owners(facts: ZooKeeperFacts) -> str:
    if not facts.members:
        return "Empty"

    # An owner node may outlive its member, until the next rebalance.
    registered = {member.consumer_id for member in facts.members}
    owned = {
        partition for partition, consumer_id in facts.owners.items() if consumer_id in registered
    }
    is_settled = owned >= facts.partitions | facts.owners.keys()
    return "Stable" if is_settled else "PreparingRebalance"


# Kafka's default consumer id, without its group.
_DEFAULT_FORM = re.compile(r"(?P<host>.+)-\d+-[0-9a-f]{8}")


def host_of(group: str, consumer_id: str) -> str | None:
    """Return the host in a consumer id `<group>_<host>-<ms>-<8 hex>`; None for other forms."""
    # A group's name may have any form, so it is taken off as it is and not matched.
    match = _DEFAULT_FORM.fullmatch(consumer_id.removeprefix(f"{group}_"))
    return match["host"] if match and consumer_id.startswith(f"{group}_") else None


def zookeeper_members(
    group: str,
    ids: Sequence[str],
    owners: Mapping[TopicPartition, str],
    registrations: Mapping[str, ConsumerRegistration] | None = None,
) -> tuple[MemberFacts, ...]:
    """Return the registered members with the partitions they own.

    `owners` has consumer ids. Members whose registration could be read have their subscription.
    """
    # Partitions by their owners.
    owned: dict[str, list[TopicPartition]] = {}
    for partition in sorted(owners):
        owned.setdefault(owners[partition], []).append(partition)

    members = []
    for consumer_id in sorted(ids):
        registration = (registrations or {}).get(consumer_id)
        streams = subscription = None
        if registration is not None:
            streams = max(registration.subscription.values(), default=0)
            subscription = _subscription_text(registration)

        members.append(
            MemberFacts(
                consumer_id,
                host_of(group, consumer_id),
                partitions=tuple(owned.get(consumer_id, ())),
                streams=streams,
                subscription=subscription,
            )
        )
    return tuple(members)


def _subscription_text(registration: ConsumerRegistration) -> str:
    """Return `static flights=2`, `white_list fl.*=1`: streams for each topic or pattern."""
    entries = (f"{name}={count}" for name, count in sorted(registration.subscription.items()))
    return " ".join([registration.pattern, *entries])
