"""A consumer group as tables show it: facts of both kinds of group in, rows out.

A group keeps its membership in ZooKeeper (`/consumers/G/ids` and `owners`), with a coordinator, or
nowhere (it only commits). It keeps offsets in ZooKeeper, in Kafka, or in both. `GroupFacts` holds
whatever of that could be read; the functions here turn it into items for `clients.output`.

Which offset is the current one when both stores hold one: a group with a coordinator uses Kafka's;
for any other it is the greater, as the old consumer does when it fetches in dual-commit mode.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import attrs

from clients.lag import Position, lag_of
from clients.output import Column, plain
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

Item = dict[str, Any]


@attrs.frozen
class Member:
    """One member; `host` and `client_id` are None where the group's kind does not tell them."""

    consumer_id: str
    host: str | None = None
    client_id: str | None = None
    partitions: tuple[TopicPartition, ...] = ()


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


def _state_of_owners(facts: ZooKeeperFacts) -> str:
    if not facts.members:
        return "Empty"
    registered = {member.consumer_id for member in facts.members}
    owned = {tp for tp, consumer_id in facts.owners.items() if consumer_id in registered}
    settled = owned >= facts.partitions | facts.owners.keys()
    return "Stable" if settled else "PreparingRebalance"


# --- Columns -------------------------------------------------------------------------------------

_SECOND_MS = 1000
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", _SECOND_MS))


def duration(ms: int | None) -> str:
    """The two largest units: `3d 4h`, `12s`, `0s`; `-` for None."""
    if ms is None:
        return plain(None)
    parts: list[str] = []
    for unit, size in _UNITS:
        count, ms = divmod(max(ms, 0), size)
        if count or parts:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2]) or "0s"


def timestamp(epoch_ms: int | None) -> str:
    """UTC, to the second; `-` for None."""
    if epoch_ms is None:
        return plain(None)
    return f"{datetime.fromtimestamp(epoch_ms // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _never_negative(lag: int | None) -> str:
    return plain(None if lag is None else max(lag, 0))


OFFSET_COLUMNS = (
    Column("GROUP", 15),
    Column("TOPIC", 15),
    Column("PARTITION", 10),
    Column("CURRENT-OFFSET", 15),
    Column("LOG-END-OFFSET", 15),
    Column("LAG", 15, text=_never_negative),
    Column("CONSUMER-ID", 15),
    Column("HOST", 15),
    Column("CLIENT-ID"),
    Column("COORDINATION", wide=True),
    Column("OFFSETS", wide=True),
    Column("LOG-START-OFFSET", wide=True),
    Column("ZK-OFFSET", wide=True),
    Column("KAFKA-OFFSET", wide=True),
    Column("POSITION", wide=True),
    Column("COMMITTED-AT", wide=True, key="committed_at_ms", text=timestamp),
    Column("AGE", wide=True, key="age_ms", text=duration),
    Column("METADATA", wide=True),
)

MEMBER_COLUMNS = (
    Column("GROUP", 15),
    Column("CONSUMER-ID", 15),
    Column("HOST", 15),
    Column("CLIENT-ID", 15),
    Column("#PARTITIONS", 15),
    Column("ASSIGNMENT", wide=True),
)

STATE_COLUMNS = (
    Column("GROUP", 15),
    Column("COORDINATOR (ID)", 25, key="coordinator"),
    Column("ASSIGNMENT-STRATEGY", 25),
    Column("STATE", 20),
    Column("#MEMBERS"),
    Column("COORDINATION", wide=True),
)


# --- Rows ----------------------------------------------------------------------------------------


def offset_items(
    facts: GroupFacts,
    partitions: Collection[TopicPartition],
    logs: Mapping[TopicPartition, LogOffsets],
    now_ms: int,
) -> list[Item]:
    """One item a partition, by topic and number, then one for each idle member in ZooKeeper.

    `partitions` are those of `facts.partitions` to show.
    """
    owner_of = _owners(facts)
    items = [
        _offset_item(facts, tp, owner_of.get(tp), logs.get(tp, LogOffsets()), now_ms)
        for tp in sorted(partitions)
    ]
    if facts.coordination == "zookeeper":
        items += [
            _member_columns(facts, member) | {"coordination": facts.coordination}
            for member in facts.members
            if not member.partitions
        ]
    return items


def _owners(facts: GroupFacts) -> dict[TopicPartition, Member]:
    """Who holds each partition; an owner znode whose member is gone still names it."""
    claimed = facts.zookeeper.owners if facts.zookeeper else {}
    by_znode = {tp: Member(id_, host_of(facts.group, id_)) for tp, id_ in claimed.items()}
    return by_znode | {tp: member for member in facts.members for tp in member.partitions}


