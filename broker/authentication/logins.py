"""The logins of a broker: the session of each new connection, by its listener.

The broker checks passwords by keys that are made beforehand, which is cheap enough for the loop.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import partial
from pathlib import Path

import attrs

from broker.authentication.gate import Gate
from broker.authentication.sasl_session import LoginCounts, SaslLimits, SaslSession
from broker.authentication.scram_users import ScramUsers
from broker.network.session import PLAINTEXT_SESSION, Session
from broker.process.periodic import run_every
from broker.process.process import Process
from broker.settings.config import BrokerConfig
from broker.settings.sasl_config import MechanismConfig, TokenConfig, read_sasl_listeners
from protocol.sasl.exchange import OAUTHBEARER, PLAIN, ServerExchange
from protocol.sasl.oauthbearer import (
    AcceptedToken,
    OAuthBearerServer,
    check_claims,
    parse_unsecured,
)
from protocol.sasl.plain import PlainServer
from protocol.sasl.scram import NONCE_BITS, SCRAM_MECHANISMS, ScramServer, nonce_of
from protocol.sasl.signed_tokens import BadKeys, SecurityExtraMissing, TokenKeys, read_keys
from protocol.settings import SettingError
from zk.api import ZkSession

logger = logging.getLogger(__name__)

SECRET_BYTES = 32


@attrs.frozen
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
        validator = await _prepare_tokens(mechanism.tokens, process)
        return partial(OAuthBearerServer, validator.validate)

    assert users is not None
    scram = SCRAM_MECHANISMS[mechanism.name]
    find = partial(users.find, scram)
    return lambda: ScramServer(scram, find, nonce_of(secrets.randbits(NONCE_BITS)))


# ---- tokens


@attrs.define(eq=False)
class TokenValidator:
    """Checks tokens by the keys that were read last; without keys, unsecured tokens."""

    config: TokenConfig
    now_ms: Callable[[], int]
    executor: Executor
    keys: TokenKeys | None = None

    def validate(self, token: str) -> AcceptedToken:
        """Return the user of a token. Raises InvalidToken."""
        claims = parse_unsecured(token) if self.keys is None else self.keys.verify(token)
        return check_claims(claims, self.config.rules, self.now_ms())

    async def read(self) -> None:
        """Read the keys. Raises SettingError."""
        path = self.config.keys_path
        if path is None:
            return

        def read_file() -> TokenKeys:
            return read_keys(Path(path).read_bytes())

        try:
            self.keys = await asyncio.get_running_loop().run_in_executor(self.executor, read_file)
        except (OSError, BadKeys, SecurityExtraMissing) as error:
            raise SettingError(path, f"keys of OAUTHBEARER cannot be read: {error}") from error

    async def read_again(self) -> None:
        """Take over new keys; those that cannot be read leave the old ones in force."""
        try:
            await self.read()
        except SettingError as error:
            logger.error("the old keys stay: %s", error)


async def _prepare_tokens(config: TokenConfig, process: Process) -> TokenValidator:
    validator = TokenValidator(config, process.now_ms, process.disk)
    await validator.read()
    if config.keys_path is not None:
        process.spawn(run_every(config.keys_refresh_ms, "read keys", validator.read_again))
    return validator
