"""Read and change the settings that ZooKeeper keeps for topics, brokers and users.

A change writes the entity's settings and then a notification that names the entity. Every broker
follows these (`config_changes`). A node is written over the version that was read, so that of two
concurrent changes neither is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import attrs

from broker.process.zk_retry import retry_until_connected
from protocol.errors import ApiError, ErrorCode
from protocol.frozen import frozen
from zk.api import (
    BadVersion,
    Check,
    Create,
    MultiFailed,
    NodeExists,
    NoNode,
    SessionExpired,
    SessionState,
    SetData,
    Stat,
    ZkError,
    ZkSession,
    get_if_there,
)
from zk.znodes import ClientEntity, ConfigChange, EntityConfig, TopicAssignment, ZnodeError

T = TypeVar("T")

logger = logging.getLogger(__name__)

TOPICS = "topics"
BROKERS = "brokers"
USERS = "users"
CLIENTS = "clients"
IPS = "ips"

NODES_A_REQUEST = 1_000
"""Nodes that are read in one request to ZooKeeper, and understood in one turn of the loop."""

Settings = Mapping[str, str]


@frozen
class StoredSettings:
    """An entity's own settings as ZooKeeper has them; None where they cannot be parsed.

    `mzxid` is of the transaction that wrote them, 0 where there is no node.
    """

    settings: Settings | None
    mzxid: int = 0


UNREADABLE = StoredSettings(None, -1)
"""ZooKeeper refuses to read the node."""


async def read_settings(zk: ZkSession, kind: str, name: str) -> StoredSettings:
    """Read the entity's own settings. This waits for as long as ZooKeeper is away."""
    return await _read_one(zk, EntityConfig.path(kind, name))


async def _read_one(zk: ZkSession, path: str) -> StoredSettings:
    try:
        return _decode(path, await _ask(zk, lambda: get_if_there(zk, path)))
    except ZkError as error:
        logger.error("the settings in %s cannot be read: %s", path, error)
        return UNREADABLE


async def read_many_settings(
    zk: ZkSession, kind: str, names: Sequence[str]
) -> list[StoredSettings]:
    """Read the settings of many entities of a kind (`read_many_entities`)."""
    return await read_many_entities(zk, [EntityConfig.path(kind, name) for name in names])


async def read_many_entities(zk: ZkSession, paths: Sequence[str]) -> list[StoredSettings]:
    """Read the settings in many nodes, a thousand in one request."""
    settings = []
    for first in range(0, len(paths), NODES_A_REQUEST):
        settings += await _read_some(zk, paths[first : first + NODES_A_REQUEST])
    return settings


async def _read_some(zk: ZkSession, paths: Sequence[str]) -> list[StoredSettings]:
    try:
        nodes = await _ask(zk, lambda: zk.get_many(paths))
    except ZkError:
        # One of the nodes may be the cause.
        return [await _read_one(zk, path) for path in paths]
    return [_decode(path, node) for path, node in zip(paths, nodes, strict=True)]


async def _ask(zk: ZkSession, call: Callable[[], Awaitable[T]]) -> T:
    """Return the result of a read, in this session or the next.

    Raises ZkError; SessionExpired only where no other session follows.
    """
    while True:
        try:
            return await retry_until_connected(zk, call)
        except SessionExpired:
            # A read may be repeated in any session, unlike a write.
            if zk.state is SessionState.CLOSED:
                raise


def _decode(path: str, node: tuple[bytes | None, Stat] | None) -> StoredSettings:
    if node is None:
        return StoredSettings({})
    data, stat = node
    if data is None:  # a user without settings, who has clients with some
        return StoredSettings({}, stat.mzxid)
    try:
        return StoredSettings(EntityConfig.decode(data, path).config, stat.mzxid)
    except ZnodeError as error:
        logger.error("the settings in %s cannot be understood: %s", path, error)
        return StoredSettings(None, stat.mzxid)


async def alter(
    zk: ZkSession,
    kind: str,
    name: str,
    change: Callable[[Settings], Settings],
    *,
    validate_only: bool = False,
) -> None:
    """Replace the entity's settings by `change(settings)`, and notify all brokers.

    Raises what `change` raises, and ApiError UNKNOWN_TOPIC_OR_PARTITION. A change whose reply was
    lost is applied again to the settings that are there then.
    """
    entity_path = EntityConfig.entity_path(kind, name)
    topic = name if kind == TOPICS else None
    await _alter_node(zk, entity_path, change, topic, validate_only=validate_only)


async def alter_client(
    zk: ZkSession,
    entity: ClientEntity,
    change: Callable[[Settings], Settings],
    *,
    validate_only: bool = False,
) -> None:
    """Replace the settings of a user, a client or an address as `alter` does."""
    # A client of a user may be the first one, and so may an address: old brokers know none.
    parent = None
    if entity.ip is not None:
        parent = EntityConfig.directory(IPS)
    elif entity.user is not None and entity.client_id is not None:
        parent = ClientEntity.clients_of(entity.user)
    if parent is not None and not validate_only:
        await retry_until_connected(zk, partial(zk.ensure_path, parent))
    await _alter_node(zk, entity.entity_path(), change, None, validate_only=validate_only)


async def _alter_node(
    zk: ZkSession,
    entity_path: str,
    change: Callable[[Settings], Settings],
    topic: str | None,
    *,
    validate_only: bool,
) -> None:
    """Replace settings. Those of a `topic` are written only while it exists."""
    path = EntityConfig.path_of(entity_path)
    topic_path = TopicAssignment.path(topic) if topic else None
    while True:
        # From the top with each try: another may have changed the settings.
        node, version = await _read_node(zk, path, topic_path)
        data = attrs.evolve(node, config=dict(change(node.config))).encode()
        if validate_only:
            return

        # The check of the topic keeps settings from being left behind by its deletion.
        write = Create(path, data) if version is None else SetData(path, data, version)
        checks = [Check(topic_path, -1)] if topic_path else []
        try:
            await retry_until_connected(zk, partial(zk.multi, [*checks, write]))
            break
        except MultiFailed as failed:
            if topic and failed.index == 0:
                raise unknown_topic(topic) from failed

            # Written, created or deleted by another: read again.
            if not isinstance(failed.error, BadVersion | NodeExists | NoNode):
                raise

    # Notify after the write, so that all who read find it.
    notification = ConfigChange(entity_path).encode()
    await retry_until_connected(
        zk,
        lambda: zk.create(ConfigChange.prefix(), notification, sequence=True, make_parents=True),
    )


async def _read_node(
    zk: ZkSession, path: str, topic_path: str | None
) -> tuple[EntityConfig, int | None]:
    """Return the node and its version; None: there is none yet."""
    if topic_path and not await retry_until_connected(zk, lambda: zk.exists(topic_path)):
        raise unknown_topic(topic_path.rpartition("/")[2])

    try:
        data, stat = await retry_until_connected(zk, lambda: zk.get(path))
    except NoNode:
        return EntityConfig(config={}), None
    if data is None:
        return EntityConfig(config={}), stat.version
    try:
        return EntityConfig.decode(data, path), stat.version
    except ZnodeError as error:
        # A node that nobody can parse must not stand in the way of its repair.
        logger.error("the settings in %s are overwritten: %s", path, error)
        return EntityConfig(config={}), stat.version


def unknown_topic(topic: str) -> ApiError:
    """Return the error for a topic that does not exist."""
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")
