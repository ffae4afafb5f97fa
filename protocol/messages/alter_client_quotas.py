"""AlterClientQuotas sets and removes quotas of users, clients and addresses (KIP-546).

v1 is v0 in the flexible encoding.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import BOOL, FLOAT64, INT16, INT32, STRING, Array, message, nested, wire


@nested
class AlterClientQuotasRequestEntity:
    """A part of an entity: its type, and its name or null for all others of the type."""

    entity_type: str = wire(STRING)  # user, client-id or ip
    entity_name: str | None = wire(STRING, nullable=0)


@nested
class AlterClientQuotasRequestOp:
    """A change of one quota; the value counts unless it is removed."""

    key: str = wire(STRING)
    value: float = wire(FLOAT64)
    remove: bool = wire(BOOL)


@nested
class AlterClientQuotasRequestEntry:
    """An entity, and the changes of its quotas."""

    entity: Sequence[AlterClientQuotasRequestEntity] = wire(Array(AlterClientQuotasRequestEntity))
    ops: Sequence[AlterClientQuotasRequestOp] = wire(Array(AlterClientQuotasRequestOp))


@message(api=ApiKey.ALTER_CLIENT_QUOTAS, versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    """Change the quotas of each entity independently; `validate_only` changes nothing."""

    entries: Sequence[AlterClientQuotasRequestEntry] = wire(Array(AlterClientQuotasRequestEntry))
    validate_only: bool = wire(BOOL)


@nested
class AlterClientQuotasResponseEntity:
    """A part of an entity, as in the request."""

    entity_type: str = wire(STRING)
    entity_name: str | None = wire(STRING, nullable=0)


@nested
class AlterClientQuotasResponseEntry:
    """The result for an entity."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0, default=None)
    entity: Sequence[AlterClientQuotasResponseEntity] = wire(Array(AlterClientQuotasResponseEntity))


@message(api=ApiKey.ALTER_CLIENT_QUOTAS, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    """The result for each entity, in the order of the request."""

    throttle_time_ms: int = wire(INT32, default=0)
    entries: Sequence[AlterClientQuotasResponseEntry] = wire(Array(AlterClientQuotasResponseEntry))


def error_response(request: AlterClientQuotasRequest, code: ErrorCode) -> AlterClientQuotasResponse:
    """Return the same error for every entity of `request`."""
    return AlterClientQuotasResponse(
        entries=[
            AlterClientQuotasResponseEntry(
                error_code=code,
                error_message=code.meaning,
                entity=[
                    AlterClientQuotasResponseEntity(
                        entity_type=part.entity_type, entity_name=part.entity_name
                    )
                    for part in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )
