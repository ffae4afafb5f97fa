"""SaslHandshake where no login can begin: on a listener without SASL, or after the login.

`broker.authentication` takes the others before they are dispatched.
"""

from __future__ import annotations

from broker.network.request_context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    error_response,
)


def handle(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    """Refuse; the connection goes on."""
    return error_response(request, ErrorCode.ILLEGAL_SASL_STATE)
