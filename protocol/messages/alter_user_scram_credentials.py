"""AlterUserScramCredentials creates, replaces and deletes the SCRAM credentials of users (KIP-554).

The client salts the password: no broker sees it.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import BYTES, INT8, INT16, INT32, STRING, Array, message, nested, wire


@nested
class AlterUserScramCredentialsRequestDeletion:
    """A credential to delete."""

    name: str = wire(STRING)
    mechanism: int = wire(INT8)  # 1: SCRAM-SHA-256, 2: SCRAM-SHA-512


@nested
class AlterUserScramCredentialsRequestUpsertion:
    """A credential to create, or to put in the place of another."""

    name: str = wire(STRING)
    mechanism: int = wire(INT8)
    iterations: int = wire(INT32)
    salt: bytes = wire(BYTES)
    salted_password: bytes = wire(BYTES)


@message(api=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest:
    """Change these credentials and leave all others as they are."""

    deletions: Sequence[AlterUserScramCredentialsRequestDeletion] = wire(
        Array(AlterUserScramCredentialsRequestDeletion)
    )
    upsertions: Sequence[AlterUserScramCredentialsRequestUpsertion] = wire(
        Array(AlterUserScramCredentialsRequestUpsertion)
    )


@nested
class AlterUserScramCredentialsResponseResult:
    """The result for a user."""

    user: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0)


@message(api=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    """The result for each user of the request."""

    throttle_time_ms: int = wire(INT32, default=0)
    results: Sequence[AlterUserScramCredentialsResponseResult] = wire(
        Array(AlterUserScramCredentialsResponseResult)
    )


def error_response(
    request: AlterUserScramCredentialsRequest, code: ErrorCode
) -> AlterUserScramCredentialsResponse:
    """Return the same error for every user of `request`."""
    deleted = [deletion.name for deletion in request.deletions]
    upserted = [upsertion.name for upsertion in request.upsertions]
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResponseResult(
                user=name, error_code=code, error_message=code.meaning
            )
            for name in dict.fromkeys(deleted + upserted)
        ]
    )
