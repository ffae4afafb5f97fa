"""IncrementalAlterConfigs: change single settings of topics and brokers."""

from __future__ import annotations

from functools import partial

from broker.network.deferred import Deferred
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from broker.settings.config_alteration import Change
from broker.settings.config_resources import Alteration, ConfigResources
from protocol.errors import ErrorCode
from protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponseResponse,
    error_response,
)


def handle(
    resources: ConfigResources,
    deferred: Deferred,
    timeout_ms: int,
    request: IncrementalAlterConfigsRequest,
    context: RequestContext,
) -> Wait:
    """Answer when they are written, and in force on this broker."""
    late = partial(error_response, request, ErrorCode.REQUEST_TIMED_OUT)
    return deferred.respond(_alter(resources, request), timeout_ms, late)


async def _alter(
    resources: ConfigResources, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    alterations = [
        Alteration(
            r.resource_type,
            r.resource_name,
            [Change(c.name, c.value, c.config_operation) for c in r.configs],
        )
        for r in request.resources
    ]
    verdicts = await resources.alter(
        alterations, replaces=False, validate_only=request.validate_only
    )
    return IncrementalAlterConfigsResponse(
        responses=[
            IncrementalAlterConfigsResponseResponse(
                error_code=code,
                error_message=message,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
            )
            for each, (code, message) in zip(request.resources, verdicts, strict=True)
        ]
    )
