"""The settings that ZooKeeper keeps for topics and brokers: read, and changed.

Whoever changes an entity's settings writes them, and then a notification that names the entity, by
which every broker hears of it (`config_changes`). A node is written over the version that was
read, so that of two changes at once neither is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import attrs

from broker.zk_retry import retry_until_connected
from protocol.errors import ApiError, ErrorCode
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
from zk.znodes import ConfigChange, EntityConfig, TopicAssignment, ZnodeError

T = TypeVar("T")

logger = logging.getLogger(__name__)

TOPICS, BROKERS = "topics", "brokers"

Settings = Mapping[str, str]


@attrs.frozen
class Stored:
    """An entity's own settings as ZooKeeper has them; None where they cannot be understood.

    `mzxid` is of the transaction that wrote them, 0 where there is no node.
    """

    settings: Settings | None
    mzxid: int = 0


UNREADABLE = Stored(None, -1)
"""ZooKeeper refuses to say what there is."""


async def stored(zk: ZkSession, kind: str, name: str) -> Stored:
    """The entity's own settings. Asks for as long as ZooKeeper is away."""
    path = EntityConfig.path(kind, name)
    try:
        return _decoded(path, await _answer(zk, lambda: get_if_there(zk, path)))
    except ZkError as error:
        logger.error("the settings in %s cannot be read: %s", path, error)
        return UNREADABLE


async def stored_many(zk: ZkSession, kind: str, names: Sequence[str]) -> list[Stored]:
    """As `stored`, of each of `names`, with one request for a thousand of them."""
    paths = [EntityConfig.path(kind, name) for name in names]
    try:
        nodes = await _answer(zk, lambda: zk.get_many(paths))
    except ZkError:
        return [await stored(zk, kind, name) for name in names]  # one of them may be the cause
    return [_decoded(path, node) for path, node in zip(paths, nodes, strict=True)]


async def _answer(zk: ZkSession, ask: Callable[[], Awaitable[T]]) -> T:
    """The answer to a question that is the same in each session. Raises ZkError; SessionExpired
    only where no other session follows."""
    while True:
        try:
            return await retry_until_connected(zk, ask)
        except SessionExpired:
            if zk.state is SessionState.CLOSED:
                raise


def _decoded(path: str, node: tuple[bytes | None, Stat] | None) -> Stored:
    if node is None:
        return Stored({})
    data, stat = node
    try:
        return Stored(EntityConfig.decode(data, path).config, stat.mzxid)
    except ZnodeError as error:
        logger.error("the settings in %s cannot be understood: %s", path, error)
        return Stored(None, stat.mzxid)


async def alter(
    zk: ZkSession,
    kind: str,
    name: str,
    change: Callable[[Settings], Settings],
    *,
    validate_only: bool = False,
) -> None:
    """Make the entity's settings what `change` makes of them, and tell all brokers.

    Raises what `change` raises, and ApiError UNKNOWN_TOPIC_OR_PARTITION. A change whose answer was
    lost is made again upon what is there then.
    """
    path = EntityConfig.path(kind, name)
    topic = TopicAssignment.path(name) if kind == TOPICS else None
    while True:
        node, version = await _node(zk, path, topic)
        after = attrs.evolve(node, config=dict(change(node.config))).encode()
        if validate_only:
            return
        write = Create(path, after) if version is None else SetData(path, after, version)
        exists = [Check(topic, -1)] if topic else []  # no settings are left for a topic that goes
        try:
            await retry_until_connected(zk, partial(zk.multi, [*exists, write]))
            break
        except MultiFailed as failed:
            if topic and failed.index == 0:
                raise unknown_topic(name) from failed
            if not isinstance(failed.error, BadVersion | NodeExists | NoNode):
                raise
    told = ConfigChange(EntityConfig.entity_path(kind, name)).encode()
    await retry_until_connected(
        zk, lambda: zk.create(ConfigChange.prefix(), told, sequence=True, make_parents=True)
    )


async def _node(zk: ZkSession, path: str, topic: str | None) -> tuple[EntityConfig, int | None]:
    """The node and its version; None: there is none yet."""
    if topic and not await retry_until_connected(zk, lambda: zk.exists(topic)):
        raise unknown_topic(topic.rpartition("/")[2])
    try:
        data, stat = await retry_until_connected(zk, lambda: zk.get(path))
    except NoNode:
        return EntityConfig(config={}), None
    try:
        return EntityConfig.decode(data, path), stat.version
    except ZnodeError as error:
        logger.error("the settings in %s are given up: %s", path, error)
        return EntityConfig(config={}), stat.version


def unknown_topic(topic: str) -> ApiError:
    """What is said of a topic that is not there."""
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")
