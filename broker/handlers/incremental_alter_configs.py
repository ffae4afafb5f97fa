"""IncrementalAlterConfigs: change single settings of topics and brokers (KIP-339)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from broker.handlers.config_authorization import AllowedAlterations
from broker.network.deferred import Deferred
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from broker.settings.config_alteration import Change
from broker.settings.config_resources import Alteration, ConfigResources, Verdict
from protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponseResponse,
)


def handle(
    resources: ConfigResources,
    deferred: Deferred,
    timeout_ms: int,
    request: IncrementalAlterConfigsRequest,
    context: RequestContext,
) -> Wait:
    """Respond when the settings are written, and effective on this broker."""
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
    return AllowedAlterations(resources, context, alterations).respond(
        deferred,
        timeout_ms,
        partial(_response, request),
        replaces=False,
        validate_only=request.validate_only,
    )


def _response(
    request: IncrementalAlterConfigsRequest, verdicts: Sequence[Verdict]
) -> IncrementalAlterConfigsResponse:
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
