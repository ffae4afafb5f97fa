"""LeaderAndIsr: obey the controller, once the settings of topics that are new here are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.control_gate import ControlGate
from broker.dispatch import RequestContext
from broker.replica_manager import ReplicaManager
from broker.topic_configs import TopicConfigs
from protocol.messages.leader_and_isr import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    error_response,
    partition_states,
)
from protocol.topic_name import is_legal
from protocol.topic_partition import TopicPartition


def handle(
    gate: ControlGate,
    replicas: ReplicaManager,
    configs: TopicConfigs,
    timeout_ms: int,
    now_ms: Callable[[], int],
    request: LeaderAndIsrRequest,
    context: RequestContext,
) -> Any:
    """Lead and follow what the request says."""
    new = {
        topic
        for topic, state in partition_states(request)
        if TopicPartition(topic, state.partition_index) not in replicas.partitions
        and is_legal(topic)
    }

    def obey() -> LeaderAndIsrResponse:
        refusal = gate.refusal(request, context)
        if refusal is not None:
            return error_response(request, refusal, context.api_version)
        return replicas.become_leader_or_follower(request, now_ms())

    return configs.when_known(new, obey, timeout_ms)
