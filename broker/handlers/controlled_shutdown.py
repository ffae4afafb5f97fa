"""ControlledShutdown: the controller moves leadership away from a broker before it stops."""

from __future__ import annotations

from functools import partial

from broker.controller.controller import Controller
from broker.controller.events import ShutdownRequested
from broker.network.deferred import Deferred
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    ControlledShutdownResponseRemainingPartition,
    error_response,
)


def handle(
    controller: Controller,
    deferred: Deferred,
    timeout_ms: int,
    request: ControlledShutdownRequest,
    context: RequestContext,
) -> Wait:
    """Respond with the partitions that the broker still leads; it asks again, or stops anyway."""
    late = partial(error_response, request, ErrorCode.REQUEST_TIMED_OUT)
    return deferred.respond(_prepare(controller, request), timeout_ms, late)


async def _prepare(
    controller: Controller, request: ControlledShutdownRequest
) -> ControlledShutdownResponse:
    remaining = await controller.ask(ShutdownRequested(request.broker_id, request.broker_epoch))
    return ControlledShutdownResponse(
        error_code=ErrorCode.NONE,
        remaining_partitions=[
            ControlledShutdownResponseRemainingPartition(topic_name=topic, partition_index=index)
            for topic, index in remaining
        ],
    )
