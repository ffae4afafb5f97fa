"""StopReplica: let replicas go."""

from __future__ import annotations

from broker.control_gate import ControlGate
from broker.dispatch import RequestContext
from broker.replica_manager import ReplicaManager
from protocol.messages.stop_replica import (
    StopReplicaRequest,
    StopReplicaResponse,
    error_response,
)


def handle(
    gate: ControlGate,
    replicas: ReplicaManager,
    request: StopReplicaRequest,
    context: RequestContext,
) -> StopReplicaResponse:
    """Stop, and delete where the request says so."""
    refusal = gate.refusal(request, context)
    if refusal is not None:
        return error_response(request, refusal, context.api_version)
    return replicas.stop_replicas(request)
