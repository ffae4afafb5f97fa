"""Log in at other brokers, with the name and password of this broker's own JAAS entry."""

from __future__ import annotations

from broker.settings.config import BrokerConfig
from broker.settings.sasl_config import own_mechanism
from clients.transport.login import Login, login_by_password, login_by_unsecured_token
from protocol.sasl.exchange import OAUTHBEARER


def own_login(config: BrokerConfig, listener: str) -> Login | None:
    """Return the login of this broker at a listener of others; None if it needs none.

    Raises SettingError.
    """
    mechanism = own_mechanism(config, listener)
    if mechanism is None:
        return None
    assert mechanism.entry is not None, "the config is checked"
    options = mechanism.entry.options
    if mechanism.name == OAUTHBEARER:
        return login_by_unsecured_token(options)
    return login_by_password(mechanism.name, options["username"], options["password"])
