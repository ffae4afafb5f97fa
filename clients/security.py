"""Settings by which a client and its brokers know each other, in Kafka's spelling or librdkafka's.

Secret values are never shown.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

import attrs

from protocol.security_protocol import SecurityProtocol
from protocol.settings import setting
from protocol.tls.config import ClientTlsConfig
from protocol.tls.context import make_client_context
from protocol.tls.stores import load_stores

PROTOCOLS = (SecurityProtocol.PLAINTEXT.name, SecurityProtocol.SSL.name)
TLS_PROTOCOLS = (SecurityProtocol.SSL.name, SecurityProtocol.SASL_SSL.name)


def _known_protocol(value: str) -> str | None:
    # Kafka and librdkafka take it in small letters too.
    if value.upper() in PROTOCOLS:
        return None
    return f"String must be one of: {', '.join(PROTOCOLS)}"


@attrs.frozen(kw_only=True)
class SecurityConfig(ClientTlsConfig):
    """Settings of security; all clients have them."""

    security_protocol: str = setting(
        "security.protocol",
        SecurityProtocol.PLAINTEXT.name,
        validator=_known_protocol,
        doc="How brokers are spoken to: PLAINTEXT, or SSL",
    )


def protocol_of(settings: Mapping[str, Any]) -> str:
    """Return the security protocol among a user's settings, in either spelling."""
    for name, value in settings.items():
        if name.replace("_", ".").lower() == "security.protocol":
            return str(value).upper()
    return SecurityProtocol.PLAINTEXT.name


def tls_of(config: SecurityConfig) -> ssl.SSLContext | None:
    """Return the context of TLS that the settings ask for; None if they ask for none.

    This reads files. Raises SettingError.
    """
    if config.security_protocol.upper() not in TLS_PROTOCOLS:
        return None
    return make_client_context(config, load_stores(config))
