"""The facts about a request that a handler gets beside its body."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from broker.network.authorization import Operation, Resource, allow_everything
from broker.network.session import ANONYMOUS, Principal


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

    `now_ms` is the wall clock, for records; `monotonic_ms` is the clock for intervals. Handlers
    call `allows` through `authorize`.
    """

    api_version: int
    client_id: str
    listener: str
    connection_id: str
    now_ms: int
    connection: int = 0
    monotonic_ms: int = 0
    principal: Principal = ANONYMOUS
    allows: Callable[[Principal, Operation, Resource], bool] = allow_everything


def authorize(context: RequestContext, operation: Operation, resource: Resource) -> bool:
    """Return whether the sender of the request may perform `operation` on `resource`."""
    return context.allows(context.principal, operation, resource)
