"""Check a group in ZooKeeper: every partition must have a registered thread as its owner.

The rule of Kafka's VerifyConsumerRebalance: each partition of each topic that a member consumes
must have an owner node, which names a stream of a registered member that consumes this topic.
"""

from collections.abc import Mapping
from typing import Any

from groups.zookeeper.events import GroupSnapshot, Owner
from groups.zookeeper.registration import threads_by_topic
from protocol.topic_partition import TopicPartition


def consumed_partitions(snapshot: GroupSnapshot) -> list[TopicPartition]:
    """Return all partitions of the topics that a member consumes."""
    return sorted(
        TopicPartition(topic, partition_id)
        for topic, partition_ids in snapshot.partitions.items()
        for partition_id in partition_ids
    )


def find_badly_owned(
    snapshot: GroupSnapshot,
    owners: Mapping[TopicPartition, Owner],
    *,
    exclude_internal_topics: bool = True,
) -> list[dict[str, Any]]:
    """Return one item for each partition without an owner, or with an owner that may not be."""
    threads = {
        topic: frozenset(ids)
        for topic, ids in threads_by_topic(
            snapshot.members, snapshot.all_topics, exclude_internal_topics
        ).items()
    }

    # A thread of a member may own partitions of the topics it subscribes to.
    registered = frozenset().union(*threads.values())

    items = []
    for partition in consumed_partitions(snapshot):
        owner = owners.get(partition)
        problem = _find_problem(owner, threads.get(partition.topic, frozenset()), registered)
        if problem is not None:
            items.append(
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "owner": owner.thread_id if owner else None,
                    "problem": problem,
                }
            )
    return items


def _find_problem(
    owner: Owner | None, topic_threads: frozenset[str], registered: frozenset[str]
) -> str | None:
    if owner is None:
        return "no owner"

    # The rule holds; the rest only says what breaks it.
    if owner.thread_id in topic_threads:
        return None
    if owner.thread_id in registered:
        return "owner does not consume this topic"
    return "owner is not registered"
