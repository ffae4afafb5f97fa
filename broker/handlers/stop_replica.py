"""StopReplica: let replicas go."""

from __future__ import annotations

from broker.dispatch import RequestContext
from broker.replica_manager import ReplicaManager
from protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse


def handle(
    replicas: ReplicaManager, request: StopReplicaRequest, context: RequestContext
) -> StopReplicaResponse:
    """Stop, and delete where the request says so."""
    return replicas.stop_replicas(request)
