"""DescribeUserScramCredentials lists the users that can log in by SCRAM (KIP-554).

Neither salts nor keys are in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT8, INT16, INT32, STRING, Array, message, nested, wire


@nested
class DescribeUserScramCredentialsRequestUser:
    """A user of DescribeUserScramCredentialsRequest."""

    name: str = wire(STRING)


@message(api=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    """Ask for these users; null, or none, asks for all."""

    users: Sequence[DescribeUserScramCredentialsRequestUser] | None = wire(
        Array(DescribeUserScramCredentialsRequestUser), nullable=0
    )


@nested
class DescribeUserScramCredentialsResponseCredential:
    """A credential: the mechanism (1: SCRAM-SHA-256, 2: SCRAM-SHA-512) and its iterations."""

    mechanism: int = wire(INT8)
    iterations: int = wire(INT32)


@nested
class DescribeUserScramCredentialsResponseResult:
    """A user of DescribeUserScramCredentialsResponse."""

    user: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0)
    credential_infos: Sequence[DescribeUserScramCredentialsResponseCredential] = wire(
        Array(DescribeUserScramCredentialsResponseCredential)
    )


@message(api=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    """The credentials of each user."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0)
    results: Sequence[DescribeUserScramCredentialsResponseResult] = wire(
        Array(DescribeUserScramCredentialsResponseResult)
    )


def error_response(
    request: DescribeUserScramCredentialsRequest, code: ErrorCode, message: str = ""
) -> DescribeUserScramCredentialsResponse:
    """Refuse the whole request."""
    return DescribeUserScramCredentialsResponse(
        error_code=code, error_message=message or code.meaning, results=[]
    )
