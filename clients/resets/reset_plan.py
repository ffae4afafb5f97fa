"""Plan where a group's offsets are to be: a position that is wanted, and facts, give rows. Pure.

The positions are those of Kafka's `--reset-offsets`, and mean the same: what lies outside of a log
is moved to its nearest end, a time after the last record means the log's end, and a partition
without an offset cannot be shifted.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum

import attrs

from clients.admin.descriptions import CONSUMER_GROUP
from clients.command_line.output import Failure
from clients.groups.group_facts import GroupFacts, counting_store
from clients.resets.offset_change import OffsetChange
from protocol.frozen import frozen
from protocol.topic_partition import OffsetAndMetadata, TopicPartition


class Named(Enum):
    """A position that needs no number."""

    EARLIEST = "earliest"
    LATEST = "latest"
    CURRENT = "current"


@frozen
class ToOffset:
    """This offset in every partition."""

    offset: int


@frozen
class ShiftBy:
    """So many messages behind the present offset; a negative number goes back."""

    messages: int


@frozen
class ToTime:
    """The first message at or after a time (ms)."""

    time_ms: int


@frozen
class ToOffsets:
    """An offset, with metadata, for each partition by itself: from a file or another group."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata]


Position = Named | ToOffset | ShiftBy | ToTime | ToOffsets


@frozen
class LogRange:
    """The start and end (exclusive) of a log; `at_time` is the offset at the time that is wanted.

    `at_time` is None if no time is wanted, or no message is that young.
    """

    start: int
    end: int
    at_time: int | None = None


@frozen
class PlannedOffset:
    """A partition's row: the group's present offset, the new one, and the changes of the stores.

    `old_ms` and `new_ms` are the timestamps of the messages there; None if they are not known.
    `note` says why the new offset is not what was asked for.
    """

    partition: TopicPartition
    old: int | None
    new: int
    changes: tuple[OffsetChange, ...]
    note: str | None = None
    old_ms: int | None = None
    new_ms: int | None = None

    @property
    def skips(self) -> int | None:
        """Number of messages that the group will not see; None without an old offset."""
        return None if self.old is None else max(0, self.new - self.old)

    @property
    def repeats(self) -> int | None:
        """Number of messages that the group will see again; None without an old offset."""
        return None if self.old is None else max(0, self.old - self.new)

    @property
    def span_ms(self) -> int | None:
        """Time between the messages at both offsets: that is skipped, or repeated."""
        if self.old_ms is None or self.new_ms is None:
            return None
        return abs(self.new_ms - self.old_ms)


class NoPosition(ValueError):
    """The reason why a partition has no new offset."""


def plan_rows(
    facts: GroupFacts, position: Position, logs: Mapping[TopicPartition, LogRange]
) -> tuple[list[PlannedOffset], list[Failure]]:
    """Return a row for each partition in `logs`, and a failure for each that has no new offset."""
    rows: list[PlannedOffset] = []
    failures: list[Failure] = []
    for partition, log in sorted(logs.items()):
        old = facts.current_offset(partition)
        try:
            new, note = find_offset(position, partition, old, log)
        except NoPosition as error:
            failures.append(Failure(str(partition), type(error).__name__, str(error)))
            continue

        changes = changes_of(facts, partition, new)
        rows.append(PlannedOffset(partition, old, new.offset, changes, note))

    return rows, failures


def find_offset(
    position: Position, partition: TopicPartition, old: int | None, log: LogRange
) -> tuple[OffsetAndMetadata, str | None]:
    """Return the new offset, and a note if it is not what was asked for. Raises NoPosition."""
    match position:
        case Named.EARLIEST:
            return OffsetAndMetadata(log.start), None
        case Named.LATEST:
            return OffsetAndMetadata(log.end), None
        case Named.CURRENT:
            # Kafka's tool commits the end for a partition that has no offset yet.
            return OffsetAndMetadata(log.end if old is None else old), None
        case ToTime():
            if log.at_time is None:
                text = f"{partition} has no message that young: set to the log end {log.end}"
                return OffsetAndMetadata(log.end), text
            return OffsetAndMetadata(log.at_time), None
        case ShiftBy(messages):
            if old is None:
                raise NoPosition("cannot be shifted, since it has no committed offset")
            return in_range(OffsetAndMetadata(old + messages), partition, log)
        case ToOffset(offset):
            return in_range(OffsetAndMetadata(offset), partition, log)
        case ToOffsets(offsets):
            return in_range(offsets[partition], partition, log)


def in_range(
    wanted: OffsetAndMetadata, partition: TopicPartition, log: LogRange
) -> tuple[OffsetAndMetadata, str | None]:
    """Return an offset, or the nearest end of its log, and then a note with Kafka's sentences."""
    text = f"New offset ({wanted.offset}) is %s than %s offset for topic partition {partition}. "
    if wanted.offset > log.end:
        note = text % ("higher", "latest") + f"Value will be set to {log.end}"
        return attrs.evolve(wanted, offset=log.end, leader_epoch=-1), note
    if wanted.offset < log.start:
        note = text % ("lower", "earliest") + f"Value will be set to {log.start}"
        return attrs.evolve(wanted, offset=log.start, leader_epoch=-1), note
    return wanted, None


