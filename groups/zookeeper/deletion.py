"""Delete a group in ZooKeeper, or some of its offsets, on request.

A group with members is left alone, and nobody can join unseen while it is deleted. Its `ids` node
goes first, which ZooKeeper refuses as long as it has a child. The group's own node goes last, which
ZooKeeper refuses if somebody has created a child again. Kafka's old tool looks, and then deletes
everything.

There is no such order for offsets. The owner of a partition looks after its offset, and a member
that claims the partition at this very moment finds the offset, or none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable

from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import TopicPartition
from zk.api import NoNode, NotEmpty, ZkSession, children_if_there
from zk.migration_znodes import GroupMigration, MigrationPaths
from zk.znodes import ConsumerGroup, ConsumerOffset, PartitionOwner, ZnodeError

MAX_PARTITION_DIGITS = 10  # of an int32


async def check_empty(zk: ZkSession, group_id: str) -> None:
    """Raises ApiError(NON_EMPTY_GROUP) for a group that has members, ZkError."""
    ids_path = ConsumerGroup.ids_path(group_id)
    if ConsumerGroup.can_hold(group_id) and await children_if_there(zk, ids_path):
        raise _non_empty(group_id)


async def delete_group(zk: ZkSession, group_id: str, *, with_migration: bool = True) -> bool:
    """Delete a group. Return whether it existed. Raises ApiError(NON_EMPTY_GROUP), ZkError.

    Its migration is deleted too, if that is wanted and nobody is working on it.
    """
    # `g/offsets` would be the offsets of another group, and a NUL ends the command for all.
    if not ConsumerGroup.can_hold(group_id):
        return False

    path = ConsumerGroup.path(group_id)
    ids_path = ConsumerGroup.ids_path(group_id)
    exists = await zk.exists(path) is not None

    if exists:
        try:
            # In this order no member can join unseen.
            await _delete_if_there(zk, ids_path)
            for name in await children_if_there(zk, path):
                if f"{path}/{name}" != ids_path:
                    await zk.delete_recursive(f"{path}/{name}")
            await _delete_if_there(zk, path)
        except NotEmpty:
            raise _non_empty(group_id) from None

    # A member or a command below the migration keeps it: NotEmpty.
    if with_migration:
        for of_migration in (MigrationPaths.members_path(group_id), GroupMigration.path(group_id)):
            with contextlib.suppress(NotEmpty):
                await _delete_if_there(zk, of_migration)
    return exists


async def read_offsets(
    zk: ZkSession, group_id: str, topic: str
) -> dict[TopicPartition, int | None]:
    """Read a group's offsets of a topic; None for one that is no number. Raises ZkError."""
    names = await children_if_there(zk, ConsumerGroup.topic_offsets_path(group_id, topic))

    # Kafka writes plain decimals; `01` or `+1` is no partition of anybody.
    partitions = [
        TopicPartition(topic, int(name))
        for name in names
        if name.isdecimal() and len(name) <= MAX_PARTITION_DIGITS and str(int(name)) == name
    ]
    paths = [ConsumerOffset.path(group_id, *partition) for partition in partitions]

    nodes = await zk.get_many(paths)
    return {
        partition: _decode_offset(node[0], path)
        for partition, path, node in zip(partitions, paths, nodes, strict=True)
        if node is not None
    }


async def find_owned(
    zk: ZkSession, group_id: str, partitions: Collection[TopicPartition]
) -> set[TopicPartition]:
    """Return those of `partitions` that a live member owns. Raises ZkError."""
    nodes = await zk.get_many(
        [PartitionOwner.path(group_id, *partition) for partition in partitions]
    )
    return {
        partition for partition, node in zip(partitions, nodes, strict=True) if node is not None
    }


async def delete_offsets(
    zk: ZkSession, group_id: str, partitions: Iterable[TopicPartition]
) -> None:
    """Delete the offsets of partitions that nobody owns, and topics left empty. Raises ZkError."""
    topics = set()
    for partition in partitions:
        await _delete_if_there(zk, ConsumerOffset.path(group_id, *partition))
        topics.add(partition.topic)

    # A topic keeps its directory as long as another partition has an offset.
    for topic in sorted(topics):
        with contextlib.suppress(NotEmpty):
            await _delete_if_there(zk, ConsumerGroup.topic_offsets_path(group_id, topic))


def _non_empty(group_id: str) -> ApiError:
    text = f"group '{group_id}' has members in ZooKeeper: stop them"
    return ApiError(ErrorCode.NON_EMPTY_GROUP, text)


def _decode_offset(data: bytes | None, path: str) -> int | None:
    try:
        return ConsumerOffset.decode(data, path).offset
    except ZnodeError:
        return None


async def _delete_if_there(zk: ZkSession, path: str) -> None:
    with contextlib.suppress(NoNode):
        await zk.delete(path)
