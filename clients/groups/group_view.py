"""Make rows for tables of the facts of `clients.groups.group_facts`."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from clients.command_line.output import Column, Failure
from clients.command_line.point_in_time import timestamp
from clients.command_line.printing import plain
from clients.groups.group_facts import (
    NO_TIMES,
    GroupFacts,
    LogOffsets,
    MemberFacts,
    OffsetTimes,
    host_of,
)
from clients.groups.lag import (
    ADVICE,
    OUT_OF_RANGE,
    REASONS,
    Lag,
    Position,
    age_of,
    lag_of,
    time_lag_of,
)
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition

Item = dict[str, Any]

WHY_UNOWNED = (
    "members hear of added partitions within their metadata.max.age.ms (5 minutes by default), and "
    "with auto.offset.reset=latest skip what was written until then"
)
"""What there is to say of partitions that nobody owns."""


# --- Columns -------------------------------------------------------------------------------------

_SECOND_MS = 1000
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", _SECOND_MS))


def duration(ms: int | None) -> str:
    """Return the two largest units: `3d 4h`, `12s`, `0s`; `-` for None."""
    if ms is None:
        return plain(None)

    parts: list[str] = []

    # What is overdue has a negative time left.
    for unit, size in _UNITS:
        count, ms = divmod(max(ms, 0), size)

        # A unit of zero is left out only in front: `1d 0h`, but not `0d 3h`.
        if count or parts:
            parts.append(f"{count}{unit}")

    return " ".join(parts[:2]) or "0s"


def never_negative(lag: int | None) -> str:
    """Return the text of a lag for people."""
    return plain(None if lag is None else max(lag, 0))


def _or_blank(value: str | None) -> str:
    return plain(value or "")


def _time_lag_text(item: Mapping[str, Any]) -> str:
    """Return the lag in time; with a ≥ where retention took older records."""
    text = duration(item.get("time_lag_ms"))
    return f"≥ {text}" if item.get("time_lag_method") == "estimate" else text


def _style_of_lag(lag: int | None) -> str:
    return "yellow" if lag else ""


RECORD_KEYS = frozenset({"committed_at_ms", "age_ms", "expires_in_ms"})
"""Columns that are in the records of `__consumer_offsets` alone."""
LOG_KEYS = frozenset({"time_lag_ms", "time_lag_method", "deleted_in_ms"})
"""Columns for which the logs of the group's partitions are read."""

OFFSET_COLUMNS = (
    Column("GROUP", 15),
    Column("TOPIC", 15),
    Column("PARTITION", 10),
    Column("CURRENT-OFFSET", 15),
    Column("LOG-END-OFFSET", 15),
    Column("LAG", 15, text=never_negative, style=_style_of_lag),
    Column("CONSUMER-ID", 15),
    Column("HOST", 15),
    Column("CLIENT-ID"),
    Column("STREAM", wide=True),
    Column("COORDINATION", wide=True),
    Column("OFFSETS", wide=True),
    Column("LOG-START-OFFSET", wide=True),
    Column("ZK-OFFSET", wide=True),
    Column("KAFKA-OFFSET", wide=True),
    Column("WINS", wide=True),
    Column(
        "DIVERGED",
        wide=True,
        text=lambda diverged: "DIVERGED" if diverged else plain(None),
        style=lambda diverged: "red" if diverged else "",
    ),
    Column("POSITION", wide=True, style=lambda position: "red" if position else ""),
    Column("COMMITTED-AT", wide=True, key="committed_at_ms", text=timestamp),
    Column("AGE", wide=True, key="age_ms", text=duration),
    Column("EXPIRES-IN", wide=True, key="expires_in_ms", text=duration),
    Column("TIME-LAG", wide=True, key="time_lag_ms", row_text=_time_lag_text),
    Column("TIME-LAG-METHOD", wide=True, key="time_lag_method"),
    Column("ABOVE-LOG-START", wide=True),
    Column("DELETED-IN", wide=True, key="deleted_in_ms", text=duration),
    Column(
        "UNSUBSCRIBED",
        wide=True,
        text=lambda is_so: "UNSUBSCRIBED" if is_so else plain(None),
    ),
    Column("UNOWNED", wide=True, text=lambda is_so: "UNOWNED" if is_so else plain(None)),
    Column("METADATA", wide=True),
)

