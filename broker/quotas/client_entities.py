"""Entities of quotas as requests name them, and the changes that these may make (KIP-546)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from broker.quotas.client_quotas import QuotaKind
from protocol.errors import ApiError, ErrorCode
from protocol.frozen import frozen
from protocol.messages.describe_client_quotas import MATCH_ANY, MATCH_DEFAULT, MATCH_EXACT
from zk.znodes import DEFAULT, ClientEntity, EntityName

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"

CONNECTION_RATE = "connection_creation_rate"
CLIENT_KEYS = frozenset(kind.value for kind in QuotaKind)
IP_KEYS = frozenset({CONNECTION_RATE})
WHOLE_NUMBERS = frozenset({QuotaKind.PRODUCE.value, QuotaKind.FETCH.value, CONNECTION_RATE})
"""Quotas that are stored as integers."""
NEARLY_WHOLE = 1e-6

Part = tuple[str, str | None]
"""A type of entity, and a name; None: all others of the type."""


def read_entity(parts: Sequence[Part]) -> ClientEntity:
    """Return the entity with these parts. Raises ApiError."""
    names: dict[str, EntityName] = {}
    for kind, name in parts:
        _refuse_unknown_type(kind, ErrorCode.INVALID_REQUEST)
        if kind in names:
            raise _invalid(f"Duplicate {kind} entity.")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
        names[kind] = DEFAULT if name is None else name

    if not names:
        raise _invalid("Invalid empty client quota entity")
    if IP in names and len(names) > 1:
        raise _invalid("Invalid quota entity combination, ip must not be combined")
    return ClientEntity(names.get(USER), names.get(CLIENT_ID), names.get(IP))


def parts_of(entity: ClientEntity) -> list[Part]:
    """Return the parts of an entity."""
    named = ((USER, entity.user), (CLIENT_ID, entity.client_id), (IP, entity.ip))
    return [
        (kind, None if name is DEFAULT else str(name)) for kind, name in named if name is not None
    ]


def apply_change(
    settings: Mapping[str, str], keys: frozenset[str], set_to: Mapping[str, float | None]
) -> Mapping[str, str]:
    """Return settings with some quotas set, or removed (None). Other settings stay.

    `keys` are the quotas that the entity may have. Raises ApiError.
    """
    changed = dict(settings)
    for key, value in set_to.items():
        if key not in keys:
            raise _invalid(f"Invalid configuration key {key}")
        if value is None:
            changed.pop(key, None)
        else:
            changed[key] = _as_text(key, value)
    return changed


def quota_keys(entity: ClientEntity) -> frozenset[str]:
    """Return the quotas that an entity may have."""
    return CLIENT_KEYS if entity.ip is None else IP_KEYS


def quotas_in(entity: ClientEntity, settings: Mapping[str, str]) -> dict[str, float]:
    """Return the quotas among the settings of an entity, without passwords and the like."""
    quotas = {}
    for key in sorted(quota_keys(entity) & settings.keys()):
        try:
            quotas[key] = float(settings[key])
        except ValueError:
            continue
    return quotas


def _as_text(key: str, value: float) -> str:
    if not math.isfinite(value) or value < 0 or (value == 0 and key != CONNECTION_RATE):
        raise _invalid(f"Invalid value for configuration {key}: {value}")
    if key not in WHOLE_NUMBERS:
        return str(value)
    if abs(value - round(value)) > NEARLY_WHOLE:
        raise _invalid(f"Configuration {key} must be a Long value")
    return str(round(value))


# ---- which entities a request asks for


@frozen
class EntityFilter:
    """The entities with these components. `is_strict`: with no others."""

    components: Mapping[str, tuple[int, str | None]]
    is_strict: bool

    @classmethod
    def of(
        cls, components: Iterable[tuple[str, int, str | None]], *, is_strict: bool
    ) -> EntityFilter:
        """Read the components of a request. Raises ApiError."""
        by_type: dict[str, tuple[int, str | None]] = {}
        for kind, match_type, match in components:
            if kind == "":
                raise _invalid("Unexpected empty filter component entity type")
            _refuse_unknown_type(kind, ErrorCode.UNSUPPORTED_VERSION)
            if kind in by_type:
                raise _invalid(f"Duplicate {kind} filter component")
            if match_type not in (MATCH_EXACT, MATCH_DEFAULT, MATCH_ANY):
                raise _invalid(f"Unexpected match type: {match_type}")
            if match_type == MATCH_EXACT and match is None:
                raise _invalid(f"A name is needed to match {kind} exactly")
            by_type[kind] = (match_type, match)
        if IP in by_type and len(by_type) > 1:
            raise _invalid("Invalid entity filter component combination, ip must not be combined")
        return cls(by_type, is_strict)

    def matches(self, entity: ClientEntity) -> bool:
        """Return whether an entity has all components, and if strict no other."""
        parts = dict(parts_of(entity))
        if self.is_strict and parts.keys() != self.components.keys():
            return False
        return all(
            kind in parts and _name_matches(match_type, match, parts[kind])
            for kind, (match_type, match) in self.components.items()
        )


def _name_matches(match_type: int, match: str | None, name: str | None) -> bool:
    if match_type == MATCH_ANY:
        return True
    return name == (None if match_type == MATCH_DEFAULT else match)


def _refuse_unknown_type(kind: str, code: ErrorCode) -> None:
    if kind not in (USER, CLIENT_ID, IP):
        raise ApiError(code, f"Unhandled client quota entity type: {kind}")


def _invalid(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, reason)
