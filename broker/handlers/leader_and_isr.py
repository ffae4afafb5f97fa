"""LeaderAndIsr: lead and follow, when the settings of topics that are new here are known."""

from __future__ import annotations

from broker.network.dispatch import Outcome
from broker.network.request_context import RequestContext
from broker.replication.control_gate import ControlGate
from broker.replication.control_work import ControlWork
from broker.replication.replica_manager import ReplicaManager
from broker.settings.topic_configs import TopicConfigs
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
    control: ControlWork,
    request: LeaderAndIsrRequest,
    context: RequestContext,
) -> Outcome:
    """Lead and follow the partitions of the request."""
    # Replicas that are here have settings. An illegal name has none, and is refused later.
    new_topics = {
        topic
        for topic, state in partition_states(request)
        if TopicPartition(topic, state.partition_index) not in replicas.partitions
        and is_legal(topic)
    }

    # The gate is asked when the request's turn comes: a newer controller may have spoken by then.
    def refusal() -> LeaderAndIsrResponse | None:
        code = gate.refusal(request, context)
        return None if code is None else error_response(request, code)

    def lead_and_follow() -> Outcome:
        return control.lead_and_follow(request, refusal)

    return configs.when_known(new_topics, lead_and_follow, control.timeout_ms)