MEMBER_COLUMNS = (
    Column("GROUP", 15),
    Column("CONSUMER-ID", 15),
    Column("GROUP-INSTANCE-ID", 17, optional=True, text=_or_blank),
    Column("HOST", 15),
    Column("CLIENT-ID", 15),
    Column("#PARTITIONS", 15),
    Column("ASSIGNMENT", wide=True),
)
"""Kafka's columns, including its wide ones."""

OUR_MEMBER_COLUMNS = (Column("#STREAMS", wide=True), Column("SUBSCRIPTION", wide=True))

STATE_COLUMNS = (
    Column("GROUP", 25),
    Column("COORDINATOR (ID)", 25, key="coordinator"),
    Column("ASSIGNMENT-STRATEGY", 20, text=_or_blank),
    Column("STATE", 15),
    Column("#MEMBERS"),
    Column("COORDINATION", wide=True),
    Column("STORAGE", wide=True),
)


# --- Rows ----------------------------------------------------------------------------------------


def offset_items(
    facts: GroupFacts,
    partitions: Collection[TopicPartition],
    logs: Mapping[TopicPartition, LogOffsets],
    now_ms: int,
    times: Mapping[TopicPartition, OffsetTimes] | None = None,
) -> list[Item]:
    """Return one item per partition in `partitions`, sorted, then one per idle member.

    Idle members are those of a group in ZooKeeper that own no partition.
    """
    owner_of = _owners(facts)
    subscribed = facts.subscribed_topics
    unowned = facts.coordinator.unowned if facts.coordinator else frozenset()

    items = [
        _offset_item(
            facts,
            partition,
            owner_of.get(partition),
            logs.get(partition, LogOffsets()),
            (times or {}).get(partition, NO_TIMES),
            now_ms,
        )
        | {
            "unsubscribed": subscribed is not None and partition.topic not in subscribed,
            "unowned": partition in unowned,
        }
        for partition in sorted(partitions)
    ]

    # A member that owns nothing has no row yet; people look for it.
    if facts.coordination == "zookeeper":
        items += [
            _member_columns(facts, member) | {"coordination": facts.coordination}
            for member in facts.members
            if not member.partitions
        ]
    return items


def _owners(facts: GroupFacts) -> dict[TopicPartition, MemberFacts]:
    """Return the owner of each partition; an owner znode counts even if its member is gone."""
    owners = facts.zookeeper.owners if facts.zookeeper else {}
    claimed = {
        partition: MemberFacts(consumer_id, host_of(facts.group, consumer_id))
        for partition, consumer_id in owners.items()
    }

    # A known member outranks owner nodes, which have no client id.
    return claimed | {
        partition: member for member in facts.members for partition in member.partitions
    }


def _offset_item(
    facts: GroupFacts,
    partition: TopicPartition,
    owner: MemberFacts | None,
    log: LogOffsets,
    times: OffsetTimes,
    now_ms: int,
) -> Item:
    # What each store holds, and which of them counts.
    in_zookeeper = facts.zk_offset(partition)
    in_kafka = facts.kafka_offset(partition)
    current = facts.current_offset(partition)
    lag = lag_of(current, log)

    committed_at_ms = times.committed_at_ms
    if in_zookeeper is not None and facts.winner(partition) == "zookeeper":
        committed_at_ms = in_zookeeper.committed_at_ms
    time_lag_ms = time_lag_of(lag, times.next_record_ms, now_ms)

    return _member_columns(facts, owner) | {
        "topic": partition.topic,
        "partition": partition.partition,
        "current_offset": current,
        "log_end_offset": log.end,
        "lag": lag.lag,
        "stream": facts.zookeeper.streams.get(partition) if facts.zookeeper else None,
        "coordination": facts.coordination,
        "offsets": _stores(in_zookeeper, in_kafka),
        "log_start_offset": log.start,
        "zk_offset": in_zookeeper.offset if in_zookeeper else None,
        "kafka_offset": in_kafka.offset if in_kafka else None,
        "wins": facts.winner(partition),
        "diverged": facts.is_diverged(partition),
        # A position out of range explains a strange lag.
        "position": lag.position.flag,
        "committed_at_ms": committed_at_ms,
        # A broker's clock may be ahead of ours, and so ZooKeeper's.
        "age_ms": None if committed_at_ms is None else age_of(committed_at_ms, now_ms),
        "expires_in_ms": _until(times.expires_at_ms, now_ms),
        "time_lag_ms": time_lag_ms,
        "time_lag_method": _method(time_lag_ms, lag),
        "above_log_start": None
        if current is None or log.start is None or lag.position is Position.BEYOND_LOG_END
        else max(current - log.start, 0),
        "deleted_in_ms": _until(times.deleted_at_ms, now_ms),
        "metadata": (in_kafka.metadata or None) if in_kafka else None,
    }


