"""The logins of a broker: the session of each new connection, by its listener.

The broker checks passwords by keys that are made beforehand, which is cheap enough for the loop.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from functools import partial

from broker.authentication.gate import Gate
from broker.authentication.sasl_session import LoginCounts, SaslLimits, SaslSession
from broker.authentication.scram_users import ScramUsers
from broker.authentication.token_validator import prepare_tokens
from broker.network.session import PLAINTEXT_SESSION, Session
from broker.process.process import Process
from broker.settings.config import BrokerConfig
from broker.settings.sasl_config import MechanismConfig, read_sasl_listeners
from protocol.frozen import frozen
from protocol.sasl.exchange import OAUTHBEARER, PLAIN, ServerExchange
from protocol.sasl.oauthbearer import OAuthBearerServer
from protocol.sasl.plain import PlainServer
from protocol.sasl.scram import NONCE_BITS, SCRAM_MECHANISMS, ScramServer, nonce_of
from zk.api import ZkSession

SECRET_BYTES = 32


@frozen
class Logins:
    """Opens the sessions of connections.

    `gates` has those of SASL listeners. `users` is None if no listener has SCRAM.
    """

    gates: Mapping[str, Gate]
    users: ScramUsers | None
    limits: SaslLimits
    counts: Mapping[str, LoginCounts]
    process: Process

    def open_session(self, listener: str) -> Session:
        """Return the session of a new connection to a listener."""
        gate = self.gates.get(listener)
        if gate is None:
            return PLAINTEXT_SESSION
        return SaslSession(
            gate,
            self.limits,
            self.counts[listener],
            self.process.now_ms,
            self.process.monotonic_ms,
        )


async def prepare_logins(config: BrokerConfig, process: Process, zk: ZkSession) -> Logins:
    """Read what the listeners of this broker need to let clients in.

    Raises SettingError for keys that cannot be read.
    """
    listeners = read_sasl_listeners(config)
    users = None
    if any(SCRAM_MECHANISMS.keys() & mechanisms.keys() for mechanisms in listeners.values()):
        users = ScramUsers(zk, process.spawn, secrets.token_bytes(SECRET_BYTES))

    gates = {}
    for listener, mechanisms in listeners.items():
        begin = {
            name: await _prepare_mechanism(mechanism, users, process)
            for name, mechanism in mechanisms.items()
        }
        limits = {name: mechanism.max_reauth_ms for name, mechanism in mechanisms.items()}
        gates[listener] = Gate(begin, {name: limit for name, limit in limits.items() if limit > 0})

    return Logins(
        gates,
        users,
        SaslLimits(
            config.sasl_server_max_receive_size, config.connection_failed_authentication_delay_ms
        ),
        {listener: LoginCounts.of(process.metrics, listener) for listener in listeners},
        process,
    )


async def _prepare_mechanism(
    mechanism: MechanismConfig, users: ScramUsers | None, process: Process
) -> Callable[[], ServerExchange]:
    """Return a function that begins a login by a mechanism."""
    if mechanism.name == PLAIN:
        return partial(PlainServer, mechanism.passwords)
    if mechanism.name == OAUTHBEARER:
        assert mechanism.tokens is not None
        validator = await prepare_tokens(mechanism.tokens, process)
        return partial(OAuthBearerServer, validator.validate)

    assert users is not None
    scram = SCRAM_MECHANISMS[mechanism.name]
    find = partial(users.find, scram)
    return lambda: ScramServer(scram, find, nonce_of(secrets.randbits(NONCE_BITS)))
