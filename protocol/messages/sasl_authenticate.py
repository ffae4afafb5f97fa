"""SaslAuthenticate carries one token of a login each way (KIP-152).

v1 adds the session's lifetime (KIP-368), v2 is v1 in the flexible encoding. Tokens are never null:
clients read the length of an empty one.
"""

from __future__ import annotations

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import BYTES, INT16, INT64, STRING, message, wire


@message(api=ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    """The client's token."""

    auth_bytes: bytes = wire(BYTES)


@message(api=ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    """The server's token, and with the last one the lifetime of the session; 0: it has no end."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0)
    auth_bytes: bytes = wire(BYTES)
    session_lifetime_ms: int = wire(INT64, since=1, default=0)


def error_response(request: SaslAuthenticateRequest, code: ErrorCode) -> SaslAuthenticateResponse:
    """Refuse the login."""
    return SaslAuthenticateResponse(error_code=code, error_message=code.meaning, auth_bytes=b"")
