"""Write the controller's decisions to ZooKeeper, each write under its epoch.

Every write is a multi that begins with a check of /controller_epoch. So a controller that was
replaced without knowing it can change nothing (KAFKA-6082): the write raises EpochMoved.

Partition states are written many to a multi. One state that is not as expected fails its whole
multi, and then each write of that multi is tried by itself. A write whose reply was lost fails on
the second try; it counts as done if the node holds what it wrote.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import attrs

from broker.controller.effects import AssignmentWrite, PartitionStateWrite
from broker.controller.events import AssignmentsWritten, PartitionStatesWritten
from broker.process.zk_retry import retry_until_connected
from protocol.frozen import frozen
from protocol.topic_identity import derive_topic_id
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
    ClusterId,
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

OPS_PER_WRITE = 100
"""Operations of one multi of the controller: fewer than fit, as ZooKeeper does nothing else
meanwhile."""


class EpochMoved(Exception):
    """Another controller has been elected."""


@frozen
class ClusterWriter:
    """Writes as the controller whose /controller_epoch is at version `epoch_zk_version`."""

    zk: ZkSession
    epoch_zk_version: int

    # --- what the controller writes

    async def write_states(self, writes: Sequence[PartitionStateWrite]) -> PartitionStatesWritten:
        """Create or replace the states. Raises EpochMoved."""
        # The parents of new nodes.
        await self._create_partitions_nodes(writes)

        # Half as many: a first state takes two operations (`_ops`).
        chunks = _chunks(writes, OPS_PER_WRITE // 2)
        versions = await asyncio.gather(*(self._write_chunk(chunk) for chunk in chunks))

        # A write without a version met another state than it expected.
        pairs = list(zip(writes, (version for chunk in versions for version in chunk), strict=True))
        return PartitionStatesWritten(
            tuple((write, version) for write, version in pairs if version is not None),
            tuple(write.partition for write, version in pairs if version is None),
        )

    async def write_assignments(self, writes: Iterable[AssignmentWrite]) -> AssignmentsWritten:
        """Replace the partitions' replicas in those of their topics' nodes that exist.

        Brokers add partitions to such a node without asking the controller. Their partitions stay,
        and so do keys that later versions brought.
        """
        # A topic's node has all of its partitions: write it once.
        by_topic: dict[str, list[AssignmentWrite]] = {}
        for write in writes:
            by_topic.setdefault(write.partition.topic, []).append(write)

        results = await asyncio.gather(
            *(self._reassign(topic, topic_writes) for topic, topic_writes in by_topic.items())
        )

        # Partitions of topics that are gone are left out.
        return AssignmentsWritten(
            {
                write.partition: write.replicas
                for exists, topic_writes in results
                if exists
                for write in topic_writes
            }
        )

    async def _reassign(
        self, topic: str, writes: list[AssignmentWrite]
    ) -> tuple[bool, list[AssignmentWrite]]:
        path = TopicAssignment.path(topic)
        moves = {
            write.partition.partition: (write.replicas, write.adding, write.removing)
            for write in writes
        }

        def change(data: bytes | None) -> bytes:
            return TopicAssignment.decode(data, path).reassign(moves).encode()

        return await self._rewrite(path, change), writes

    async def pin_topic_ids(self, topics: Sequence[str]) -> None:
        """Write the derived ids into the nodes of those topics that have none.

        A topic that another writer changes meanwhile is left to the next election.
        """
        paths = [ClusterId.path(), *map(TopicAssignment.path, topics)]
        cluster_node, *nodes = await retry_until_connected(self.zk, lambda: self.zk.get_many(paths))
        if cluster_node is None:
            return

        cluster_id = ClusterId.decode(cluster_node[0]).id
        ops = [
            op
            for topic, node in zip(topics, nodes, strict=True)
            if node is not None and (op := pinning_write(cluster_id, topic, *node)) is not None
        ]
        if not ops:
            return
        try:
            await self._multi(ops)
        except MultiFailed:
            await self._try_each(ops)

    async def delete_reassignments(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove the partitions from the tool's node; the last one deletes the node.

        A node that cannot be parsed is left alone.
        """
        path = ReassignPartitions.path()
        deleted = set(partitions)

        def change(data: bytes | None) -> bytes | None:
            try:
                node = ReassignPartitions.decode(data, path)
            except ZnodeError:
                return data
            left = {key: target for key, target in node.replicas.items() if key not in deleted}
            return attrs.evolve(node, replicas=left).encode() if left else None

        await self._rewrite(path, change)

    async def delete_nodes(self, paths: Sequence[str]) -> None:
        """Delete those of the nodes that exist."""
        for chunk in _chunks(paths, OPS_PER_WRITE):
            await self._delete_all(chunk)

    async def clear(self, directory: str) -> None:
        """Delete all children of the node."""
        await self.delete_nodes(await self._children(directory))

    async def mark_for_deletion(self, topics: Iterable[str]) -> None:
        """Create the missing markers of the topics."""
        await self._try_each(Create(DeleteTopic.path(topic), None) for topic in topics)

    async def delete_markers(self, topics: Iterable[str]) -> None:
        """Delete the existing markers of the topics."""
        await self._try_each(Delete(DeleteTopic.path(topic)) for topic in topics)

    async def delete_topic(self, topic: str) -> None:
        """Delete states, assignment, settings and marker of the topic.

        The last three go in one multi. Otherwise somebody could create the topic again in between,
        and its new settings would be deleted with the old ones.
        """
        # The states first: they are many, and useless without the topic.
        states = await self._descendants(TopicAssignment.path(topic))
        for chunk in _chunks(states, OPS_PER_WRITE):
            await self._delete_all(chunk)

        # The marker comes last: where it stands, a controller looks for what is left.
        last = (
            TopicAssignment.path(topic),
            EntityConfig.path("topics", topic),
            DeleteTopic.path(topic),
        )

        # A missing node (a topic without settings) would fail the whole multi.
        existence = await asyncio.gather(*(self._exists(path) for path in last))
        await self._delete_all(
            [path for path, exists in zip(last, existence, strict=True) if exists]
        )

    async def step_down(self) -> None:
        """Delete /controller, unless it is another controller's or gone."""
        await self._try_each([Delete(Controller.path())])

    # --- partition states

    async def _create_partitions_nodes(self, writes: Iterable[PartitionStateWrite]) -> None:
        # Only a first state can lack its parents.
        topics = {write.partition.topic for write in writes if write.zk_version is None}
        await self._try_each(
            Create(TopicAssignment.partitions_path(topic), None) for topic in sorted(topics)
        )

    async def _write_chunk(self, chunk: Sequence[PartitionStateWrite]) -> list[int | None]:
        """Return the new version of each state's node; None where another one was there."""
        try:
            results = await self._multi([op for write in chunk for op in _ops(write)])
        except MultiFailed:
            # At least one is not as expected: try each by itself.
            return list(await asyncio.gather(*(self._write_state(write) for write in chunk)))

        # Each SetData returns a Stat, in the order of the writes. A created node has version 0.
        stats = (result.version for result in results if isinstance(result, Stat))
        return [0 if write.zk_version is None else next(stats) for write in chunk]

    async def _write_state(self, write: PartitionStateWrite) -> int | None:
        # The partition's node may be there from an earlier try.
        *parents, state_op = _ops(write)
        await self._try_each(parents)
        try:
            (result,) = await self._multi([state_op])
        except MultiFailed:
            return await self._version_if_written(write)
        return result.version if isinstance(result, Stat) else 0

    async def _version_if_written(self, write: PartitionStateWrite) -> int | None:
        """Return the node's version if it holds this write, whose reply was lost then."""
        path = PartitionState.path(*write.partition)
        try:
            data, stat = await retry_until_connected(self.zk, lambda: self.zk.get(path))
        except NoNode:
            return None
        return stat.version if data == write.state.encode() else None

    # --- multis

    async def _rewrite(self, path: str, change: Callable[[bytes | None], bytes | None]) -> bool:
        """Replace the node's data by `change(data)`; None deletes it. Return False if it is gone.

        The write is conditional on the version that was read, so no other write is overwritten.
        """
        while True:
            try:
                data, stat = await retry_until_connected(self.zk, lambda: self.zk.get(path))
            except NoNode:
                return False

            # Another writer may come in between: then the version is wrong, and it starts over.
            changed = change(data)
            if changed == data:
                return True

            op: Op = Delete(path, stat.version)
            if changed is not None:
                op = SetData(path, changed, stat.version)
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
            # The guard itself failed: /controller_epoch has another version.
            if failed.index == 0:
                raise EpochMoved(str(failed)) from failed
            raise

        # Without the guard's own result.
        return results[1:]

    async def _try_each(self, ops: Iterable[Op]) -> None:
        """Perform each of `ops` by itself. One that was performed before counts as done."""
        await asyncio.gather(*(self._try(op) for op in ops))

    async def _try(self, op: Op) -> None:
        try:
            await self._multi([op])
        except MultiFailed as failed:
            # Deleted already, or there already, or written by another one.
            if not isinstance(failed.error, NoNode | NodeExists | BadVersion):
                raise

    async def _delete_all(self, paths: Sequence[str]) -> None:
        """Delete the nodes together, in this order; if that fails, one by one."""
        if not paths:
            return
        try:
            await self._multi([Delete(path) for path in paths])
        except MultiFailed:
            for path in paths:
                await self._try(Delete(path))

    async def _exists(self, path: str) -> bool:
        return await retry_until_connected(self.zk, lambda: self.zk.exists(path)) is not None

    async def _descendants(self, path: str) -> list[str]:
        """Return all nodes under `path`, children before their parents."""
        # Read level by level: one round trip for each.
        levels: list[list[str]] = []
        level = [path]
        while level:
            level = [child for children in await self._all_children(level) for child in children]
            levels.append(level)
        return [node for level in reversed(levels) for node in level]

    async def _all_children(self, paths: Sequence[str]) -> list[list[str]]:
        return list(await asyncio.gather(*(self._children(path) for path in paths)))

    async def _children(self, path: str) -> list[str]:
        names = await retry_until_connected(self.zk, lambda: children_if_there(self.zk, path))
        return [f"{path}/{name}" for name in names]


def _ops(write: PartitionStateWrite) -> list[Op]:
    path = PartitionState.path(*write.partition)
    data = write.state.encode()
    if write.zk_version is not None:
        return [SetData(path, data, write.zk_version)]

    # Kafka's tree: partitions/<id>/state.
    return [Create(TopicAssignment.partition_path(*write.partition), None), Create(path, data)]


def pinning_write(cluster_id: str, topic: str, data: bytes | None, stat: Stat) -> SetData | None:
    """Return the write of the derived id into a topic's node; None if the node stays as it is."""
    path = TopicAssignment.path(topic)
    try:
        node = TopicAssignment.decode(data, path)
    except ZnodeError:
        # Whoever repairs it should find it as it is.
        return None
    if node.topic_id is not None:
        return None
    topic_id = derive_topic_id(cluster_id, topic, stat.czxid)
    return SetData(path, node.pin(topic_id).encode(), stat.version)


def _chunks(items: Sequence[T], size: int) -> list[Sequence[T]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
