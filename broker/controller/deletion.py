"""How a topic is deleted, though brokers come and go meanwhile.

First every broker forgets the topic (leader -2 in its metadata), then each replica's broker
deletes the log, then ZooKeeper forgets it. A replica on a dead broker holds up the last step
alone: it is asked when the broker is back, and until then the name stays taken, because a log
that turned up later under a topic of the same name would be served as that topic's.
"""

from __future__ import annotations

from broker.controller.announcement import describe
from broker.controller.effects import DeleteTopicZnodes, Effect, SendStopReplica
from broker.controller.events import StopReplicaAnswered, TopicDeleted
from broker.controller.state import ControllerState
from protocol.topic_partition import TopicPartition


def begin(state: ControllerState, topic: str) -> list[Effect]:
    """Hide the topic, and ask for the deletion of its replicas."""
    return [*describe(state, state.brokers, state.partitions_of(topic)), *pursue(state, topic)]


def pursue(state: ControllerState, topic: str) -> list[Effect]:
    """Ask the live brokers that have not been asked; when all replicas are gone, finish."""
    progress = state.deletions[topic]
    if topic not in state.assignments:  # still being read
        return []
    replicas = {
        (partition, broker_id)
        for partition in state.partitions_of(topic)
        for broker_id in state.replicas(partition)
    }
    if replicas <= progress.deleted:
        return [DeleteTopicZnodes(topic)]
    due: dict[int, list[TopicPartition]] = {}
    for replica in sorted(replicas - progress.deleted - progress.asked - progress.failed):
        partition, broker_id = replica
        if broker_id in state.brokers:
            progress.asked.add(replica)
            due.setdefault(broker_id, []).append(partition)
    return [SendStopReplica(broker_id, tuple(due[broker_id])) for broker_id in sorted(due)]


def stop_replica_answered(state: ControllerState, event: StopReplicaAnswered) -> list[Effect]:
    """Note what is gone. What failed waits for its broker's next registration."""
    touched = set()
    for partitions, is_deleted in ((event.deleted, True), (event.failed, False)):
        for partition in partitions:
            progress = state.deletions.get(partition.topic)
            replica = (partition, event.broker_id)
            if progress is None or replica not in progress.asked:
                continue
            progress.asked.remove(replica)
            (progress.deleted if is_deleted else progress.failed).add(replica)
            touched.add(partition.topic)
    return [effect for topic in sorted(touched) for effect in pursue(state, topic)]


def topic_deleted(state: ControllerState, event: TopicDeleted) -> list[Effect]:
    """The name is free again."""
    state.forget_topics([event.topic])
    return []
