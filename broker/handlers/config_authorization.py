"""Permissions of requests about settings: topics have their own, brokers those of the cluster."""

from __future__ import annotations

from collections.abc import Sequence

from broker.network.authorization import CLUSTER, REFUSALS, Resource, topic
from broker.network.request_context import RequestContext, authorize
from broker.settings.config_resources import (
    BROKER,
    BROKER_LOGGER,
    TOPIC,
    Alteration,
    ConfigResources,
    Verdict,
)
from protocol.acls import Operation
from protocol.errors import ApiError


def require_config_access(
    context: RequestContext, operation: Operation, resource_type: int, name: str
) -> None:
    """Raise ApiError unless the sender may do this to the settings of a resource."""
    resource = _deciding_resource(resource_type, name)
    if resource is not None and not authorize(context, operation, resource):
        raise ApiError(REFUSALS[resource.kind])


async def alter_allowed(
    resources: ConfigResources,
    context: RequestContext,
    alterations: Sequence[Alteration],
    *,
    replaces: bool,
    validate_only: bool,
) -> list[Verdict]:
    """Apply the alterations that the sender may make; return a verdict on each."""
    # Refuse what the sender may not change.
    refusals: dict[int, Verdict] = {}
    for place, alteration in enumerate(alterations):
        try:
            require_config_access(
                context,
                Operation.ALTER_CONFIGS,
                alteration.resource_type,
                alteration.resource_name,
            )
        except ApiError as error:
            refusals[place] = (error.code, error.code.meaning)

    # Apply the rest. The verdicts are in the order of the request.
    allowed = [entry for place, entry in enumerate(alterations) if place not in refusals]
    verdicts = iter(await resources.alter(allowed, replaces=replaces, validate_only=validate_only))
    return [
        refusals[place] if place in refusals else next(verdicts)
        for place in range(len(alterations))
    ]


def _deciding_resource(resource_type: int, name: str) -> Resource | None:
    """Return the resource to authorize; None for a type without settings, refused elsewhere."""
    if resource_type == TOPIC:
        return topic(name)
    return CLUSTER if resource_type in (BROKER, BROKER_LOGGER) else None
