"""What is kept of a group in ZooKeeper, removed on request: the group, or some of its offsets.

A group with members is left alone, and nobody can come in unseen while it goes: its `ids` are
removed first, which ZooKeeper refuses as long as there is a child, and the group's own node last,
which it refuses if somebody made one anew. Kafka's old tool looks, and then removes all there is.

For offsets there is no such order. They are looked after by the one who owns the partition, and who
claims it in the very moment finds the offset, or none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable

from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import TopicPartition
from zk.api import NoNode, NotEmpty, ZkSession, children_if_there
from zk.migration_znodes import GroupMigration, MigrationPaths
from zk.znodes import ConsumerGroup, ConsumerOffset, PartitionOwner, ZnodeError

MAX_PARTITION_DIGITS = 10


async def delete_group(zk: ZkSession, group: str) -> bool:
    """Remove a group; whether it was there. Raises ApiError(NON_EMPTY_GROUP), ZkError.

    Its migration goes too, unless somebody is at work with it.
    """
    path = ConsumerGroup.path(group)
    if was_there := await zk.exists(path) is not None:
        try:
            await _delete_if_there(zk, ConsumerGroup.ids_path(group))
            for name in await children_if_there(zk, path):
                if f"{path}/{name}" != ConsumerGroup.ids_path(group):
                    await zk.delete_recursive(f"{path}/{name}")
            await _delete_if_there(zk, path)
        except NotEmpty:
            text = f"group '{group}' has members in ZooKeeper"
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, text) from None
    for node in (MigrationPaths.members_path(group), GroupMigration.path(group)):
        with contextlib.suppress(NotEmpty):
            await _delete_if_there(zk, node)
    return was_there


async def kept_offsets(zk: ZkSession, group: str, topic: str) -> dict[TopicPartition, int | None]:
    """The offsets of a topic, None for what is no number. Raises ZkError."""
    names = await children_if_there(zk, ConsumerGroup.topic_offsets_path(group, topic))
    partitions = [
        TopicPartition(topic, int(name))
        for name in names
        if name.isdecimal() and len(name) <= MAX_PARTITION_DIGITS and str(int(name)) == name
    ]
    paths = [ConsumerOffset.path(group, *tp) for tp in partitions]
    nodes = await zk.get_many(paths)
    return {
        tp: _offset(node[0], path)
        for tp, path, node in zip(partitions, paths, nodes, strict=True)
        if node is not None
    }


async def owned(
    zk: ZkSession, group: str, partitions: Collection[TopicPartition]
) -> set[TopicPartition]:
    """Those that a live member consumes. Raises ZkError."""
    nodes = await zk.get_many([PartitionOwner.path(group, *tp) for tp in partitions])
    return {tp for tp, node in zip(partitions, nodes, strict=True) if node is not None}


async def delete_offsets(zk: ZkSession, group: str, partitions: Iterable[TopicPartition]) -> None:
    """Remove the offsets of partitions that nobody owns, and what is empty then. Raises ZkError."""
    topics = set()
    for tp in partitions:
        await _delete_if_there(zk, ConsumerOffset.path(group, *tp))
        topics.add(tp.topic)
    for topic in sorted(topics):
        with contextlib.suppress(NotEmpty):
            await _delete_if_there(zk, ConsumerGroup.topic_offsets_path(group, topic))


def _offset(data: bytes | None, path: str) -> int | None:
    try:
        return ConsumerOffset.decode(data, path).offset
    except ZnodeError:
        return None


async def _delete_if_there(zk: ZkSession, path: str) -> None:
    with contextlib.suppress(NoNode):
        await zk.delete(path)
