"""The facts about a request that a handler gets beside its body, and the sender's permissions."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple, Protocol

import attrs

from broker.network.authorization import (
    CLUSTER,
    Resource,
    Sender,
    audit,
    audit_logger,
    audit_more,
    host_of,
    operations_mask,
    topic,
)
from broker.network.session import ANONYMOUS, Principal
from protocol.acls import Operation, ResourceType
from protocol.errors import ApiError, ErrorCode
from protocol.needs import REFUSALS

NO_TOPICS: Collection[str] = frozenset()


class Bill(Protocol):
    """The cost of one request by the quotas of its client (`broker.quotas.charging`)."""

    def charge(
        self,
        dispatched: Any,
        *,
        request: Any,
        context: RequestContext,
        size: int,
        spent_ns: int,
    ) -> Any:
        """Return the response with what its client is told, and must bear.

        `dispatched` is a `Dispatched` with the response. `size` is of the request's frame,
        `spent_ns` the time that was spent on it.
        """

    def take_mutations(self, context: RequestContext, partitions: int, *, is_strict: bool) -> bool:
        """Take the cost of so many new or deleted partitions; return False where it is refused."""

    def most_fetched_bytes(self, context: RequestContext, limit: int) -> int:
        """Return how many bytes a response may have to be within the sender's quota."""


class Origin(NamedTuple):
    """The origin of requests: the same for all requests of an authenticated connection.

    `listener` is the name of the listener that accepted the connection, `connection_id` the
    client's host:port. `connection` counts connections in the order in which they were accepted.
    """

    listener: str
    connection_id: str
    connection: int = 0
    principal: Principal = ANONYMOUS


MOST_LOGGED = 20
"""Names of one request whose refusal has a line of its own in the log, for each operation."""


@attrs.define(eq=False)
class RefusalLog:
    """Logs what one request is refused: the first names, and of the others how many there are."""

    _principal: Principal = ANONYMOUS
    _host: str = ""
    _refused: dict[tuple[Operation, ResourceType], int] = attrs.field(factory=dict)

    def note(
        self, principal: Principal, host: str, operation: Operation, resource: Resource
    ) -> None:
        """Log a refusal, or count it."""
        self._principal, self._host = principal, host
        key = operation, resource.kind
        refused = self._refused[key] = self._refused.get(key, 0) + 1
        # A line takes longer than all else that is done for a name (fault security-5).
        if refused > MOST_LOGGED:
            return
        audit(principal, host, operation, resource, allowed=False)

    def note_more(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, count: int
    ) -> None:
        """Count refusals behind the first MOST_LOGGED, which have been noted."""
        self._principal, self._host = principal, host
        self._refused[operation, kind] = self._refused.get((operation, kind), 0) + count

    def end(self) -> None:
        """Log how many have no line of their own. The request has its response."""
        for (operation, kind), refused in self._refused.items():
            if refused > MOST_LOGGED:
                audit_more(self._principal, self._host, operation, kind, refused - MOST_LOGGED)
        self._refused.clear()


class RequestContext(NamedTuple):
    """The context of one request.

    `now_ms` is the wall clock, for records; `monotonic_ms` is the clock for intervals. `sender` is
    the principal as the authorizer knows it, None if there is no authorizer. Handlers ask it
    through `authorize`, `require_authorized` and `refused_topics`. `bill` is None while nobody has
    a quota; handlers call it through `take_mutations` and `most_fetched_bytes`. `refusals` logs
    what is refused; without it each refusal is logged by itself.
    """

    api_version: int
    client_id: str
    listener: str
    connection_id: str
    now_ms: int
    connection: int = 0
    monotonic_ms: int = 0
    principal: Principal = ANONYMOUS
    sender: Sender | None = None
    bill: Bill | None = None
    refusals: RefusalLog | None = None


def client_host(context: RequestContext) -> str:
    """Return the client's address as Java writes it: "/127.0.0.1"."""
    return f"/{host_of(context.connection_id)}"


