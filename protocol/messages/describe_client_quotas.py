"""DescribeClientQuotas reads the quotas of users, clients and addresses (KIP-546).

v1 is v0 in the flexible encoding.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import BOOL, FLOAT64, INT8, INT16, INT32, STRING, Array, message, nested, wire

# How a component matches the name of an entity.
MATCH_EXACT = 0
MATCH_DEFAULT = 1
MATCH_ANY = 2


@nested
class DescribeClientQuotasRequestComponent:
    """A component of DescribeClientQuotasRequest: a type of entity, and which of its names."""

    entity_type: str = wire(STRING)  # user, client-id or ip
    match_type: int = wire(INT8)
    match: str | None = wire(STRING, nullable=0)


@message(api=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    """Ask for the entities that match all components, and `strict`: that have no other type."""

    components: Sequence[DescribeClientQuotasRequestComponent] = wire(
        Array(DescribeClientQuotasRequestComponent)
    )
    strict: bool = wire(BOOL)


@nested
class DescribeClientQuotasResponseEntity:
    """A part of an entity: its type, and its name or null for all others of the type."""

    entity_type: str = wire(STRING)
    entity_name: str | None = wire(STRING, nullable=0)


@nested
class DescribeClientQuotasResponseValue:
    """A quota of an entity."""

    key: str = wire(STRING)
    value: float = wire(FLOAT64)


@nested
class DescribeClientQuotasResponseEntry:
    """An entity with its quotas."""

    entity: Sequence[DescribeClientQuotasResponseEntity] = wire(
        Array(DescribeClientQuotasResponseEntity)
    )
    values: Sequence[DescribeClientQuotasResponseValue] = wire(
        Array(DescribeClientQuotasResponseValue)
    )


@message(api=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    """The entities that match; null after an error."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0, default=None)
    entries: Sequence[DescribeClientQuotasResponseEntry] | None = wire(
        Array(DescribeClientQuotasResponseEntry), nullable=0
    )


def error_response(
    request: DescribeClientQuotasRequest, code: ErrorCode, message: str = ""
) -> DescribeClientQuotasResponse:
    """Return an error for the whole request."""
    return DescribeClientQuotasResponse(
        error_code=code, error_message=message or code.meaning, entries=None
    )
