"""Follow the quotas that ZooKeeper keeps for users, clients, addresses, and all others (KIP-55,
KIP-612)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from broker.network.addresses import resolve
from broker.network.connection_quotas import ConnectionQuotas
from broker.process.zk_retry import retry_until_connected
from broker.quotas.client_entities import CONNECTION_RATE
from broker.quotas.client_quotas import ClientQuotas, read_bound
from broker.settings.entity_configs import (
    CLIENTS,
    IPS,
    USERS,
    StoredSettings,
    read_many_entities,
)
from zk.api import ZkError, ZkSession, children_if_there
from zk.znodes import DEFAULT, ClientEntity, EntityConfig, EntityName, ZnodeError

logger = logging.getLogger(__name__)


async def read_all(zk: ZkSession) -> dict[ClientEntity, Mapping[str, str]]:
    """Read the settings of all users, clients and addresses that have a node. Raises ZkError."""
    entities = await _list_entities(zk)
    stored = await read_many_entities(zk, [entity.path() for entity in entities])
    return {
        entity: settings.settings or {} for entity, settings in zip(entities, stored, strict=True)
    }


async def _list_entities(zk: ZkSession) -> list[ClientEntity]:
    async def children(path: str) -> list[str]:
        return await retry_until_connected(zk, lambda: children_if_there(zk, path))

    entities = []
    for kind in (USERS, CLIENTS, IPS):
        nodes = await children(EntityConfig.directory(kind))
        entities += [ClientEntity.parse(f"{kind}/{node}") for node in nodes]

    # A user's clients may have quotas of their own. Few users have any: their nodes say so.
    users = [entity for entity in entities if entity.user is not None]
    paths = [user.path() for user in users]
    found = await retry_until_connected(zk, lambda: zk.get_many(paths))
    for user, node in zip(users, found, strict=True):
        if node is not None and node[1].num_children:
            clients = ClientEntity.clients_of(user.user)
            entities += [
                ClientEntity.parse(f"{user.entity_path()}/clients/{client}")
                for client in await children(clients)
            ]
    return entities


@attrs.define(eq=False)
class StoredQuotas:
    """Keeps `quotas` and those of `connections` as they are stored.

    `switch(on)` is called with True if any user or client has a quota, and with False if none has.
    `in_thread` waits for what may block.
    """

    zk: ZkSession
    quotas: ClientQuotas
    connections: ConnectionQuotas
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    switch: Callable[[bool], None]
    in_thread: Callable[[Callable[[], list[str]]], Awaitable[list[str]]]
    _written_in: dict[ClientEntity, int] = attrs.field(factory=dict)
    """The transaction of ZooKeeper that wrote the settings in force."""
    _is_unread: bool = False

    # ---- changes

    def entity_changed(self, entity_path: str) -> None:
        """Call this when a notification names a user, a client or an address."""
        try:
            entity = ClientEntity.parse(entity_path)
        except ZnodeError as error:
            logger.warning("a changed quota is not understood: %s", error)
            return
        self.spawn(self._read([entity]))

    def any_changed(self) -> None:
        """Call this when any quota may have changed."""
        self.spawn(self.read())

    def read_unread(self) -> None:
        """Try again to read what ZooKeeper refused. Call this from time to time."""
        if self._is_unread:
            self.any_changed()

    # ---- reading

    async def read(self) -> None:
        """Read all quotas. This waits for as long as ZooKeeper is away."""
        try:
            entities = await _list_entities(self.zk)
        except ZkError as error:
            logger.error("quotas cannot be listed, trying again: %r", error)
            self._is_unread = True
            return

        # Those that are not there any more have no quotas.
        self._is_unread = False
        await self._read({*entities, *self._written_in})

    async def _read(self, entities: Iterable[ClientEntity]) -> None:
        listed = list(entities)
        stored = await read_many_entities(self.zk, [entity.path() for entity in listed])
        for entity, settings in zip(listed, stored, strict=True):
            addresses = [] if entity.ip in (None, DEFAULT) else await self._resolve(str(entity.ip))
            self._apply(entity, settings, addresses)
        self.switch(self.quotas.are_set)

    async def _resolve(self, host: str) -> list[str]:
        """Return the addresses of a host; none if it is not known."""
        try:
            # Mostly it is an address itself, and nobody has to be asked.
            return resolve(host, asks=False)
        except OSError:
            pass
        try:
            return await self.in_thread(partial(resolve, host))
        except OSError as error:
            logger.error("the quota of %s is ignored: %s", host, error)
            return []

    def _apply(
        self, entity: ClientEntity, stored: StoredSettings, addresses: Sequence[str]
    ) -> None:
        # What is not readable changes nothing. A slower read must not undo a later one.
        if stored.settings is None:
            self._is_unread = True
            return
        if 0 < stored.mzxid < self._written_in.get(entity, 0):
            return

        self._written_in[entity] = stored.mzxid
        if entity.ip is not None:
            faults = self._set_rate(entity.ip, addresses, stored.settings)
        else:
            faults = self.quotas.set_all(entity, stored.settings)
        for fault in faults:
            logger.error("a quota is ignored: %s: %s", entity.path(), fault)

    def _set_rate(
        self, host: EntityName, addresses: Sequence[str], settings: Mapping[str, str]
    ) -> list[str]:
        """Set how fast an address, or each other one, may connect; return what is wrong there."""
        faults = []
        rate = None
        value = settings.get(CONNECTION_RATE)
        try:
            rate = None if value is None else read_bound(value)
        except ValueError:
            faults.append(f"{CONNECTION_RATE}={value} is not a number")

        if host is DEFAULT:
            self.connections.set_default_quota(rate)
        else:
            self.connections.set_quota(str(host), addresses, rate)
        return faults