def _until(at_ms: int | None, now_ms: int) -> int | None:
    return None if at_ms is None else at_ms - now_ms


def _method(time_lag_ms: int | None, lag: Lag) -> str | None:
    """Say how a lag in time is known: what retention took was older than what is left."""
    if time_lag_ms is None:
        return None
    return "estimate" if lag.position is Position.BELOW_LOG_START else "exact"


def summary(facts: GroupFacts, items: Collection[Item]) -> str:
    """Return a sentence on a group: its state, members, lag in all, and where it is largest."""
    members = len(facts.members)
    head = f"{facts.group}: {facts.state}, {members} member{'' if members == 1 else 's'}"

    # A partition without a commit has no lag of its own; what its owner will read counts.
    rows = [item for item in items if item.get("topic") is not None]
    lags = [(counted_lag(item), item) for item in rows]
    total = sum(lag for lag, _ in lags)
    of = f"{len(rows)} partition{'' if len(rows) == 1 else 's'}"
    unknown = sum(1 for item in rows if item["log_end_offset"] is None)
    without = f", {unknown} of them unknown" if unknown else ""
    unowned = sum(1 for item in rows if item["unowned"])
    without += f", {unowned} of them without an owner" if unowned else ""
    # What an offset that is missing leaves unread is nobody's lag.
    bare = sum(1 for item in rows if _is_left(item))
    without += f", {bare} of them without a committed offset" if bare else ""
    for position, place in OUT_OF_RANGE.items():
        outside = sum(1 for item in rows if item["position"] == position.value)
        without += f", {outside} of them committed {place}" if outside else ""
    if not total:
        return f"{head}, no lag in {of}{without}"
    largest, where = max(lags, key=lambda pair: pair[0])
    place = f"{where['topic']}-{where['partition']}"
    return f"{head}, lag {total} in {of}{without}, most {largest} in {place}"


def unowned_remarks(group_id: str, items: Collection[Item]) -> list[str]:
    """Return the text for stderr on partitions that no member owns, if there are any."""
    unowned = [item for item in items if item.get("unowned")]
    if not unowned:
        return []
    more = f" and {len(unowned) - 1} more" if len(unowned) > 1 else ""
    where = f"{unowned[0]['topic']}-{unowned[0]['partition']}{more}"
    return [f"Warning: No member of consumer group '{group_id}' owns {where}: {WHY_UNOWNED}."]


def position_remarks(group_id: str, items: Collection[Item]) -> list[str]:
    """Return the texts for stderr on committed offsets that are out of their logs' range."""
    texts = []
    for position, place in OUT_OF_RANGE.items():
        outside = [item for item in items if item.get("position") == position.value]
        if not outside:
            continue
        first = outside[0]
        log = f"{first['log_start_offset']} to {first['log_end_offset']}"
        more = f", and {len(outside) - 1} more" if len(outside) > 1 else ""
        texts.append(
            f"Warning: Consumer group '{group_id}' has committed {place}: "
            f"{first['topic']}-{first['partition']} at {first['current_offset']}, where the log is "
            f"from {log}{more}; {REASONS[position]}: {ADVICE[position]}."
        )
    return texts


def total_lag(items: Iterable[Mapping[str, Any]]) -> int:
    """Return the lag of a group over the rows of its partitions."""
    return sum(counted_lag(item) for item in items if item.get("topic") is not None)


