"""The settings of TLS for one listener, and which of them can change while the broker runs."""

from __future__ import annotations

from collections.abc import Mapping

from broker.settings.listener_settings import prefix_of, select_for_listener
from protocol.security_protocol import SecurityProtocol
from protocol.settings import SettingError, declared_settings, load
from protocol.tls.config import ServerTlsConfig
from protocol.tls.principal_rules import parse_rules

TLS_SETTINGS = frozenset(setting.name for setting in declared_settings(ServerTlsConfig).values())

DYNAMIC_TLS_SETTINGS = frozenset(
    name
    for name in TLS_SETTINGS
    if name.startswith(("ssl.keystore.", "ssl.truststore.")) or name == "ssl.key.password"
)
"""The settings of stores, which change with the prefix of a listener only."""

_CLIENT_AUTH = "ssl.client.auth"


def load_tls_config(given: Mapping[str, str], listener: str, protocol: str) -> ServerTlsConfig:
    """Return the settings of TLS of one listener. Raises SettingError under the name in the file.

    `ssl.client.auth` without a prefix is not for SASL_SSL, where clients log in.
    """
    prefix = prefix_of(listener)
    settings = {
        name: value
        for name, value in select_for_listener(given, listener).items()
        if name in TLS_SETTINGS
    }
    if protocol == SecurityProtocol.SASL_SSL.name and prefix + _CLIENT_AUTH not in given:
        settings.pop(_CLIENT_AUTH, None)

    try:
        config, _ = load(ServerTlsConfig, settings)
        parse_rules(config.ssl_principal_mapping_rules)
    except SettingError as error:
        raise under_its_name(error, given, listener) from error
    return config


def under_its_name(error: SettingError, given: Mapping[str, str], listener: str) -> SettingError:
    """Return the error under the listener's own setting, if the listener has one."""
    own = prefix_of(listener) + error.name
    return error.with_name(own) if own in given else error


def uses_tls(protocol: str) -> bool:
    """Return whether a security protocol has TLS."""
    return protocol in (SecurityProtocol.SSL.name, SecurityProtocol.SASL_SSL.name)
