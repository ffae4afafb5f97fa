"""An authorizer that asks a test's function about each resource, and keeps nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs

from broker.network.authorization import Resource
from broker.network.session import Principal
from protocol.acls import WILDCARD, Operation, ResourceType

Decide = Callable[[Principal, Operation, Resource], bool]


@attrs.frozen(eq=False)
class AskingAuthorizer:
    """`decide(principal, operation, resource)` says what is allowed."""

    decide: Decide

    def sender(self, principal: Principal, host: str) -> AskingSender:
        return AskingSender(self.decide, principal)


@attrs.frozen(eq=False)
class AskingSender:
    """A principal, wherever it is."""

    decide: Decide
    principal: Principal

    def now(self) -> AskingSender:
        """Return another one each time: the test's function may have changed its mind."""
        return attrs.evolve(self)

    def permissions(self, operation: Operation, kind: ResourceType) -> AskingPermissions:
        return AskingPermissions(self, operation, kind)

    def may_somewhere(self, operation: Operation, kind: ResourceType) -> bool:
        """Ask about the name `*`."""
        return self.permissions(operation, kind).allows(WILDCARD)


@attrs.frozen(eq=False)
class AskingPermissions:
    """One operation of a sender."""

    sender: AskingSender
    operation: Operation
    kind: ResourceType

    def allows(self, name: str) -> bool:
        resource = Resource(self.kind, name)
        return self.sender.decide(self.sender.principal, self.operation, resource)

    def refused(self, names: Iterable[str]) -> set[str]:
        return {name for name in names if not self.allows(name)}


REFUSING = AskingAuthorizer(lambda principal, operation, resource: False)
"""Refuses everything."""


def allowing(*allowed: tuple[Operation, Resource]) -> AskingAuthorizer:
    """Allow nothing but this."""
    return AskingAuthorizer(lambda _, operation, resource: (operation, resource) in allowed)
