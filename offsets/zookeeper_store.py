"""Committed offsets in ZooKeeper: `/consumers/<group>/offsets/<topic>/<partition>`, decimal text.

Kafka's oldest store. It keeps no metadata and no time, and knows no fencing: whoever writes last
wins, so only the owner of a partition may commit it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import attrs

from offsets.store import CommitFailed, OffsetFetchFailed, Offsets, committable
from protocol.errors import ErrorCode
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from zk.session import (
    ConnectionLoss,
    NodeExists,
    NoNode,
    SessionExpired,
    SetData,
    ZkError,
    ZkSession,
)
from zk.znodes import ConsumerOffset, ZnodeError

MAX_OPS_PER_MULTI = 1000  # a multi is one packet, and ZooKeeper's jute.maxbuffer is 1 MB


@attrs.define(eq=False)
class ZooKeeperStore:
    """An `OffsetStore`. An offset that is what this store last wrote or read is not written."""

    zk: ZkSession
    _known: dict[tuple[str, TopicPartition], int] = attrs.field(factory=dict)

    def forget(self) -> None:
        """Take nothing for granted of what was written or read: write everything once more."""
        self._known.clear()

    async def fetch(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Raises OffsetFetchFailed for what cannot be read, or is no number."""
        ordered = list(partitions)
        read = await asyncio.gather(*(self._read(group, p) for p in ordered))
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        errors: dict[TopicPartition, str] = {}
        for partition, outcome in zip(ordered, read, strict=True):
            self._known.pop((group, partition), None)
            if isinstance(outcome, str):
                errors[partition] = outcome
            elif outcome >= 0:
                self._known[group, partition] = outcome
                found[partition] = OffsetAndMetadata(outcome)
        if errors:
            raise OffsetFetchFailed(errors, found)
        return found

    async def _read(self, group: str, partition: TopicPartition) -> int | str:
        """The offset, negative if there is none; or what is wrong."""
        path = ConsumerOffset.path(group, partition.topic, partition.partition)
        try:
            content, _ = await self.zk.get(path)
            return ConsumerOffset.decode(content).offset
        except NoNode:
            return -1
        except (ZkError, ZnodeError) as error:
            return f"{path}: {error!r}"

    async def commit(self, group: str, offsets: Offsets) -> None:
        """Write what has changed, in one multi where the nodes exist. Raises CommitFailed."""
        changed = [
            (partition, committed.offset)
            for partition, committed in committable(offsets).items()
            if self._known.get((group, partition)) != committed.offset
        ]
        errors: dict[TopicPartition, ErrorCode] = {}
        for start in range(0, len(changed), MAX_OPS_PER_MULTI):
            some = changed[start : start + MAX_OPS_PER_MULTI]
            errors |= await self._write(group, some)
        if errors:
            raise CommitFailed(errors, "in ZooKeeper")

    async def _write(
        self, group: str, offsets: list[tuple[TopicPartition, int]]
    ) -> dict[TopicPartition, ErrorCode]:
        writes = [
            SetData(
                ConsumerOffset.path(group, partition.topic, partition.partition),
                ConsumerOffset(offset).encode(),
            )
            for partition, offset in offsets
        ]
        try:
            await self.zk.multi(writes)
            codes = [ErrorCode.NONE] * len(writes)
        except ZkError:  # a node is missing, or all is lost: each finds out for itself
            codes = await asyncio.gather(*map(self._write_one, writes))
        errors: dict[TopicPartition, ErrorCode] = {}
        for (partition, offset), code in zip(offsets, codes, strict=True):
            if code is ErrorCode.NONE:
                self._known[group, partition] = offset
            else:
                self._known.pop((group, partition), None)
                errors[partition] = code
        return errors

    async def _write_one(self, write: SetData) -> ErrorCode:
        try:
            try:
                await self.zk.set(write.path, write.data)
            except NoNode:
                await self._create(write)
        except (ConnectionLoss, SessionExpired):
            return ErrorCode.NETWORK_EXCEPTION
        except ZkError:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return ErrorCode.NONE

    async def _create(self, write: SetData) -> None:
        try:
            await self.zk.create(write.path, write.data, make_parents=True)
        except NodeExists:
            await self.zk.set(write.path, write.data)
