"""Committed offsets in ZooKeeper: `/consumers/<group>/offsets/<topic>/<partition>`, decimal text.

This is Kafka's oldest store. It keeps no metadata and no time, and has no fencing: the last write
wins, so only the owner of a partition may commit it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

import attrs

from offsets.store import Offsets, committable
from offsets.store_errors import CommitFailed, OffsetFetchFailed
from protocol.errors import ErrorCode
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from zk.api import (
    MAX_OPS_PER_MULTI,
    Create,
    MultiFailed,
    NoNode,
    SessionExpired,
    SetData,
    ZkError,
    ZkSession,
)
from zk.failures import is_transient
from zk.znodes import ConsumerOffset, ZnodeError

TRIES = 3  # of a multi, while others create and delete its nodes


@attrs.define(eq=False)
class ZooKeeperStore:
    """An `OffsetStore` that skips writes of an offset that it last wrote or read.

    `on_written` gets the number of offsets that were written.
    """

    zk: ZkSession
    on_written: Callable[[int], None] = lambda number: None
    _present: dict[tuple[str, TopicPartition], int] = attrs.field(factory=dict)
    """(group id, partition) -> the offset that ZooKeeper has, as far as this store has seen."""

    def forget(self) -> None:
        """Forget what was written or read, so that every offset is written once more."""
        self._present.clear()

    async def fetch(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Read offsets. Raises OffsetFetchFailed for those that cannot be read or are no number."""
        paths = {
            partition: ConsumerOffset.path(group, partition.topic, partition.partition)
            for partition in partitions
        }

        # Until it is read again, nothing is known of these nodes.
        for partition in paths:
            self._present.pop((group, partition), None)

        try:
            nodes = await self.zk.get_many([*paths.values()])
        except ZkError as error:
            raise OffsetFetchFailed(dict.fromkeys(paths, repr(error)), {}) from error

        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        errors: dict[TopicPartition, str] = {}
        for (partition, path), node in zip(paths.items(), nodes, strict=True):
            # No node means no offset, and that is certain.
            if node is None:
                continue
            try:
                offset = ConsumerOffset.decode(node[0], path).offset
            except ZnodeError as error:
                errors[partition] = str(error)
                continue

            # A negative offset stands for a position that is not known.
            if offset >= 0:
                self._present[group, partition] = offset
                offsets[partition] = OffsetAndMetadata(offset)

        if errors:
            raise OffsetFetchFailed(errors, offsets)
        return offsets

    async def commit(self, group: str, offsets: Offsets) -> None:
        """Write the offsets that have changed, a thousand in one multi. Raises CommitFailed.

        All are written in the present session: in the next one the partitions may be another's.
        """
        session_id = self.zk.session_id

        # An offset that the node has already is not written again.
        changed = [
            (partition, committed.offset)
            for partition, committed in committable(offsets).items()
            if self._present.get((group, partition)) != committed.offset
        ]

        errors: dict[TopicPartition, ErrorCode] = {}
        for start in range(0, len(changed), MAX_OPS_PER_MULTI):
            batch = changed[start : start + MAX_OPS_PER_MULTI]
            codes = await self._write(group, batch, session_id)
            for (partition, offset), code in zip(batch, codes, strict=True):
                if code is ErrorCode.NONE:
                    self._present[group, partition] = offset
                else:
                    # Perhaps it is written all the same: the next commit writes it again.
                    self._present.pop((group, partition), None)
                    errors[partition] = code

        self.on_written(len(changed) - len(errors))
        if errors:
            raise CommitFailed(errors, "in ZooKeeper")

    async def _write(
        self, group: str, offsets: list[tuple[TopicPartition, int]], session_id: int
    ) -> list[ErrorCode]:
        """Write a batch in one multi, or one by one if that fails because of one of them.

        Return an error code for each.
        """
        writes = [
            SetData(
                ConsumerOffset.path(group, partition.topic, partition.partition),
                ConsumerOffset(offset).encode(),
            )
            for partition, offset in offsets
        ]
        # Nodes that may not exist yet, and then have to be created.
        unseen = {
            write.path
            for write, (partition, _) in zip(writes, offsets, strict=True)
            if (group, partition) not in self._present
        }

        # A node may come or go between the look and the multi: then look again.
        try:
            for _ in range(TRIES):
                missing = await self._find_missing(sorted(unseen)) if unseen else set()
                try:
                    await self._multi(writes, missing, session_id)
                    return [ErrorCode.NONE] * len(writes)
                except MultiFailed as failure:
                    if isinstance(failure.error, NoNode) and missing:
                        # The first offset of a topic finds no directory to be created in.
                        topics = {path.rpartition("/")[0] for path in missing}
                        await asyncio.gather(*map(self.zk.ensure_path, sorted(topics)))
                    # Nodes that this store has seen may be gone too.
                    unseen = {write.path for write in writes}
        except ZkError as error:
            # Without a connection single writes would fail as well.
            if is_transient(error):
                return [code_of(error)] * len(writes)

        # One of them fails for good: write each by itself.
        return await asyncio.gather(*(self._write_one(write, session_id) for write in writes))

    async def _find_missing(self, paths: list[str]) -> set[str]:
        nodes = await self.zk.get_many(paths)
        return {path for path, node in zip(paths, nodes, strict=True) if node is None}

    async def _multi(self, writes: list[SetData], missing: set[str], session_id: int) -> None:
        self._check_session(session_id)
        await self.zk.multi(
            [
                Create(write.path, write.data) if write.path in missing else write
                for write in writes
            ],
        )

    def _check_session(self, session_id: int) -> None:
        """Raise SessionExpired if the session has ended; a call right after is in that session."""
        if self.zk.session_id != session_id:
            raise SessionExpired("the session in which the offsets were ours has ended")

    async def _write_one(self, write: SetData, session_id: int) -> ErrorCode:
        try:
            self._check_session(session_id)
            try:
                await self.zk.set(write.path, write.data)
            except NoNode:
                # The session may have ended during the first call.
                self._check_session(session_id)
                await self.zk.create(write.path, write.data, make_parents=True)
        except ZkError as error:
            return code_of(error)
        return ErrorCode.NONE


def code_of(error: ZkError) -> ErrorCode:
    """Return the error code for a commit that failed so: retriable if a retry can help."""
    return ErrorCode.NETWORK_EXCEPTION if is_transient(error) else ErrorCode.UNKNOWN_SERVER_ERROR
