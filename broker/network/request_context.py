"""The facts about a request that a handler gets beside its body, and the sender's permissions."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from broker.network.authorization import REFUSALS, Authorizer, Operation, Resource, topic
from broker.network.session import ANONYMOUS, Principal
from protocol.errors import ApiError

NO_TOPICS: Collection[str] = frozenset()


class Origin(NamedTuple):
    """The origin of requests: the same for all requests of an authenticated connection.

    `listener` is the name of the listener that accepted the connection, `connection_id` the
    client's host:port. `connection` counts connections in the order in which they were accepted.
    """

    listener: str
    connection_id: str
    connection: int = 0
    principal: Principal = ANONYMOUS


class RequestContext(NamedTuple):
    """The context of one request.

    `now_ms` is the wall clock, for records; `monotonic_ms` is the clock for intervals. `allows` is
    the authorizer, None if there is none. Handlers call it through `authorize`,
    `require_authorized` and `refused_topics`.
    """

    api_version: int
    client_id: str
    listener: str
    connection_id: str
    now_ms: int
    connection: int = 0
    monotonic_ms: int = 0
    principal: Principal = ANONYMOUS
    allows: Authorizer | None = None


def client_host(context: RequestContext) -> str:
    """Return the client's address as Java writes it: "/127.0.0.1"."""
    host, _, _ = context.connection_id.rpartition(":")
    return f"/{host.strip('[]')}"


def authorize(context: RequestContext, operation: Operation, resource: Resource) -> bool:
    """Return whether the sender of the request may perform `operation` on `resource`."""
    return context.allows is None or context.allows(context.principal, operation, resource)


def require_authorized(context: RequestContext, operation: Operation, resource: Resource) -> None:
    """Raise ApiError with the resource type's refusal unless the sender may perform `operation`."""
    if not authorize(context, operation, resource):
        raise ApiError(REFUSALS[resource.kind], f"{context.principal} on {resource.name}")


def refused_topics(
    context: RequestContext, operation: Operation, names: Iterable[str]
) -> Collection[str]:
    """Return those of the topics `names` on which the sender may not perform `operation`.

    Without an authorizer `names` is not iterated.
    """
    if context.allows is None:
        return NO_TOPICS
    return {name for name in names if not authorize(context, operation, topic(name))}
