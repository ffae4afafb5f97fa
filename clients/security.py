"""Settings by which a client and its brokers know each other, in Kafka's spelling or librdkafka's.

`sasl.jaas.config` has the name and the password in one text, as Java clients take them;
`sasl.username` and `sasl.password` are librdkafka's. Secret values are never shown.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from clients.transport.login import (
    Login,
    login_by_password,
    login_by_token_file,
    login_by_unsecured_token,
)
from protocol.frozen import frozen
from protocol.sasl.exchange import OAUTHBEARER, refuse_mechanism
from protocol.security_protocol import SecurityProtocol
from protocol.settings import SettingError, setting
from protocol.tls.config import ClientTlsConfig

PROTOCOLS = tuple(SecurityProtocol.__members__)
TLS_PROTOCOLS = (SecurityProtocol.SSL.name, SecurityProtocol.SASL_SSL.name)
LOGIN_PROTOCOLS = (SecurityProtocol.SASL_PLAINTEXT.name, SecurityProtocol.SASL_SSL.name)

_FILE = "file:"
_HANDLERS = "org.apache.kafka.common.security.oauthbearer."
_LOGIN_HANDLERS = (
    _HANDLERS + "OAuthBearerLoginCallbackHandler",
    _HANDLERS + "secured.OAuthBearerLoginCallbackHandler",
    _HANDLERS + "internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler",
)


def _known_protocol(value: str) -> str | None:
    # Kafka and librdkafka take it in small letters too.
    if value.upper() in PROTOCOLS:
        return None
    return f"String must be one of: {', '.join(PROTOCOLS)}"


def _known_handler(value: str) -> str | None:
    return None if value in _LOGIN_HANDLERS else "is not served: no class is loaded by name"


def _file_url(value: str) -> str | None:
    return None if value.startswith(_FILE) else "only files are read: file:///…"


@frozen(kw_only=True)
class SecurityConfig(ClientTlsConfig):
    """Settings of security; all clients have them."""

    security_protocol: str = setting(
        "security.protocol",
        SecurityProtocol.PLAINTEXT.name,
        validator=_known_protocol,
        doc="How brokers are spoken to: PLAINTEXT or SSL; SASL_PLAINTEXT or SASL_SSL with a login",
    )
    sasl_mechanism: str = setting(
        "sasl.mechanism",
        "GSSAPI",
        aliases=("sasl.mechanisms",),
        doc="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER",
    )
    sasl_jaas_config: str | None = setting(
        "sasl.jaas.config", None, doc='Kafka\'s login module with username="…" password="…";'
    )
    sasl_username: str | None = setting(
        "sasl.username", None, doc="User, in place of sasl.jaas.config"
    )
    sasl_password: str | None = setting("sasl.password", None, doc="Password of sasl.username")
    sasl_oauthbearer_token_endpoint_url: str | None = setting(
        "sasl.oauthbearer.token.endpoint.url",
        None,
        validator=_file_url,
        doc="file:///… with the token of OAUTHBEARER, read at each login",
    )
    sasl_login_callback_handler_class: str | None = setting(
        "sasl.login.callback.handler.class",
        None,
        validator=_known_handler,
        doc="Kafka's handler of OAUTHBEARER, accepted under its name",
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

    # Commands that need no TLS start without these.
    from protocol.tls.context import make_client_context
    from protocol.tls.stores import load_stores

    return make_client_context(config, load_stores(config))


def login_of(config: SecurityConfig) -> Login | None:
    """Return the login that the settings ask for; None if they ask for none.

    Raises SettingError, which shows no password.
    """
    if config.security_protocol.upper() not in LOGIN_PROTOCOLS:
        return None

    mechanism = config.sasl_mechanism
    if reason := refuse_mechanism(mechanism):
        raise SettingError("sasl.mechanism", reason)
    if mechanism == OAUTHBEARER:
        return _token_login(config)

    user, password = _credentials(config, mechanism)
    return login_by_password(mechanism, user, password)


def _credentials(config: SecurityConfig, mechanism: str) -> tuple[str, str]:
    if config.sasl_jaas_config is None:
        if not config.sasl_username or not config.sasl_password:
            raise SettingError(
                "sasl.jaas.config",
                f"or sasl.username and sasl.password are needed for a login by {mechanism}",
            )
        return config.sasl_username, config.sasl_password

    if config.sasl_username is not None or config.sasl_password is not None:
        raise SettingError("sasl.username", "cannot stand beside sasl.jaas.config")
    options = _read_options(config, mechanism)
    if options.get("tokenauth", "").lower() == "true":
        raise SettingError("sasl.jaas.config", "delegation tokens (tokenauth) are not served")
    for name in ("username", "password"):
        if not options.get(name):
            raise SettingError("sasl.jaas.config", f"has no {name}")
    return options["username"], options["password"]


def _token_login(config: SecurityConfig) -> Login:
    options = _read_options(config, OAUTHBEARER)
    url = config.sasl_oauthbearer_token_endpoint_url
    if url is None:
        return login_by_unsecured_token(options)

    prefix = "extension_"
    extensions = {
        name.removeprefix(prefix): value
        for name, value in options.items()
        if name.startswith(prefix)
    }
    return login_by_token_file("/" + url.removeprefix(_FILE).lstrip("/"), extensions)


def _read_options(config: SecurityConfig, mechanism: str) -> dict[str, str]:
    if config.sasl_jaas_config is None:
        return {}

    from protocol.sasl.jaas import JaasError, parse_jaas_for

    try:
        return dict(parse_jaas_for(mechanism, config.sasl_jaas_config).options)
    except JaasError as error:
        raise SettingError("sasl.jaas.config", str(error)) from None
