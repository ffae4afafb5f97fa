"""Permissions of requests about settings: topics have their own, brokers those of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from broker.network.authorization import CLUSTER, Resource, topic
from broker.network.deferred import Deferred
from broker.network.dispatch import Outcome
from broker.network.purgatory import Wait
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
from protocol.errors import ApiError, ErrorCode
from protocol.needs import REFUSALS


def require_config_access(
    context: RequestContext, operation: Operation, resource_type: int, name: str
) -> None:
    """Raise ApiError unless the sender may do this to the settings of a resource."""
    resource = _deciding_resource(resource_type, name)
    if resource is not None and not authorize(context, operation, resource):
        raise ApiError(REFUSALS[resource.kind])


@attrs.define(eq=False)
class AllowedAlterations:
    """The alterations of one request, and what is known of each by now.

    One that waits for ZooKeeper does not make those a failure that are done.
    """

    resources: ConfigResources
    context: RequestContext
    alterations: Sequence[Alteration]
    _refusals: dict[int, Verdict] = attrs.field(factory=dict)
    _verdicts: list[Verdict] = attrs.field(factory=list)

    def respond(
        self,
        deferred: Deferred,
        timeout_ms: int,
        render: Callable[[list[Verdict]], Outcome],
        *,
        replaces: bool,
        validate_only: bool,
    ) -> Wait:
        """Apply them, and respond with a verdict on each: with those that are known in time."""

        async def alter() -> Outcome:
            await self.apply(replaces=replaces, validate_only=validate_only)
            return render(self.verdicts())

        # Settings that are written are no failure because others are late (fault scale-S4).
        return deferred.respond(alter(), timeout_ms, lambda: render(self.verdicts()))

    async def apply(self, *, replaces: bool, validate_only: bool) -> None:
        """Apply the alterations that the sender may make."""
        # Refuse what the sender may not change.
        for place, alteration in enumerate(self.alterations):
            try:
                require_config_access(
                    self.context,
                    Operation.ALTER_CONFIGS,
                    alteration.resource_type,
                    alteration.resource_name,
                )
            except ApiError as error:
                self._refusals[place] = (error.code, error.code.meaning)

        # Apply the rest.
        allowed = [
            entry for place, entry in enumerate(self.alterations) if place not in self._refusals
        ]
        await self.resources.alter(
            allowed, self._verdicts, replaces=replaces, validate_only=validate_only
        )

    def verdicts(self) -> list[Verdict]:
        """Return a verdict on each, in the order of the request; REQUEST_TIMED_OUT until then."""
        late = ErrorCode.REQUEST_TIMED_OUT
        known = iter(self._verdicts)
        return [
            self._refusals[place]
            if place in self._refusals
            else next(known, (late, f"{late.meaning} The change may still be made."))
            for place in range(len(self.alterations))
        ]


def _deciding_resource(resource_type: int, name: str) -> Resource | None:
    """Return the resource to authorize; None for a type without settings, refused elsewhere."""
    if resource_type == TOPIC:
        return topic(name)
    return CLUSTER if resource_type in (BROKER, BROKER_LOGGER) else None
