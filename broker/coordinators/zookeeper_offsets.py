"""Offsets in ZooKeeper on behalf of clients: OffsetCommit and OffsetFetch version 0.

Any broker takes them for any group. Metadata has no place there and is dropped. A request has a
store of its own, for a store remembers what it wrote, and others write here too.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

import attrs

from broker.network.deferred import Deferred
from broker.network.purgatory import Wait
from offsets.store import CommitFailed, OffsetFetchFailed
from offsets.zookeeper_store import ZooKeeperStore
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from zk.api import ZkSession

Committed = Mapping[TopicPartition, ErrorCode]
Fetched = Mapping[TopicPartition, tuple[int, ErrorCode]]


@attrs.define(eq=False)
class ZooKeeperOffsets:
    """`known_partitions(topic)` are those there are; a client waits at most `timeout_ms`."""

    zk: ZkSession
    deferred: Deferred
    known_partitions: Callable[[str], Container[int]]
    timeout_ms: int

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        answer: Callable[[Committed], Any],
    ) -> Wait:
        """Write; `answer` makes the response from each partition's error. Raises ApiError."""
        _check(group)

        async def write() -> Any:
            codes = dict.fromkeys(offsets, ErrorCode.NONE)
            try:
                await ZooKeeperStore(self.zk).commit(group, offsets)
            except CommitFailed as failed:
                codes |= dict.fromkeys(failed.errors, ErrorCode.UNKNOWN_SERVER_ERROR)
            return answer(codes)

        late = dict.fromkeys(offsets, ErrorCode.REQUEST_TIMED_OUT)
        return self.deferred.respond(write(), self.timeout_ms, lambda: answer(late))

    def fetch(
        self,
        group: str,
        partitions: Iterable[TopicPartition],
        answer: Callable[[Fetched], Any],
    ) -> Wait:
        """Read; a partition without an offset, or that is none, has -1 and an error.

        Raises ApiError.
        """
        _check(group)
        asked = list(partitions)
        known = [tp for tp in asked if tp.partition in self.known_partitions(tp.topic)]

        async def read() -> Any:
            found: dict[TopicPartition, tuple[int, ErrorCode]]
            found = dict.fromkeys(asked, (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            try:
                offsets = await ZooKeeperStore(self.zk).fetch(group, known)
            except OffsetFetchFailed as failed:
                offsets = failed.offsets
                found |= dict.fromkeys(failed.errors, (-1, ErrorCode.UNKNOWN_SERVER_ERROR))
            found |= {tp: (kept.offset, ErrorCode.NONE) for tp, kept in offsets.items()}
            return answer(found)

        late = dict.fromkeys(asked, (-1, ErrorCode.REQUEST_TIMED_OUT))
        return self.deferred.respond(read(), self.timeout_ms, lambda: answer(late))


def _check(group: str) -> None:
    """A group's name is part of a path, and must not lead to another one."""
    if not group or "/" in group:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, repr(group))
