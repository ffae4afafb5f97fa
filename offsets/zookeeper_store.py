"""Committed offsets in ZooKeeper: `/consumers/<group>/offsets/<topic>/<partition>`, decimal text.

Kafka's oldest store. It keeps no metadata and no time, and knows no fencing: whoever writes last
wins, so only the owner of a partition may commit it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

import attrs

from offsets.store import CommitFailed, OffsetFetchFailed, Offsets, committable
from protocol.errors import ErrorCode
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from zk.api import Create, MultiFailed, NoNode, SessionExpired, SetData, ZkError, ZkSession
from zk.failures import is_transient
from zk.znodes import ConsumerOffset, ZnodeError

MAX_OPS_PER_MULTI = 1000  # a multi is one packet, and ZooKeeper's jute.maxbuffer is 1 MB


TRIES = 3  # of a multi, while others create and delete the nodes it is about


@attrs.define(eq=False)
class ZooKeeperStore:
    """An `OffsetStore`. An offset that is what this store last wrote or read is not written."""

    zk: ZkSession
    written: Callable[[int], None] = lambda number: None
    """Is told how many offsets have been written."""
    _known: dict[tuple[str, TopicPartition], int] = attrs.field(factory=dict)

    def forget(self) -> None:
        """Take nothing for granted of what was written or read: write everything once more."""
        self._known.clear()

    async def fetch(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Raises OffsetFetchFailed for what cannot be read, or is no number."""
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        errors: dict[TopicPartition, str] = {}
        paths = {p: ConsumerOffset.path(group, p.topic, p.partition) for p in partitions}
        for partition in paths:
            self._known.pop((group, partition), None)
        try:
            nodes = await self.zk.get_many([*paths.values()])
        except ZkError as error:
            raise OffsetFetchFailed(dict.fromkeys(paths, repr(error)), {}) from error
        for (partition, path), node in zip(paths.items(), nodes, strict=True):
            if node is None:
                continue
            try:
                offset = ConsumerOffset.decode(node[0], path).offset
            except ZnodeError as error:
                errors[partition] = str(error)
                continue
            if offset >= 0:
                self._known[group, partition] = offset
                found[partition] = OffsetAndMetadata(offset)
        if errors:
            raise OffsetFetchFailed(errors, found)
        return found

    async def commit(self, group: str, offsets: Offsets) -> None:
        """Write what has changed, a thousand in one multi, and all in the session of now: in the
        next one they may be another's to write. Raises CommitFailed."""
        session_id = self.zk.session_id
        changed = [
            (partition, committed.offset)
            for partition, committed in committable(offsets).items()
            if self._known.get((group, partition)) != committed.offset
        ]
        errors: dict[TopicPartition, ErrorCode] = {}
        for start in range(0, len(changed), MAX_OPS_PER_MULTI):
            some = changed[start : start + MAX_OPS_PER_MULTI]
            codes = await self._write(group, some, session_id)
            for (partition, offset), code in zip(some, codes, strict=True):
                if code is ErrorCode.NONE:
                    self._known[group, partition] = offset
                else:
                    self._known.pop((group, partition), None)
                    errors[partition] = code
        self.written(len(changed) - len(errors))
        if errors:
            raise CommitFailed(errors, "in ZooKeeper")

    async def _write(
        self, group: str, offsets: list[tuple[TopicPartition, int]], session_id: int
    ) -> list[ErrorCode]:
        writes = [
            SetData(
                ConsumerOffset.path(group, partition.topic, partition.partition),
                ConsumerOffset(offset).encode(),
            )
            for partition, offset in offsets
        ]
        unseen = {
            write.path
            for write, (partition, _) in zip(writes, offsets, strict=True)
            if (group, partition) not in self._known
        }
        try:
            for _ in range(TRIES):
                missing = await self._missing(sorted(unseen)) if unseen else set()
                try:
                    await self._multi(writes, missing, session_id)
                    return [ErrorCode.NONE] * len(writes)
                except MultiFailed as failure:
                    if isinstance(failure.error, NoNode) and missing:
                        topics = {path.rpartition("/")[0] for path in missing}
                        await asyncio.gather(*map(self.zk.ensure_path, sorted(topics)))
                    unseen = {write.path for write in writes}
        except ZkError as error:
            if is_transient(error):
                return [code_of(error)] * len(writes)
            # else it is of one of them: each finds out for itself
        return await asyncio.gather(*(self._write_one(write, session_id) for write in writes))

    async def _missing(self, paths: list[str]) -> set[str]:
        nodes = await self.zk.get_many(paths)
        return {path for path, node in zip(paths, nodes, strict=True) if node is None}

    async def _multi(self, writes: list[SetData], missing: set[str], session_id: int) -> None:
        self._check_session(session_id)
        await self.zk.multi(
            [Create(w.path, w.data) if w.path in missing else w for w in writes],
        )

    def _check_session(self, session_id: int) -> None:
        """Just before a call, which then belongs to that session. Raises SessionExpired."""
        if self.zk.session_id != session_id:
            raise SessionExpired("the session in which the offsets were ours has ended")

    async def _write_one(self, write: SetData, session_id: int) -> ErrorCode:
        try:
            self._check_session(session_id)
            try:
                await self.zk.set(write.path, write.data)
            except NoNode:
                self._check_session(session_id)
                await self.zk.create(write.path, write.data, make_parents=True)
        except ZkError as error:
            return code_of(error)
        return ErrorCode.NONE


def code_of(error: ZkError) -> ErrorCode:
    """What a commit is answered with that failed so: one that is tried again, if that can help."""
    return ErrorCode.NETWORK_EXCEPTION if is_transient(error) else ErrorCode.UNKNOWN_SERVER_ERROR
