"""One look at a group in migration, and the obstacles in it that forbid a migration to begin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition
from zk.migration_znodes import GroupMigration, OffsetStorage

Offsets = Mapping[TopicPartition, int]

TITLE = {OffsetStorage.ZOOKEEPER: "ZooKeeper", OffsetStorage.KAFKA: "Kafka"}


@frozen
class Obstacle:
    """A reason why a command cannot do its work. `message` also says what to do about it."""

    what: str
    error: str
    message: str


@frozen
class MemberSeen:
    """A living member.

    - `czxid`: orders its registration among all writes to ZooKeeper.
    - `epoch`: the epoch that it acknowledges. None if it has never acknowledged one, as members
      that are not ours.
    - `settings`: its own settings, "" if unknown.
    """

    czxid: int
    epoch: int | None = None
    settings: str = ""


@frozen(kw_only=True)
class Observation:
    """One look, in this order: the znode, the members, Kafka, ZooKeeper.

    Kafka comes before ZooKeeper: a commit to both that falls in between makes ZooKeeper the larger,
    and Kafka is larger only if it really was.

    - `lost`: partitions that have offsets and no longer exist.
    - `unreadable`: what could not be read of the group, and why.
    - `options`: those that say where the group is, for the next command.
    - `log_starts`, `log_ends`, `unknown_logs` (those whose ends could not be read): empty once a
      migration has begun.
    """

    group: str
    migration: GroupMigration | None = None
    version: int = -1
    mzxid: int = 0
    members: Mapping[str, MemberSeen] = attrs.field(factory=dict)
    coordinated_members: int = 0
    owners: Mapping[TopicPartition, str] = attrs.field(factory=dict)
    kafka: Offsets = attrs.field(factory=dict)
    zookeeper: Offsets = attrs.field(factory=dict)
    lost: frozenset[TopicPartition] = frozenset()
    unreadable: tuple[Obstacle, ...] = ()
    log_starts: Offsets = attrs.field(factory=dict)
    log_ends: Offsets = attrs.field(factory=dict)
    unknown_logs: tuple[Obstacle, ...] = ()
    options: str = ""

    def store(self, storage: OffsetStorage) -> Offsets:
        """Return the offsets in one store, of partitions that exist."""
        offsets = self.zookeeper if storage is OffsetStorage.ZOOKEEPER else self.kafka
        return {
            partition: offset for partition, offset in offsets.items() if partition not in self.lost
        }

    def pair(self, partition: TopicPartition) -> tuple[int | None, int | None]:
        """Return the offsets in ZooKeeper and in Kafka."""
        return self.zookeeper.get(partition), self.kafka.get(partition)

    def missing_in(self, storage: OffsetStorage) -> Offsets:
        """Return the offsets to copy to one store, so that it has what the other has."""
        present = self.store(storage)
        return {
            partition: offset
            for partition, offset in self.store(storage.other).items()
            if present.get(partition) != offset
        }

    @property
    def partitions(self) -> set[TopicPartition]:
        """Partitions whose offsets the migration moves."""
        return (self.kafka.keys() | self.zookeeper.keys()) - self.lost

    @property
    def foreign_members(self) -> dict[str, MemberSeen]:
        """Members that are not ours, and obey no migration."""
        return {name: member for name, member in self.members.items() if member.epoch is None}

    @property
    def not_obeying(self) -> dict[str, MemberSeen]:
        """Members that have not acknowledged the epoch in force."""
        assert self.migration is not None
        epoch = self.migration.epoch
        return {name: member for name, member in self.members.items() if member.epoch != epoch}

    @property
    def proven(self) -> set[str]:
        """Members that do not obey and were seen to write both stores.

        A member that was restarted since then is not among them: it may have other settings under
        the same name.
        """
        names = (self.migration and self.migration.proven) or ()
        members = self.members
        return {name for name in names if name in members and members[name].czxid < self.mzxid}

    def expired(self, storage: OffsetStorage) -> Offsets:
        """Return the offsets in one store whose messages have been deleted."""
        starts = self.log_starts
        return {
            partition: offset
            for partition, offset in self.store(storage).items()
            if offset < starts.get(partition, 0)
        }


def describe_pair(observation: Observation, partition: TopicPartition) -> str:
    """Say what each store holds: `5 in ZooKeeper, nothing in Kafka`."""
    stores = (OffsetStorage.ZOOKEEPER, OffsetStorage.KAFKA)
    offsets = zip(observation.pair(partition), stores, strict=True)
    return ", ".join(
        f"{'nothing' if offset is None else offset} in {TITLE[store]}" for offset, store in offsets
    )


def find_coordinated_members(observation: Observation) -> Iterator[Obstacle]:
    """Yield an obstacle for members of the coordinator: it takes no commit of ours beside them."""
    if observation.coordinated_members:
        yield Obstacle(
            observation.group,
            "NON_EMPTY_GROUP",
            f"{observation.coordinated_members} members have joined through the coordinator, and "
            "keep their offsets in Kafka alone: stop them first",
        )


def find_obstacles(
    observation: Observation, target: OffsetStorage, *, overwrite: bool
) -> tuple[Obstacle, ...]:
    """Return why a migration to `target` must not begin; nothing if it may.

    `overwrite`: the user says that larger offsets in the target are leftovers.
    """
    return (
        *observation.unreadable,
        *observation.unknown_logs,
        *_find_in_group(observation, target),
        *_find_in_offsets(observation, target, overwrite=overwrite),
    )


def _find_in_group(observation: Observation, target: OffsetStorage) -> Iterator[Obstacle]:
    # Nothing to move, and nobody to follow: most likely the name is misspelt.
    is_empty = not observation.members and not observation.coordinated_members
    if is_empty and not observation.partitions:
        text = "it has neither members nor offsets"
        yield Obstacle(observation.group, "GROUP_ID_NOT_FOUND", text)
    yield from find_coordinated_members(observation)

    # An earlier migration has outranked the members' settings since.
    if observation.migration is not None:
        return
    for name, member in sorted(observation.members.items()):
        if member.settings == target:
            yield Obstacle(
                name,
                "INCONSISTENT_SETTINGS",
                f"by its settings it keeps its offsets in {TITLE[target]} alone: what it has "
                f"consumed would not be found in {TITLE[target.other]}",
            )


def _find_in_offsets(
    observation: Observation, target: OffsetStorage, *, overwrite: bool
) -> Iterator[Obstacle]:
    source = observation.store(target.other)
    present = observation.store(target)

    for partition in sorted(present.keys() | source.keys()):
        # The target must not hold more than the source.
        if partition not in source:
            yield Obstacle(
                str(partition),
                "DIVERGED",
                f"{present[partition]} in {TITLE[target]} and nothing in {TITLE[target.other]}: is "
                f"the group in {TITLE[target]} already?",
            )
        elif present.get(partition, -1) > source[partition] and not overwrite:
            yield Obstacle(
                str(partition),
                "DIVERGED",
                f"{present[partition]} in {TITLE[target]} is ahead of {source[partition]} in "
                f"{TITLE[target.other]}: if that is a leftover, use --overwrite",
            )

        # The source's offset must be in the log.
        # An end that could not be read is an obstacle by itself (`unknown_logs`).
        if source.get(partition, -1) > observation.log_ends.get(partition, 2**63):
            yield Obstacle(
                str(partition),
                "OFFSET_OUT_OF_RANGE",
                f"{source[partition]} is beyond the end of the log, "
                f"{observation.log_ends[partition]}",
            )
