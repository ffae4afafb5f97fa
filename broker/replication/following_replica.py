"""A partition that follows its leader: how far it is, and what it asks of the leader."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

import attrs

from broker.replication.partition import Partition
from protocol.messages.fetch import FetchRequestPartition
from protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
)
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
)
from protocol.topic_partition import TopicPartition

FIRST_DELAY_MS = 20
"""Delay before a leader that refused is asked again; it doubles each time."""


@attrs.define(eq=False)
class FollowingReplica:
    """A partition that follows one leader in one leader epoch."""

    partition: Partition
    leader_epoch: int
    is_truncated: bool = False  # to what the leader has too
    is_out_of_range: bool = False  # our log's end is not in the leader's log
    lags: bool = True  # behind the leader's high watermark, as far as we know
    fetch_offset: int = -1  # our log's end when it was last asked for
    retry_at_ms: float = 0.0  # on the monotonic clock
    delay_ms: float = FIRST_DELAY_MS
    trouble: str = ""  # why it could not be fetched when that was last tried

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition's name."""
        return self.partition.topic_partition

    @property
    def has_epochs(self) -> bool:
        """True if the log names the leader epochs of its records."""
        return self.partition.log.leader_epochs.latest_epoch >= 0

    @property
    def is_flushed(self) -> bool:
        """True if all of the log is on disk: a fetch tells the leader that we keep what lies
        below its offset."""
        log = self.partition.log
        return log.durable_end_offset == log.log_end_offset

    def fetch_from_end(self, max_bytes: int) -> FetchRequestPartition:
        """Return this partition's part of a fetch: from the log's end on."""
        log = self.partition.log
        return FetchRequestPartition(
            partition=self.topic_partition.partition,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=log.log_end_offset,
            log_start_offset=log.log_start_offset,
            partition_max_bytes=max_bytes,
        )


def epochs_request(
    local_id: int, replicas: Iterable[FollowingReplica]
) -> OffsetForLeaderEpochRequest:
    """Ask the leader where the last epoch of each partition ended in its log."""
    return OffsetForLeaderEpochRequest(
        replica_id=local_id,
        topics=[
            OffsetForLeaderEpochRequestTopic(
                topic=topic,
                partitions=[
                    OffsetForLeaderEpochRequestPartition(
                        partition=replica.topic_partition.partition,
                        current_leader_epoch=replica.leader_epoch,
                        leader_epoch=replica.partition.log.leader_epochs.latest_epoch,
                    )
                    for replica in group
                ],
            )
            for topic, group in groupby(replicas, key=_topic)
        ],
    )


def offsets_request(
    local_id: int, replicas: Iterable[FollowingReplica], timestamp: int
) -> ListOffsetsRequest:
    """Ask where the leader's logs start or end."""
    return ListOffsetsRequest(
        replica_id=local_id,
        topics=[
            ListOffsetsRequestTopic(
                name=topic,
                partitions=[
                    ListOffsetsRequestPartition(
                        partition_index=replica.topic_partition.partition,
                        current_leader_epoch=replica.leader_epoch,
                        timestamp=timestamp,
                    )
                    for replica in group
                ],
            )
            for topic, group in groupby(replicas, key=_topic)
        ],
    )


def _topic(replica: FollowingReplica) -> str:
    return replica.topic_partition.topic
