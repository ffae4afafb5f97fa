"""AlterConfigs: replace the own settings of topics and brokers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from broker.handlers.config_authorization import AllowedAlterations
from broker.network.deferred import Deferred
from broker.network.dispatch import Outcome
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
    alterations = [
        Alteration(
            resource.resource_type,
            resource.resource_name,
            [Change(config.name, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]

    changes = AllowedAlterations(resources, context, alterations)

    async def alter() -> Outcome:
        # A setting that is not named loses its own value.
        await changes.apply(replaces=True, validate_only=request.validate_only)
        return _response(request, changes)

    late: Callable[[], Outcome] = partial(error_response, request, ErrorCode.REQUEST_TIMED_OUT)
    # Settings that are written are no failure because others are late (fault scale-S4).
    late = partial(_response, request, changes)
    return deferred.respond(alter(), timeout_ms, late)


def _response(request: AlterConfigsRequest, changes: AllowedAlterations) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResponseResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, (code, message) in zip(request.resources, changes.verdicts(), strict=True)
        ]
    )