def _is_left(item: Item) -> bool:
    """Return whether a partition has records, and neither a committed offset nor an owner."""
    has_records = (item["log_end_offset"] or 0) > (item["log_start_offset"] or 0)
    return has_records and item["current_offset"] is None and item["consumer_id"] is None


def has_lag(item: Mapping[str, Any]) -> bool:
    """Return whether a row is of a partition with lag, or with records that its owner will read."""
    if item.get("topic") is None:
        return False
    # Groups with members and no commit had no such row (fault strangers-157, was: item["lag"]).
    lag = item["lag"] or counted_lag(item)
    return bool(lag)


def counted_lag(item: Mapping[str, Any]) -> int:
    """Return what a partition adds to a group's lag: what its owner will read counts."""
    # Nobody will read it, and the members have read all that they read (fault tool-F7).
    if item["unsubscribed"]:
        return 0
    if item["lag"] is not None:
        return max(int(item["lag"]), 0)
    log = LogOffsets(item["log_start_offset"], item["log_end_offset"])
    lag = lag_of(item["current_offset"], log)
    return lag.counted(item["consumer_id"] is not None)


def _stores(in_zookeeper: object, in_kafka: object) -> str | None:
    store = {(True, True): "dual", (True, False): "zookeeper", (False, True): "kafka"}
    return store.get((in_zookeeper is not None, in_kafka is not None))


def _member_columns(facts: GroupFacts, member: MemberFacts | None) -> Item:
    return {
        "group": facts.group,
        "consumer_id": member.consumer_id if member else None,
        "host": member.host if member else None,
        "client_id": member.client_id if member else None,
    }


def member_items(facts: GroupFacts) -> list[Item]:
    """Return one item per member."""
    return [
        _member_columns(facts, member)
        | {
            "group_instance_id": member.group_instance_id,
            "partitions": len(member.partitions) if member.foreign_assignment is None else None,
            "assignment": _assignment(member),
            "streams": member.streams,
            "subscription": member.subscription,
        }
        for member in facts.members
    ]


def _assignment(member: MemberFacts) -> str | None:
    if member.foreign_assignment is None:
        return assignment_text(member.partitions) or None
    return escaped(member.foreign_assignment) or None


def state_item(facts: GroupFacts) -> Item:
    """Return the item of the group as a whole."""
    # A coordinator calls unknown groups Dead; such a group has none.
    coordinator = facts.coordinator if facts.coordinator and facts.coordinator.exists else None
    return {
        "group": facts.group,
        "coordinator": coordinator.coordinator if coordinator else None,
        "assignment_strategy": (coordinator.assignment_strategy or None) if coordinator else None,
        "state": facts.state,
        "members": len(facts.members),
        "coordination": facts.coordination,
        "storage": facts.storage,
    }


def remark(facts: GroupFacts) -> str | None:
    """Return the text for stderr before the rows, as Kafka's tool has it; None if there is none."""
    if facts.has_both_kinds:
        return (
            f"Warning: Consumer group '{facts.group}' has members in ZooKeeper and at its "
            "coordinator: its partitions are consumed twice. Stop the members of one kind."
        )
    if facts.state in ("PreparingRebalance", "CompletingRebalance"):
        return f"Warning: Consumer group '{facts.group}' is rebalancing."
    if not facts.members and facts.state != "Unknown":
        return f"Consumer group '{facts.group}' has no active members."
    return None


def escaped(content: bytes) -> str:
    """Return bytes as Python writes them: ASCII as it is, other bytes as `\\x00`."""
    return repr(content)[2:-1]


def assignment_text(partitions: Iterable[TopicPartition]) -> str:
    """Return `t1(0,1), t2(0)`."""
    partition_ids: dict[str, list[str]] = {}
    for partition in sorted(partitions):
        partition_ids.setdefault(partition.topic, []).append(str(partition.partition))
    return ", ".join(f"{topic}({','.join(ids)})" for topic, ids in partition_ids.items())


def unknown_group(group_id: str) -> Failure:
    """Return the failure for a group that does not exist, in Kafka's words."""
    return Failure(
        group_id, ErrorCode.GROUP_ID_NOT_FOUND.name, f"Consumer group '{group_id}' does not exist."
    )