# --- stores


def changes_of(
    facts: GroupFacts, partition: TopicPartition, new: OffsetAndMetadata
) -> tuple[OffsetChange, ...]:
    """Return the change of each store that the group may read."""
    return tuple(
        OffsetChange(partition, store, held_in(facts, store, partition), kept_by(store, new))
        for store in stores_of(facts, partition)
    )


def stores_of(facts: GroupFacts, partition: TopicPartition) -> tuple[str, ...]:
    """Return the stores to write, so that the group finds the offset wherever it looks."""
    if facts.is_dual(partition):
        return ("zookeeper", "kafka")
    if facts.storage in ("zookeeper", "kafka"):
        return (facts.storage,)
    if winner := facts.winner(partition):
        return (winner,)

    # No offset yet: the group's other partitions say which store it uses, or the side it is on.
    in_zookeeper = facts.zookeeper is not None and facts.coordination != "coordinator"
    in_kafka = facts.coordinator is not None and bool(facts.coordinator.offsets)
    return ("zookeeper",) if in_zookeeper and not in_kafka else ("kafka",)


def held_in(facts: GroupFacts, store: str, partition: TopicPartition) -> OffsetAndMetadata | None:
    """Return what a store holds."""
    if store == "kafka":
        return facts.kafka_offset(partition)
    in_zookeeper = facts.zk_offset(partition)
    return None if in_zookeeper is None else OffsetAndMetadata(in_zookeeper.offset)


def kept_by(store: str, offset: OffsetAndMetadata) -> OffsetAndMetadata:
    """Return what a store keeps of an offset: ZooKeeper has no metadata and no leader epochs."""
    return offset if store == "kafka" else OffsetAndMetadata(offset.offset)


def find_twins(facts: GroupFacts, changes: Collection[OffsetChange]) -> list[OffsetChange]:
    """Return the same changes for stores that count now, and that they do not name.

    They are of a time before a migration of the group; without one there are none.
    """
    if counting_store(facts.storage) is None:
        return []
    named = {change.place for change in changes}
    return [
        OffsetChange(
            change.partition,
            store,
            None if change.old is None else kept_by(store, change.old),
            None if change.new is None else kept_by(store, change.new),
        )
        for change in changes
        for store in stores_of(facts, change.partition)
        if (store, change.partition) not in named
    ]


# --- who may not be reset


def refusal(facts: GroupFacts, *, online: bool | None = None) -> str | None:
    """Return why the group's offsets may not be written, and what to do; None if they may.

    `online` is None for a command that has no --online.
    """
    in_zookeeper = () if facts.zookeeper is None else facts.zookeeper.members
    if in_zookeeper and online:
        return (
            f"group '{facts.group}' has members in ZooKeeper, which go on from where they are: "
            "stop them, and run the command without --online"
        )

    is_inactive = not facts.members and facts.state in ("Empty", "Dead")
    if is_inactive or online:
        return None

    # Its members may be there: what kept the coordinator from telling is a failure beside this.
    if facts.coordinator is None and not facts.members:
        return (
            f"group '{facts.group}' could not be read, so it may have members: nothing is written"
        )

    # The first sentence is Kafka's.
    what = "Offsets can only be written" if online is None else "Assignments can only be reset"
    text = (
        f"{what} if the group '{facts.group}' is inactive, but the current state is {facts.state}."
    )
    members = sorted({member.client_id or member.consumer_id for member in facts.members})
    names = f" ({', '.join(members[:3])}{', …' if len(members) > 3 else ''})" if members else ""
    return f"{text} Stop its members{names}{_or_online(facts, online=online)}"


def _or_online(facts: GroupFacts, *, online: bool | None) -> str:
    """Return the other way out, for groups whose members a coordinator can remove."""
    coordinator, zookeeper = facts.coordinator, facts.zookeeper
    if online is None or coordinator is None or (zookeeper is not None and zookeeper.members):
        return ""
    # Members of the protocol `consumer` cannot be removed (KIP-848).
    return "" if coordinator.type == CONSUMER_GROUP else ", or use --online"


# --- files


def csv_rows(rows: Iterable[PlannedOffset], group_id: str | None) -> str:
    """Return Kafka's CSV, which has no header; `group_id` is the first field if there are several.

    Kafka's tool does not quote names either: a group's may not have a comma in such a file.
    """
    first = "" if group_id is None else f"{_quoted(group_id)},"
    return "".join(
        f"{first}{_quoted(row.partition.topic)},{row.partition.partition},{row.new}\n"
        for row in rows
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if any(c in name for c in ',"\n\r') else name
