"""The users of SCRAM: their credentials in `/config/users`, beside their quotas.

A node may have a credential for each mechanism. They are read when the broker starts, and again
whenever a notification names the user (`config_changes`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import attrs

from broker.process.zk_retry import retry_until_connected
from broker.settings.entity_configs import (
    USERS,
    Settings,
    StoredSettings,
    read_many_entities,
)
from protocol.sasl.iterations import DEFAULT_ITERATIONS, MIN_ITERATIONS
from protocol.sasl.scram import (
    SCRAM_MECHANISMS,
    BadCredential,
    ScramCredential,
    ScramMechanism,
    parse_credential,
    unknown_credential,
)
from zk.api import NoNode, ZkError, ZkSession
from zk.failures import is_transient
from zk.znodes import ClientEntity, EntityConfig, ZnodeError

logger = logging.getLogger(__name__)

Credentials = Mapping[str, ScramCredential]
"""The credentials of a user by mechanism."""


def parse_credentials(user: str, settings: Settings) -> Credentials:
    """Return the credentials among a user's settings; one that cannot be read is left out."""
    credentials = {}
    for name in SCRAM_MECHANISMS.keys() & settings.keys():
        try:
            credentials[name] = parse_credential(settings[name])
        except BadCredential as error:
            logger.error("user %s cannot log in by %s: %s", user, name, error)
    return credentials


async def list_users(zk: ZkSession) -> list[str]:
    """Return the users that have settings in ZooKeeper, sorted. Raises ZkError."""
    try:
        names, _ = await retry_until_connected(
            zk, lambda: zk.children(EntityConfig.directory(USERS))
        )
    except NoNode:
        return []
    users = [ClientEntity.parse(f"{USERS}/{name}").user for name in names]
    return sorted(user for user in users if isinstance(user, str))


async def read_users(zk: ZkSession, users: Sequence[str]) -> list[StoredSettings]:
    """Read the settings of users. This waits for as long as ZooKeeper is away."""
    return await read_many_entities(zk, [ClientEntity(user=user).path() for user in users])


@attrs.define(eq=False)
class ScramUsers:
    """The credentials that clients of this broker log in with.

    `secret` makes what unknown users are sent look like what known ones are.
    """

    zk: ZkSession
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    secret: bytes = attrs.field(repr=False)
    _users: dict[str, Credentials] = attrs.field(factory=dict, repr=False)
    _mzxids: dict[str, int] = attrs.field(factory=dict, repr=False)
    _iterations: Counter[int] = attrs.field(factory=Counter)
    _is_unread: bool = False

    def find(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
        """Return the credential of a user; for an unknown one, one that no password fits."""
        # The most common number of iterations: most users show it.
        common = (+self._iterations).most_common(1)
        iterations = common[0][0] if common else DEFAULT_ITERATIONS
        # Made for known users too, or these would be answered sooner (fault security-6).
        unknown = unknown_credential(mechanism, self.secret, user, iterations)

        credential = self._users.get(user, {}).get(mechanism.name)
        if credential is not None and credential.iterations >= MIN_ITERATIONS:
            return credential
        return unknown

    # ---- changes

    def user_changed(self, entity: str) -> None:
        """Call this when the settings of a user changed; `entity` is as in the notification."""
        # A client of a user has quotas alone, and so has the default of users.
        try:
            named = ClientEntity.parse(f"{USERS}/{entity}")
        except ZnodeError as error:
            logger.warning("a changed user is not understood: %s", error)
            return
        if named.client_id is None and isinstance(named.user, str):
            self.spawn(self.read(named.user))

    def any_changed(self) -> None:
        """Call this when any user's settings may have changed."""
        self.spawn(self.read_all())

    def read_unreadable(self) -> None:
        """Try again to read what ZooKeeper refused. Call this from time to time."""
        if self._is_unread:
            self.any_changed()

    # ---- reading

    async def read(self, user: str) -> None:
        """Read the credentials of one user from ZooKeeper."""
        (stored,) = await read_users(self.zk, [user])
        self._take(user, stored)

    async def read_all(self) -> None:
        """Read the credentials of all users from ZooKeeper."""
        try:
            names = await list_users(self.zk)
        except ZkError as error:
            self._is_unread = True
            if not is_transient(error):
                logger.error("the users cannot be listed, trying again: %r", error)
            return

        self._is_unread = False
        stored = await read_users(self.zk, names)
        for user, settings in zip(names, stored, strict=True):
            self._take(user, settings)
        for user in self._users.keys() - set(names):
            self._mzxids.pop(user, None)
            self._put(user, {})

    def _take(self, user: str, stored: StoredSettings) -> None:
        # What cannot be read changes nothing, and an earlier state that was read late neither.
        if stored.settings is None:
            self._is_unread = True
            return
        if 0 < stored.mzxid < self._mzxids.get(user, 0):
            return
        self._mzxids[user] = stored.mzxid
        self._put(user, parse_credentials(user, stored.settings))

    def _put(self, user: str, credentials: Credentials) -> None:
        for credential in self._users.pop(user, {}).values():
            self._iterations[credential.iterations] -= 1
        if not credentials:
            return
        self._users[user] = credentials
        for credential in credentials.values():
            self._iterations[credential.iterations] += 1
