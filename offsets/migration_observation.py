"""What a migration is decided on: one look at a group, and what in it forbids to begin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from protocol.topic_partition import TopicPartition
from zk.migration_znodes import GroupMigration, OffsetStorage

Offsets = Mapping[TopicPartition, int]

TITLE = {OffsetStorage.ZOOKEEPER: "ZooKeeper", OffsetStorage.KAFKA: "Kafka"}


@attrs.frozen
class Obstacle:
    """What stands in the way, and what to do about it."""

    what: str
    error: str
    message: str


@attrs.frozen
class MemberSeen:
    """A living member. `epoch`: what it acknowledges, None if it never said anything, which is what
    members that are not ours do. `settings`: its own, "" if unknown. `czxid` orders its
    registration among all writes to ZooKeeper."""

    czxid: int
    epoch: int | None = None
    settings: str = ""


@attrs.frozen(kw_only=True)
class Observation:
    """One look, in this order: the znode, the members, Kafka, ZooKeeper.

    Kafka before ZooKeeper: a commit to both that falls in between makes ZooKeeper the larger, and
    Kafka is larger only where it really was. `lost`: partitions that have offsets and do not exist
    any more. `unreadable`: what could not be read of the group, and why. `log_starts`, `log_ends`
    and `unknown_logs`, those whose ends nobody tells, are empty once a migration is under way.
    """

    group: str
    now_ms: int
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

    def store(self, storage: OffsetStorage) -> Offsets:
        """What one store holds, of partitions that exist."""
        held = self.zookeeper if storage is OffsetStorage.ZOOKEEPER else self.kafka
        return {p: offset for p, offset in held.items() if p not in self.lost}

    def pair(self, partition: TopicPartition) -> tuple[int | None, int | None]:
        """What ZooKeeper and Kafka hold."""
        return self.zookeeper.get(partition), self.kafka.get(partition)

    def behind(self, storage: OffsetStorage) -> Offsets:
        """What one store would have to be told to hold what the other does."""
        held = self.store(storage)
        return {p: o for p, o in self.store(storage.other).items() if held.get(p) != o}

    @property
    def partitions(self) -> set[TopicPartition]:
        """Those whose offsets move."""
        return (self.kafka.keys() | self.zookeeper.keys()) - self.lost

    @property
    def foreign_members(self) -> dict[str, MemberSeen]:
        """Members that are not ours, and obey nobody."""
        return {name: seen for name, seen in self.members.items() if seen.epoch is None}

    @property
    def not_obeying(self) -> dict[str, MemberSeen]:
        """Members that have not acknowledged the epoch in force."""
        assert self.migration is not None
        epoch = self.migration.epoch
        return {name: seen for name, seen in self.members.items() if seen.epoch != epoch}

    @property
    def proven(self) -> set[str]:
        """Members that do not obey and were seen to write both stores, if they still are who they
        were then: one that was restarted since may have other settings under the same name."""
        names = (self.migration and self.migration.proven) or ()
        there = self.members
        return {name for name in names if name in there and there[name].czxid < self.mzxid}

    def expired(self, storage: OffsetStorage) -> Offsets:
        """What one store holds of messages that are deleted by now."""
        starts = self.log_starts
        return {p: o for p, o in self.store(storage).items() if o < starts.get(p, 0)}


def apart(seen: Observation, partition: TopicPartition) -> str:
    """What each store holds: `5 in ZooKeeper, nothing in Kafka`."""
    held = zip(seen.pair(partition), (OffsetStorage.ZOOKEEPER, OffsetStorage.KAFKA), strict=True)
    return ", ".join(
        f"{'nothing' if offset is None else offset} in {TITLE[store]}" for offset, store in held
    )


def joined_elsewhere(seen: Observation) -> Iterator[Obstacle]:
    """Members of the other kind: while there are any, the coordinator takes no commit of ours."""
    if seen.coordinated_members:
        yield Obstacle(
            seen.group,
            "NON_EMPTY_GROUP",
            f"{seen.coordinated_members} members have joined through the coordinator, and keep "
            "their offsets in Kafka alone: stop them first",
        )


def refusals(seen: Observation, target: OffsetStorage, *, overwrite: bool) -> tuple[Obstacle, ...]:
    """Why a migration to `target` must not begin; none if it may.

    `overwrite`: the user says that offsets of the target are leftovers, where they are larger.
    """
    return (
        *seen.unreadable,
        *seen.unknown_logs,
        *_of_the_group(seen, target),
        *_of_offsets(seen, target, overwrite=overwrite),
    )


def _of_the_group(seen: Observation, target: OffsetStorage) -> Iterator[Obstacle]:
    if not seen.members and not seen.partitions and not seen.coordinated_members:
        yield Obstacle(seen.group, "GROUP_ID_NOT_FOUND", "it has neither members nor offsets")
    yield from joined_elsewhere(seen)
    if seen.migration is not None:  # settings have been outranked since
        return
    for name, member in sorted(seen.members.items()):
        if member.settings == target:
            yield Obstacle(
                name,
                "INCONSISTENT_SETTINGS",
                f"by its settings it keeps its offsets in {TITLE[target]} alone: what it has "
                f"consumed would not be found in {TITLE[target.other]}",
            )


def _of_offsets(seen: Observation, target: OffsetStorage, *, overwrite: bool) -> Iterator[Obstacle]:
    source, held = seen.store(target.other), seen.store(target)
    for p in sorted(held.keys() | source.keys()):
        if p not in source:
            yield Obstacle(
                str(p),
                "DIVERGED",
                f"{held[p]} in {TITLE[target]} and nothing in {TITLE[target.other]}: is the group "
                f"in {TITLE[target]} already?",
            )
        elif held.get(p, -1) > source[p] and not overwrite:
            yield Obstacle(
                str(p),
                "DIVERGED",
                f"{held[p]} in {TITLE[target]} is ahead of {source[p]} in {TITLE[target.other]}: "
                "if that is a leftover, use --overwrite",
            )
        if source.get(p, -1) > seen.log_ends.get(p, 2**63):
            yield Obstacle(
                str(p),
                "OFFSET_OUT_OF_RANGE",
                f"{source[p]} is beyond the end of the log, {seen.log_ends[p]}",
            )