def _offset_item(
    facts: GroupFacts, tp: TopicPartition, owner: Member | None, log: LogOffsets, now_ms: int
) -> Item:
    in_zookeeper, in_kafka = facts.zk_offset(tp), facts.kafka_offset(tp)
    current = current_offset(facts, tp)
    lag = lag_of(current, log.start, log.end)
    flagged = lag.position in (Position.BELOW_LOG_START, Position.BEYOND_LOG_END)
    committed_at_ms = in_zookeeper.committed_at_ms if in_zookeeper else None
    return _member_columns(facts, owner) | {
        "topic": tp.topic,
        "partition": tp.partition,
        "current_offset": current,
        "log_end_offset": log.end,
        "lag": lag.lag,
        "coordination": facts.coordination,
        "offsets": _stores(in_zookeeper, in_kafka),
        "log_start_offset": log.start,
        "zk_offset": in_zookeeper.offset if in_zookeeper else None,
        "kafka_offset": in_kafka.offset if in_kafka else None,
        "position": lag.position.value if flagged else None,
        "committed_at_ms": committed_at_ms,
        "age_ms": None if committed_at_ms is None else now_ms - committed_at_ms,
        "metadata": (in_kafka.metadata or None) if in_kafka else None,
    }


def current_offset(facts: GroupFacts, tp: TopicPartition) -> int | None:
    """The next offset the group will consume; None when nothing is committed."""
    in_kafka, in_zookeeper = facts.kafka_offset(tp), facts.zk_offset(tp)
    if in_zookeeper is None or (in_kafka is not None and facts.coordination == "coordinator"):
        return in_kafka.offset if in_kafka else None
    return max(in_zookeeper.offset, in_kafka.offset if in_kafka else -1)


def _stores(in_zookeeper: object, in_kafka: object) -> str | None:
    held = {(True, True): "dual", (True, False): "zookeeper", (False, True): "kafka"}
    return held.get((in_zookeeper is not None, in_kafka is not None))


def _member_columns(facts: GroupFacts, member: Member | None) -> Item:
    return {
        "group": facts.group,
        "consumer_id": member.consumer_id if member else None,
        "host": member.host if member else None,
        "client_id": member.client_id if member else None,
    }


def member_items(facts: GroupFacts) -> list[Item]:
    """One item a member."""
    return [
        _member_columns(facts, member)
        | {
            "partitions": len(member.partitions),
            "assignment": assignment_text(member.partitions) or None,
        }
        for member in facts.members
    ]


def state_item(facts: GroupFacts) -> Item:
    """The group as a whole."""
    kept = facts.coordinator if facts.coordinator and facts.coordinator.known else None
    return {
        "group": facts.group,
        "coordinator": kept.coordinator if kept else None,
        "assignment_strategy": (kept.assignment_strategy or None) if kept else None,
        "state": facts.state,
        "members": len(facts.members),
        "coordination": facts.coordination,
    }


def remark(facts: GroupFacts) -> str | None:
    """What Kafka's tool says on stderr before the rows."""
    if facts.state in ("PreparingRebalance", "CompletingRebalance"):
        return f"Warning: Consumer group '{facts.group}' is rebalancing."
    if not facts.members:
        return f"Consumer group '{facts.group}' has no active members."
    return None


def assignment_text(partitions: Iterable[TopicPartition]) -> str:
    """`t1(0,1), t2(0)`."""
    numbers: dict[str, list[str]] = {}
    for tp in sorted(partitions):
        numbers.setdefault(tp.topic, []).append(str(tp.partition))
    return ", ".join(f"{topic}({','.join(of)})" for topic, of in numbers.items())


_DEFAULT_FORM = re.compile(r"(?P<host>.+)-\d+-[0-9a-f]{8}")


def host_of(group: str, consumer_id: str) -> str | None:
    """The host in a ZooKeeper consumer id `<group>_<host>-<ms>-<8 hex>`; None in another form."""
    match = _DEFAULT_FORM.fullmatch(consumer_id.removeprefix(f"{group}_"))
    return match["host"] if match and consumer_id.startswith(f"{group}_") else None


def zookeeper_members(
    group: str, ids: Sequence[str], owners: Mapping[TopicPartition, str]
) -> tuple[Member, ...]:
    """The registered members with what each owns; `owners` maps to consumer ids."""
    owned: dict[str, list[TopicPartition]] = {}
    for tp in sorted(owners):
        owned.setdefault(owners[tp], []).append(tp)
    return tuple(
        Member(id_, host_of(group, id_), None, tuple(owned.get(id_, ()))) for id_ in sorted(ids)
    )
