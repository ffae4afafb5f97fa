"""A described topic becomes an item of a table or Kafka's lines; filters choose partitions."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from clients.admin.descriptions import TopicDescription
from clients.command_line.output import Column, Failure
from clients.errors import BrokerError, KgroupError

NAME_COLUMNS = (
    Column("TOPIC"),
    Column("INTERNAL", wide=True),
    Column("PARTITIONS", wide=True),
    Column("MARKED-FOR-DELETION", wide=True),
)

TOPIC_COLUMNS = (
    Column("TOPIC"),
    Column("PARTITION-COUNT"),
    Column("REPLICATION-FACTOR"),
    Column("CONFIGS"),
    Column("MARKED-FOR-DELETION"),
    Column("PARTITIONS"),
)

PARTITION_COLUMNS = (
    Column("TOPIC"),
    Column("PARTITION"),
    Column("LEADER"),
    Column("REPLICAS"),
    Column("ISR"),
)

MOST_NAMED = 10
"""Number of names in a line: JSON has them all."""

Item = dict[str, Any]
Filter = Callable[[Item], bool]


def build_topic_item(
    topic: TopicDescription,
    configs: Mapping[str, str | None] | None,
    *,
    marked: bool = False,
    min_isr: int | None = None,
) -> Item:
    """Build the item of one topic with its partitions; a missing leader is None.

    `configs` is None where they may not be read. `marked`: the topic is marked for deletion.
    `min_isr` is its min.insync.replicas, which only the filters of NEED_MIN_ISR use.
    """
    partitions = [
        {
            "topic": topic.name,
            "partition": partition_id,
            "leader": partition.leader if partition.leader >= 0 else None,
            "replicas": list(partition.replicas),
            "isr": list(partition.isr),
            # Only filters need it; without them it is neither read nor shown.
            **({} if min_isr is None else {"min_isr": min_isr}),
        }
        for partition_id, partition in sorted(topic.partitions.items())
    ]

    return {
        "topic": topic.name,
        "partition_count": len(partitions),
        # Partitions may differ while they are reassigned.
        "replication_factor": max((len(p.replicas) for p in topic.partitions.values()), default=0),
        "configs": None if configs is None else dict(sorted(configs.items())),
        "marked_for_deletion": marked,
        "partitions": partitions,
    }


def is_under_replicated(partition: Item) -> bool:
    """True if a replica is not in sync."""
    # Without a leader, "isr" has those that were in sync last.
    return is_unavailable(partition) or len(partition["isr"]) < len(partition["replicas"])


def is_unavailable(partition: Item) -> bool:
    """True if the partition has no leader."""
    return partition["leader"] is None


def is_under_min_isr(partition: Item) -> bool:
    """True if fewer replicas are in sync than acks=all needs: such a produce fails."""
    if is_unavailable(partition):
        return True
    # Where the setting may not be read nobody knows.
    return "min_isr" in partition and len(partition["isr"]) < int(partition["min_isr"])


def is_at_min_isr(partition: Item) -> bool:
    """True if one in-sync replica less would be too few for acks=all."""
    if is_unavailable(partition):
        return False
    return "min_isr" in partition and len(partition["isr"]) == int(partition["min_isr"])


FILTERS: Mapping[str, Filter] = {
    "under_replicated": is_under_replicated,
    "unavailable": is_unavailable,
    "under_min_isr": is_under_min_isr,
    "at_min_isr": is_at_min_isr,
}
"""The partitions to show, by the option that asks for them."""
NEED_MIN_ISR = frozenset({"under_min_isr", "at_min_isr"})
"""Options whose filters compare with the topic's min.insync.replicas."""


def unread_settings(errors: Mapping[str, KgroupError]) -> list[Failure]:
    """Return a failure for all topics whose settings may not be read for the same reason."""
    by_name: dict[str, list[tuple[str, KgroupError]]] = {}
    for topic, error in errors.items():
        name = error.code.name if isinstance(error, BrokerError) else type(error).__name__
        by_name.setdefault(name, []).append((topic, error))

    failures = []
    for alike in by_name.values():
        topics = [topic for topic, _ in alike]
        named = ", ".join(topics[:MOST_NAMED])
        if len(topics) > MOST_NAMED:
            named += f" and {len(topics) - MOST_NAMED} more"
        failures.append(Failure.of(f"settings of {named}", alike[0][1]))
    return failures


def filter_partitions(topic: Item, is_wanted: Filter) -> Item:
    """Return the topic with only the partitions that `is_wanted` accepts."""
    return topic | {"partitions": [p for p in topic["partitions"] if is_wanted(p)]}


def format_topic_line(topic: Item) -> str:
    """Return the line that kafka-topics.sh prints for the topic itself."""
    configs = "-"
    if topic["configs"] is not None:
        configs = ",".join(f"{name}={value}" for name, value in topic["configs"].items())
    marked = "\tMarkedForDeletion: true" if topic["marked_for_deletion"] else ""
    return (
        f"Topic: {topic['topic']}\tPartitionCount: {topic['partition_count']}"
        f"\tReplicationFactor: {topic['replication_factor']}\tConfigs: {configs}{marked}"
    )


def format_partition_lines(topic: Item) -> Iterator[str]:
    """Yield the line that kafka-topics.sh prints for each partition."""
    for partition in topic["partitions"]:
        leader = "none" if partition["leader"] is None else partition["leader"]
        replicas = ",".join(map(str, partition["replicas"]))
        isr = ",".join(map(str, partition["isr"]))
        yield (
            f"\tTopic: {partition['topic']}\tPartition: {partition['partition']}"
            f"\tLeader: {leader}\tReplicas: {replicas}\tIsr: {isr}"
        )
