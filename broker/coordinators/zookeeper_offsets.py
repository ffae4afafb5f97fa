"""Offsets in ZooKeeper on behalf of clients: OffsetCommit and OffsetFetch version 0.

Any broker serves them for any group. The znodes have no place for metadata, which is discarded.
Each request has its own store: a store remembers what it wrote, and others write here too.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

import attrs

from broker.network.deferred import Deferred
from broker.network.dispatch import Outcome
from broker.network.purgatory import Wait
from offsets.store_errors import CommitFailed, OffsetFetchFailed
from offsets.zookeeper_store import ZooKeeperStore
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from zk.api import ZkSession

CommitErrors = Mapping[TopicPartition, ErrorCode]
FetchedOffsets = Mapping[TopicPartition, tuple[int, ErrorCode]]


@attrs.define(eq=False)
class ZooKeeperOffsets:
    """The offsets of all groups in ZooKeeper.

    `known_partitions(topic)` are the existing ones. A client waits at most `timeout_ms`.
    """

    zk: ZkSession
    deferred: Deferred
    known_partitions: Callable[[str], Container[int]]
    timeout_ms: int

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        render: Callable[[CommitErrors], Outcome],
    ) -> Wait:
        """Write; `render` makes the response from the error of each partition. Raises ApiError."""
        _check_group_id(group_id)

        async def write() -> Outcome:
            # Each partition has its own error: the others are written.
            errors = dict.fromkeys(offsets, ErrorCode.NONE)
            try:
                await ZooKeeperStore(self.zk).commit(group_id, offsets)
            except CommitFailed as failure:
                errors |= dict.fromkeys(failure.errors, ErrorCode.UNKNOWN_SERVER_ERROR)
            return render(errors)

        # The write may still be carried out; the client commits again.
        late = dict.fromkeys(offsets, ErrorCode.REQUEST_TIMED_OUT)
        return self.deferred.respond(write(), self.timeout_ms, lambda: render(late))

    def fetch(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        render: Callable[[FetchedOffsets], Outcome],
    ) -> Wait:
        """Read; `render` makes the response from offset and error of each partition.

        A partition without an offset, or whose node holds no number, has -1 and an error. Raises
        ApiError.
        """
        _check_group_id(group_id)

        # A partition that does not exist is not looked up.
        all_partitions = list(partitions)
        existing = [
            topic_partition
            for topic_partition in all_partitions
            if topic_partition.partition in self.known_partitions(topic_partition.topic)
        ]

        async def read() -> Outcome:
            fetched: dict[TopicPartition, tuple[int, ErrorCode]]
            # Version 0 says UNKNOWN_TOPIC_OR_PARTITION where there is no offset, as Kafka's.
            fetched = dict.fromkeys(all_partitions, (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            try:
                offsets = await ZooKeeperStore(self.zk).fetch(group_id, existing)
            except OffsetFetchFailed as failure:
                offsets = failure.offsets
                fetched |= dict.fromkeys(failure.errors, (-1, ErrorCode.UNKNOWN_SERVER_ERROR))
            for topic_partition, committed in offsets.items():
                fetched[topic_partition] = (committed.offset, ErrorCode.NONE)
            return render(fetched)

        late = dict.fromkeys(all_partitions, (-1, ErrorCode.REQUEST_TIMED_OUT))
        return self.deferred.respond(read(), self.timeout_ms, lambda: render(late))


def _check_group_id(group_id: str) -> None:
    """Refuse a group id that would lead to another path than the group's own. Raises ApiError."""
    if not group_id or "/" in group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, repr(group_id))
