"""LeaderAndIsr: obey the controller, once the settings of topics that are new here are known."""

from __future__ import annotations

from typing import Any

from broker.dispatch import RequestContext
from broker.replica_manager import ReplicaManager
from broker.topic_configs import TopicConfigs
from protocol.messages.leader_and_isr import LeaderAndIsrRequest, partition_states
from protocol.topic_partition import TopicPartition


def handle(
    replicas: ReplicaManager,
    configs: TopicConfigs,
    timeout_ms: int,
    request: LeaderAndIsrRequest,
    context: RequestContext,
) -> Any:
    """Lead and follow what the request says."""
    new = {
        topic
        for topic, state in partition_states(request)
        if TopicPartition(topic, state.partition_index) not in replicas.partitions
    }
    return configs.when_known(new, lambda: replicas.become_leader_or_follower(request), timeout_ms)
