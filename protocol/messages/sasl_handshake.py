"""SaslHandshake names the mechanism of a login, and asks for those that are enabled (KIP-43).

After v1 the tokens of the login are in SaslAuthenticate requests (KIP-152), after v0 they follow
without headers. There is no newer version: Java clients before 2.5 would send it without knowing
it (KAFKA-9577).
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT16, STRING, Array, message, wire


@message(api=ApiKey.SASL_HANDSHAKE, versions="0-1")
class SaslHandshakeRequest:
    """Begin a login by this mechanism."""

    mechanism: str = wire(STRING)


@message(api=ApiKey.SASL_HANDSHAKE, versions="0-1")
class SaslHandshakeResponse:
    """The enabled mechanisms; the error if the named one is not among them."""

    error_code: int = wire(INT16)
    mechanisms: Sequence[str] = wire(Array(STRING))


def error_response(request: SaslHandshakeRequest, code: ErrorCode) -> SaslHandshakeResponse:
    """Refuse the whole request."""
    return SaslHandshakeResponse(error_code=code, mechanisms=[])
