"""Check changes of SCRAM credentials, and apply them to the settings of a user (KIP-554).

A user whose changes have one mistake is not changed at all; others are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from broker.settings.entity_configs import Settings
from protocol.errors import ApiError, ErrorCode
from protocol.frozen import frozen
from protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from protocol.sasl.iterations import MAX_STORED_ITERATIONS, MIN_ITERATIONS
from protocol.sasl.scram import (
    SCRAM_MECHANISMS,
    ScramMechanism,
    credential_of,
)

MECHANISM_OF_NUMBER: Mapping[int, ScramMechanism] = {
    mechanism.wire_number: mechanism for mechanism in SCRAM_MECHANISMS.values()
}


@frozen
class Deletion:
    """A credential to delete. `mechanism` is its number on the wire."""

    user: str
    mechanism: int


@frozen
class Upsertion:
    """A credential to create or replace."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes = attrs.field(repr=False)
    salted_password: bytes = attrs.field(repr=False)


CredentialChange = Deletion | Upsertion


def changes_of(request: AlterUserScramCredentialsRequest) -> dict[str, list[CredentialChange]]:
    """Return the changes of each user, deletions first."""
    changes: dict[str, list[CredentialChange]] = {}
    for deletion in request.deletions:
        changes.setdefault(deletion.name, []).append(Deletion(deletion.name, deletion.mechanism))
    for upsertion in request.upsertions:
        changes.setdefault(upsertion.name, []).append(
            Upsertion(
                upsertion.name,
                upsertion.mechanism,
                upsertion.iterations,
                bytes(upsertion.salt),
                bytes(upsertion.salted_password),
            )
        )
    return changes


def check_changes(changes: Sequence[CredentialChange]) -> None:
    """Raise ApiError for a mistake in the changes of one user, in Kafka's order of checks."""
    for change in changes:
        _check_user(change.user)
        mechanism = MECHANISM_OF_NUMBER.get(change.mechanism)
        if mechanism is None:
            raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        if isinstance(change, Upsertion):
            _check_upsertion(change, mechanism)

    mechanisms = [change.mechanism for change in changes]
    if len(set(mechanisms)) < len(mechanisms):
        raise ApiError(
            ErrorCode.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        )


def _check_user(user: str) -> None:
    if not user:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")


def _check_upsertion(upsertion: Upsertion, mechanism: ScramMechanism) -> None:
    code = ErrorCode.UNACCEPTABLE_CREDENTIAL
    if upsertion.iterations < MIN_ITERATIONS:
        raise ApiError(code, "Too few iterations")
    if upsertion.iterations > MAX_STORED_ITERATIONS:
        raise ApiError(code, "Too many iterations")
    if not upsertion.salt or len(upsertion.salted_password) != mechanism.digest_bytes:
        raise ApiError(code, f"The salted password is not one of {mechanism.name}")


def apply_changes(changes: Sequence[CredentialChange], settings: Settings) -> Settings:
    """Return a user's settings after the changes; quotas stay as they are.

    Raises ApiError RESOURCE_NOT_FOUND.
    """
    changed = dict(settings)
    for change in changes:
        mechanism = MECHANISM_OF_NUMBER[change.mechanism]
        if isinstance(change, Upsertion):
            credential = credential_of(
                mechanism, change.salted_password, change.salt, change.iterations
            )
            changed[mechanism.name] = credential.as_text()
        elif changed.pop(mechanism.name, None) is None:
            raise ApiError(
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
    return changed
