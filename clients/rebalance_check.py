"""Whether a group in ZooKeeper has rebalanced: every partition owned by a registered thread.

The rule of Kafka's VerifyConsumerRebalance: each partition of each topic that a member consumes
must have an owner node, which names a stream of a registered member that consumes this topic.
"""

from collections.abc import Mapping
from typing import Any

from groups.zookeeper.events import GroupSnapshot, Owner
from groups.zookeeper.registration import threads_by_topic
from protocol.topic_partition import TopicPartition


def consumed_partitions(snapshot: GroupSnapshot) -> list[TopicPartition]:
    """All there are of the topics that a member consumes."""
    return sorted(
        TopicPartition(topic, number)
        for topic, numbers in snapshot.partitions.items()
        for number in numbers
    )


def badly_owned(
    snapshot: GroupSnapshot,
    owners: Mapping[TopicPartition, Owner],
    *,
    exclude_internal_topics: bool = True,
) -> list[dict[str, Any]]:
    """One item for each partition that nobody owns, or not who should be able to."""
    threads = {
        topic: frozenset(ids)
        for topic, ids in threads_by_topic(
            snapshot.members, snapshot.all_topics, exclude_internal_topics
        ).items()
    }
    registered = frozenset().union(*threads.values())
    items = []
    for tp in consumed_partitions(snapshot):
        owner = owners.get(tp)
        if problem := _problem(owner, threads.get(tp.topic, frozenset()), registered):
            items.append(
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "owner": owner.thread_id if owner else None,
                    "problem": problem,
                }
            )
    return items


def _problem(
    owner: Owner | None, of_topic: frozenset[str], registered: frozenset[str]
) -> str | None:
    if owner is None:
        return "no owner"
    if owner.thread_id in of_topic:
        return None
    if owner.thread_id in registered:
        return "owner does not consume this topic"
    return "owner is not registered"
