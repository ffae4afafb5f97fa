"""The settings that ZooKeeper keeps for topics and brokers: read, and changed.

Whoever changes an entity's settings writes them, and then a notification that names the entity, by
which every broker hears of it (`config_changes`). A node is written over the version that was
read, so that of two changes at once neither is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial

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
    ZkError,
    ZkSession,
)
from zk.znodes import ConfigChange, EntityConfig, TopicAssignment, ZnodeError

logger = logging.getLogger(__name__)

TOPICS, BROKERS = "topics", "brokers"

Settings = Mapping[str, str]


async def stored(zk: ZkSession, kind: str, name: str) -> Settings:
    """The entity's own settings; none where they cannot be understood.

    Asks for as long as ZooKeeper is away: under the broker's own settings a compacted topic would
    lose to retention what it is there to keep.
    """
    path = EntityConfig.path(kind, name)
    while True:
        try:
            data, _ = await retry_until_connected(zk, lambda: zk.get(path))
            return EntityConfig.decode(data, path).config
        except NoNode:
            return {}
        except (ZkError, ZnodeError) as error:
            ended = isinstance(error, SessionExpired)
            if ended and zk.state is not SessionState.CLOSED:
                continue  # another session follows
            logger.error("the settings in %s cannot be read: %s", path, error)
            return {}


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
                raise _unknown(name) from failed
            if not isinstance(failed.error, BadVersion | NodeExists | NoNode):
                raise
    told = ConfigChange(EntityConfig.entity_path(kind, name)).encode()
    await retry_until_connected(
        zk, lambda: zk.create(ConfigChange.prefix(), told, sequence=True, make_parents=True)
    )


async def _node(zk: ZkSession, path: str, topic: str | None) -> tuple[EntityConfig, int | None]:
    """The node and its version; None: there is none yet."""
    if topic and not await retry_until_connected(zk, lambda: zk.exists(topic)):
        raise _unknown(topic.rpartition("/")[2])
    try:
        data, stat = await retry_until_connected(zk, lambda: zk.get(path))
    except NoNode:
        return EntityConfig(config={}), None
    try:
        return EntityConfig.decode(data, path), stat.version
    except ZnodeError as error:
        logger.error("the settings in %s are given up: %s", path, error)
        return EntityConfig(config={}), stat.version


def _unknown(topic: str) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
