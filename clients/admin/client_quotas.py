"""Make the admin client's requests about quotas, and read the responses (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Literal

from clients.admin.verdicts import Verdicts, make_verdict, raise_for
from protocol.api_key import ApiKey
from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntity,
    AlterClientQuotasRequestEntry,
    AlterClientQuotasRequestOp,
    AlterClientQuotasResponse,
)
from protocol.messages.describe_client_quotas import (
    MATCH_ANY,
    MATCH_DEFAULT,
    MATCH_EXACT,
    DescribeClientQuotasRequest,
    DescribeClientQuotasRequestComponent,
    DescribeClientQuotasResponse,
)

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Whom a quota is for: pairs of a type (user, client-id, ip) and a name, sorted by type.

The name is None for all users, clients or addresses without a quota of their own.
"""


class AnyName(Enum):
    """Matches every name when quotas are described, None among them."""

    ANY = "any"


ANY = AnyName.ANY

Matches = Mapping[str, str | Literal[AnyName.ANY] | None]
"""A type of entity, and the name it must have: one name, None for all others, or ANY."""


def quota_entity(parts: Mapping[str, str | None]) -> QuotaEntity:
    """Return the entity with these types and names."""
    return tuple(sorted(parts.items()))


def describe_request(matches: Matches, *, strict: bool) -> DescribeClientQuotasRequest:
    """Ask for the entities that have these types and names; strict: and no other types."""
    components = []
    for kind, name in matches.items():
        if isinstance(name, AnyName):
            match_type, match = MATCH_ANY, None
        else:
            match_type, match = MATCH_DEFAULT if name is None else MATCH_EXACT, name
        components.append(
            DescribeClientQuotasRequestComponent(
                entity_type=kind, match_type=match_type, match=match
            )
        )
    return DescribeClientQuotasRequest(components=components, strict=strict)


def described(response: DescribeClientQuotasResponse) -> dict[QuotaEntity, dict[str, float]]:
    """Return each entity with its quotas. Raises BrokerError."""
    raise_for(
        ApiKey.DESCRIBE_CLIENT_QUOTAS, response.error_code, response.error_message or "quotas"
    )
    return {
        quota_entity({part.entity_type: part.entity_name for part in entry.entity}): {
            quota.key: quota.value for quota in entry.values
        }
        for entry in response.entries or ()
    }


def alter_request(
    changes: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool
) -> AlterClientQuotasRequest:
    """Ask to set quotas, and to remove those that are None."""
    return AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasRequestEntry(
                entity=[
                    AlterClientQuotasRequestEntity(entity_type=kind, entity_name=name)
                    for kind, name in entity
                ],
                ops=[
                    AlterClientQuotasRequestOp(key=key, value=value or 0.0, remove=value is None)
                    for key, value in quotas.items()
                ],
            )
            for entity, quotas in changes.items()
        ],
        validate_only=validate_only,
    )


def altered(response: AlterClientQuotasResponse) -> Verdicts[QuotaEntity]:
    """Return the verdict on each entity."""
    verdicts: Verdicts[Any] = {}
    for entry in response.entries:
        entity = quota_entity({part.entity_type: part.entity_name for part in entry.entity})
        detail = entry.error_message or ", ".join(f"{kind} {name}" for kind, name in entity)
        verdicts[entity] = make_verdict(ApiKey.ALTER_CLIENT_QUOTAS, entry.error_code, detail)
    return verdicts
