"""IncrementalAlterConfigs: change single settings of topics and brokers (KIP-339)."""

from __future__ import annotations

from functools import partial

from broker.handlers.config_authorization import alter_allowed
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
    """Respond when the settings are written, and effective on this broker."""
    late = partial(error_response, request, ErrorCode.REQUEST_TIMED_OUT)
    return deferred.respond(_alter(resources, request, context), timeout_ms, late)


async def _alter(
    resources: ConfigResources, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    alterations = [
        Alteration(
            resource.resource_type,
            resource.resource_name,
            [
                Change(config.name, config.value, config.config_operation)
                for config in resource.configs
            ],
        )
        for resource in request.resources
    ]

    # A setting that is not named keeps its value.
    verdicts = await alter_allowed(
        resources, context, alterations, replaces=False, validate_only=request.validate_only
    )

    return IncrementalAlterConfigsResponse(
        responses=[
            IncrementalAlterConfigsResponseResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, (code, message) in zip(request.resources, verdicts, strict=True)
        ]
    )
