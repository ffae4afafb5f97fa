"""AlterConfigs: replace the own settings of topics and brokers."""

from __future__ import annotations

from functools import partial

from broker.handlers.config_authorization import alter_allowed
from broker.network.deferred import Deferred
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from broker.settings.config_alteration import Change
from broker.settings.config_resources import Alteration, ConfigResources
from protocol.errors import ErrorCode
from protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlterConfigsResponseResponse,
    error_response,
)


def handle(
    resources: ConfigResources,
    deferred: Deferred,
    timeout_ms: int,
    request: AlterConfigsRequest,
    context: RequestContext,
) -> Wait:
    """Respond when the settings are written, and effective on this broker."""
    late = partial(error_response, request, ErrorCode.REQUEST_TIMED_OUT)
    return deferred.respond(_alter(resources, request, context), timeout_ms, late)


async def _alter(
    resources: ConfigResources, request: AlterConfigsRequest, context: RequestContext
) -> AlterConfigsResponse:
    alterations = [
        Alteration(
            resource.resource_type,
            resource.resource_name,
            [Change(config.name, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]

    # A setting that is not named loses its own value.
    verdicts = await alter_allowed(
        resources, context, alterations, replaces=True, validate_only=request.validate_only
    )

    return AlterConfigsResponse(
        responses=[
            AlterConfigsResponseResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, (code, message) in zip(request.resources, verdicts, strict=True)
        ]
    )
