"""What the controller writes to ZooKeeper, each write under its epoch.

Every write is a multi that begins with a check of /controller_epoch, so a controller that has
been replaced and has not heard of it yet can change nothing (KAFKA-6082): EpochMoved.

Partition states are written many to a multi. One state that is not as expected fails its multi
as a whole; then each of that multi is written by itself. A write whose answer was lost fails on
the second try; it counts as done when what it wrote is what is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import attrs

from broker.controller.effects import AssignmentWrite, PartitionStateWrite
from broker.controller.events import AssignmentsWritten, PartitionStatesWritten
from broker.zk_retry import retry_until_connected
from protocol.topic_partition import TopicPartition
from zk.api import (
    BadVersion,
    Check,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    Op,
    SetData,
    Stat,
    ZkSession,
    children_if_there,
)
from zk.znodes import (
    Controller,
    ControllerEpoch,
    DeleteTopic,
    EntityConfig,
    PartitionState,
    ReassignPartitions,
    TopicAssignment,
    ZnodeError,
)

T = TypeVar("T")

MAX_OPS_PER_MULTI = 100
"""A multi is one packet, bounded by jute.maxbuffer (1 MiB), and one turn of ZooKeeper's."""


class EpochMoved(Exception):
    """Another controller has been elected."""


@attrs.frozen
class ClusterWriter:
    """Writes as the controller whose /controller_epoch is at version `epoch_zk_version`."""

    zk: ZkSession
    epoch_zk_version: int

    async def write_states(self, writes: Sequence[PartitionStateWrite]) -> PartitionStatesWritten:
        """Create or replace the states. Raises EpochMoved."""
        await self._create_partitions_nodes(writes)
        chunks = _chunks(writes, MAX_OPS_PER_MULTI // 2)
        versions = await asyncio.gather(*(self._write_chunk(chunk) for chunk in chunks))
        pairs = list(zip(writes, (each for chunk in versions for each in chunk), strict=True))
        return PartitionStatesWritten(
            tuple((write, version) for write, version in pairs if version is not None),
            tuple(write.partition for write, version in pairs if version is None),
        )

    async def write_assignments(self, writes: Iterable[AssignmentWrite]) -> AssignmentsWritten:
        """Replace the partitions' replicas in their topics' nodes, as far as these are there.

        Others add partitions to a node without asking: theirs, and keys that later versions
        brought, stay.
        """
        by_topic: dict[str, list[AssignmentWrite]] = {}
        for write in writes:
            by_topic.setdefault(write.partition.topic, []).append(write)
        written = await asyncio.gather(*(self._reassign(*each) for each in by_topic.items()))
        return AssignmentsWritten(
            {w.partition: w.replicas for is_there, some in written if is_there for w in some}
        )

    async def _reassign(
        self, topic: str, writes: list[AssignmentWrite]
    ) -> tuple[bool, list[AssignmentWrite]]:
        path = TopicAssignment.path(topic)
        moves = {w.partition.partition: (w.replicas, w.adding, w.removing) for w in writes}

        def change(data: bytes | None) -> bytes:
            return TopicAssignment.decode(data, path).reassign(moves).encode()

        return await self._rewrite(path, change), writes

    async def drop_reassignments(self, partitions: Iterable[TopicPartition]) -> None:
        """Take the partitions out of the tool's node, which goes with the last. A node that
        cannot be understood is left alone."""
        path, done = ReassignPartitions.path(), set(partitions)

        def change(data: bytes | None) -> bytes | None:
            try:
                node = ReassignPartitions.decode(data, path)
            except ZnodeError:
                return data
            left = {each: to for each, to in node.replicas.items() if each not in done}
            return attrs.evolve(node, replicas=left).encode() if left else None

        await self._rewrite(path, change)

    async def delete_nodes(self, paths: Sequence[str]) -> None:
        """Delete the nodes, as far as they are there."""
        for chunk in _chunks(paths, MAX_OPS_PER_MULTI):
            await self._delete_all(chunk)

    async def clear(self, directory: str) -> None:
        """Delete all children of the node."""
        await self.delete_nodes(await self._children(directory))

    async def mark_for_deletion(self, topics: Iterable[str]) -> None:
        """Create the topics' markers, where they are not there yet."""
        await self._each_if_possible(Create(DeleteTopic.path(topic), None) for topic in topics)

    async def delete_markers(self, topics: Iterable[str]) -> None:
        """Delete the topics' markers, where they are there."""
        await self._each_if_possible(Delete(DeleteTopic.path(topic)) for topic in topics)

    async def delete_topic(self, topic: str) -> None:
        """Delete states, assignment, settings and marker of the topic.

        The last three go in one multi, so that nobody can create the topic anew in between and
        find the new settings deleted with the old ones.
        """
        under = await self._descendants(TopicAssignment.path(topic))
        for chunk in _chunks(under, MAX_OPS_PER_MULTI):
            await self._delete_all(chunk)
        last = (
            TopicAssignment.path(topic),
            EntityConfig.path("topics", topic),
            DeleteTopic.path(topic),
        )
        there = await asyncio.gather(*(self._exists(path) for path in last))
        await self._delete_all(
            [path for path, is_there in zip(last, there, strict=True) if is_there]
        )

    async def step_down(self) -> None:
        """Delete /controller, unless it is another's or gone."""
        await self._each_if_possible([Delete(Controller.path())])

    # --- partition states

    async def _create_partitions_nodes(self, writes: Iterable[PartitionStateWrite]) -> None:
        topics = {write.partition.topic for write in writes if write.zk_version is None}
        await self._each_if_possible(
            Create(TopicAssignment.partitions_path(topic), None) for topic in sorted(topics)
        )

    async def _write_chunk(self, chunk: Sequence[PartitionStateWrite]) -> list[int | None]:
        """The new version of each state's node, None where the node was not as expected."""
        try:
            results = await self._multi([op for write in chunk for op in _ops(write)])
        except MultiFailed:
            return list(await asyncio.gather(*(self._write_one(write) for write in chunk)))
        stats = (result.version for result in results if isinstance(result, Stat))
        return [0 if write.zk_version is None else next(stats) for write in chunk]

    async def _write_one(self, write: PartitionStateWrite) -> int | None:
        *parents, own = _ops(write)
        await self._each_if_possible(parents)
        try:
            (result,) = await self._multi([own])
        except MultiFailed:
            return await self._version_if_written(write)
        return result.version if isinstance(result, Stat) else 0

    async def _version_if_written(self, write: PartitionStateWrite) -> int | None:
        path = PartitionState.path(*write.partition)
        try:
            data, stat = await retry_until_connected(self.zk, lambda: self.zk.get(path))
        except NoNode:
            return None
        return stat.version if data == write.state.encode() else None

    # --- multis

    async def _rewrite(self, path: str, change: Callable[[bytes | None], bytes | None]) -> bool:
        """Put `change(data)` where `data` was, None deletes the node; whether it was there.

        Whoever else writes the node comes before or after, and is not overwritten.
        """
        while True:
            try:
                data, stat = await retry_until_connected(self.zk, lambda: self.zk.get(path))
            except NoNode:
                return False
            new = change(data)
            if new == data:
                return True
            op = Delete(path, stat.version) if new is None else SetData(path, new, stat.version)
            try:
                await self._multi([op])
            except MultiFailed as failed:
                if not isinstance(failed.error, NoNode | BadVersion):
                    raise
            else:
                return True

    async def _multi(self, ops: Sequence[Op]) -> list[str | Stat | None]:
        guard = Check(ControllerEpoch.path(), self.epoch_zk_version)
        try:
            results = await retry_until_connected(self.zk, lambda: self.zk.multi([guard, *ops]))
        except MultiFailed as failed:
            if failed.index == 0:
                raise EpochMoved(str(failed)) from failed
            raise
        return results[1:]

    async def _each_if_possible(self, ops: Iterable[Op]) -> None:
        """Each of `ops` by itself; that it was done before is as good."""
        await asyncio.gather(*(self._if_possible(op) for op in ops))

    async def _if_possible(self, op: Op) -> None:
        try:
            await self._multi([op])
        except MultiFailed as failed:
            if not isinstance(failed.error, NoNode | NodeExists):
                raise

    async def _delete_all(self, paths: Sequence[str]) -> None:
        """Delete the nodes together, in this order; if that fails, those that are still there."""
        if not paths:
            return
        try:
            await self._multi([Delete(path) for path in paths])
        except MultiFailed:
            for path in paths:
                await self._if_possible(Delete(path))

    async def _exists(self, path: str) -> bool:
        return await retry_until_connected(self.zk, lambda: self.zk.exists(path)) is not None

    async def _descendants(self, path: str) -> list[str]:
        """All nodes under `path`, children before their parents."""
        levels, level = [], [path]
        while level:
            level = [child for children in await self._all_children(level) for child in children]
            levels.append(level)
        return [each for level in reversed(levels) for each in level]

    async def _all_children(self, paths: Sequence[str]) -> list[list[str]]:
        return list(await asyncio.gather(*(self._children(path) for path in paths)))

    async def _children(self, path: str) -> list[str]:
        names = await retry_until_connected(self.zk, lambda: children_if_there(self.zk, path))
        return [f"{path}/{name}" for name in names]


def _ops(write: PartitionStateWrite) -> list[Op]:
    path, data = PartitionState.path(*write.partition), write.state.encode()
    if write.zk_version is not None:
        return [SetData(path, data, write.zk_version)]
    return [Create(TopicAssignment.partition_path(*write.partition), None), Create(path, data)]


def _chunks(items: Sequence[T], size: int) -> list[Sequence[T]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
