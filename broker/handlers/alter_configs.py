"""AlterConfigs: replace the own settings of topics and brokers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from broker.handlers.config_authorization import AllowedAlterations
from broker.network.deferred import Deferred
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from broker.settings.config_alteration import Change
from broker.settings.config_resources import Alteration, ConfigResources, Verdict
from protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlterConfigsResponseResponse,
)


def handle(
    resources: ConfigResources,
    deferred: Deferred,
    timeout_ms: int,
    request: AlterConfigsRequest,
    context: RequestContext,
) -> Wait:
    """Respond when the settings are written, and effective on this broker."""
    alterations = [
        Alteration(
            resource.resource_type,
            resource.resource_name,
            [Change(config.name, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]

    # A setting that is not named loses its own value.
    return AllowedAlterations(resources, context, alterations).respond(
        deferred,
        timeout_ms,
        partial(_response, request),
        replaces=True,
        validate_only=request.validate_only,
    )


def _response(request: AlterConfigsRequest, verdicts: Sequence[Verdict]) -> AlterConfigsResponse:
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
