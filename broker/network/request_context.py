"""What a handler may know of a request beside its body."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from broker.network.authorization import Operation, Resource, allow_everything
from broker.network.session import ANONYMOUS, Principal


class Origin(NamedTuple):
    """Where requests come from: the same for all requests of an authenticated connection.

    `listener` is the name of the one that accepted it, `connection_id` is host:port of the client,
    `connection` numbers connections as they were accepted.
    """

    listener: str
    connection_id: str
    connection: int = 0
    principal: Principal = ANONYMOUS


class RequestContext(NamedTuple):
    """The circumstances of one request.

    `now_ms` is the wall clock, for records; `monotonic_ms` the clock for intervals. `allows` is
    asked through `authorize`.
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
    """Return whether the one who sent the request may do this to the resource."""
    return context.allows(context.principal, operation, resource)