def authorize(
    context: RequestContext, operation: Operation, resource: Resource, *, quietly: bool = False
) -> bool:
    """Return whether the sender of the request may perform `operation` on `resource` now.

    `quietly`: nothing is refused, so nothing is logged. The response only has less in it, or
    another permission makes up for this one.
    """
    if context.sender is None:
        return True

    # Work on a request may take a minute (fault strangers-15, was: context.sender).
    sender = context.sender.now()
    allowed = sender.permissions(operation, resource.kind).allows(resource.name)
    if not quietly and not allowed:
        _note_refusal(context, host_of(context.connection_id), operation, resource)
    elif not quietly and audit_logger.isEnabledFor(logging.DEBUG):
        host = host_of(context.connection_id)
        audit(context.principal, host, operation, resource, allowed=True)
    return allowed


def require_authorized(context: RequestContext, operation: Operation, resource: Resource) -> None:
    """Raise ApiError with the resource type's refusal unless the sender may perform `operation`."""
    if not authorize(context, operation, resource):
        raise ApiError(REFUSALS[resource.kind], f"{context.principal} on {resource.name}")


def refused_topics(
    context: RequestContext, operation: Operation, names: Iterable[str], *, quietly: bool = False
) -> Collection[str]:
    """Return those of the topics `names` on which the sender may not perform `operation`.

    Without an authorizer `names` is not iterated. `quietly`: see `authorize`.
    """
    if context.sender is None:
        return NO_TOPICS
    # The same as in `authorize` (fault strangers-15, was: context.sender).
    sender = context.sender.now()
    permissions = sender.permissions(operation, ResourceType.TOPIC)
    if quietly:
        return permissions.refused(names)

    names = set(names)
    refused = permissions.refused(names)
    host = host_of(context.connection_id)
    first = heapq.nsmallest(MOST_LOGGED, refused)
    for name in first:
        _note_refusal(context, host, operation, topic(name))
    if context.refusals is None:
        for name in refused - {*first}:
            audit(context.principal, host, operation, topic(name), allowed=False)
    elif len(refused) > MOST_LOGGED:
        # Nothing is done for each of them: they may be 50,000 in one turn.
        more = len(refused) - MOST_LOGGED
        context.refusals.note_more(context.principal, host, operation, ResourceType.TOPIC, more)
    if audit_logger.isEnabledFor(logging.DEBUG):
        for name in sorted(names - refused):
            audit(context.principal, host, operation, topic(name), allowed=True)
    return refused


def _note_refusal(
    context: RequestContext, host: str, operation: Operation, resource: Resource
) -> None:
    if context.refusals is not None:
        context.refusals.note(context.principal, host, operation, resource)
    else:
        audit(context.principal, host, operation, resource, allowed=False)


def cluster_operations(context: RequestContext) -> int:
    """Return what the sender may do to the cluster (KIP-430): 0 if it may not describe it."""
    if not authorize(context, Operation.DESCRIBE, CLUSTER, quietly=True):
        return 0
    return operations_mask(context.sender, CLUSTER)


def take_mutations(context: RequestContext, partitions: int, strict_from: int | None) -> None:
    """Take the cost of so many new or deleted partitions from the sender's quota (KIP-599).

    From version `strict_from` of the request on a sender in debt is refused: ApiError
    THROTTLING_QUOTA_EXCEEDED. An older client would not understand that, and is only throttled.
    None: no version is refused.
    """
    if context.bill is None:
        return
    is_strict = strict_from is not None and context.api_version >= strict_from
    if not context.bill.take_mutations(context, partitions, is_strict=is_strict):
        raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)


def most_fetched_bytes(context: RequestContext, limit: int) -> int:
    """Return how many bytes a response to a consumer may have: `limit`, or less by its quota."""
    return limit if context.bill is None else context.bill.most_fetched_bytes(context, limit)
