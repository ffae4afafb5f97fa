"""StopReplica: stop replicas that the controller gives to other brokers, or deletes."""

from __future__ import annotations

from broker.network.dispatch import Outcome
from broker.network.request_context import RequestContext
from broker.replication.control_gate import ControlGate
from broker.replication.control_work import ControlWork
from protocol.messages.stop_replica import (
    StopReplicaRequest,
    StopReplicaResponse,
    error_response,
)


def handle(
    gate: ControlGate,
    control: ControlWork,
    request: StopReplicaRequest,
    context: RequestContext,
) -> Outcome:
    """Stop, and delete if the request says so."""

    # The gate is asked when the request's turn comes: a newer controller may have spoken by then.
    def refusal() -> StopReplicaResponse | None:
        code = gate.refusal(request, context)
        return None if code is None else error_response(request, code)

    return control.stop(request, refusal)
