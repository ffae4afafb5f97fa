"""A partition that follows: how far it is with its leader, and what it asks of it."""

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

FIRST_DELAY_SECONDS = 0.02
"""Before a leader that refused is asked again; twice as long each time."""


@attrs.define(eq=False)
class Following:
    """One partition in one leader epoch."""

    partition: Partition
    leader_epoch: int
    truncated: bool = False
    out_of_range: bool = False
    lags: bool = True  # as far as is known: behind the leader's high watermark
    asked_offset: int = -1  # where the log ended when it was last asked for
    not_before: float = 0.0  # the event loop's time
    delay: float = FIRST_DELAY_SECONDS
    trouble: str = ""  # what kept it from being fetched when that was last tried

    @property
    def is_settled(self) -> bool:
        """Whether the leader may be told that we have all that is in the log."""
        return self.partition.log.durable_end_offset == self.partition.log.log_end_offset

    def asked(self, max_bytes: int) -> FetchRequestPartition:
        """Its part of a fetch: from the log's end on."""
        return FetchRequestPartition(
            partition=self.partition.topic_partition.partition,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=self.partition.log.log_end_offset,
            log_start_offset=self.partition.log.log_start_offset,
            partition_max_bytes=max_bytes,
        )


def epochs_request(local_id: int, asking: Iterable[Following]) -> OffsetForLeaderEpochRequest:
    """Ask where the last epoch of each ended with the leader."""
    return OffsetForLeaderEpochRequest(
        replica_id=local_id,
        topics=[
            OffsetForLeaderEpochRequestTopic(
                topic=topic,
                partitions=[
                    OffsetForLeaderEpochRequestPartition(
                        partition=each.partition.topic_partition.partition,
                        current_leader_epoch=each.leader_epoch,
                        leader_epoch=each.partition.log.leader_epochs.latest_epoch,
                    )
                    for each in group
                ],
            )
            for topic, group in groupby(asking, key=_topic)
        ],
    )


def offsets_request(
    local_id: int, asking: Iterable[Following], timestamp: int
) -> ListOffsetsRequest:
    """Ask where the leader's logs begin or end."""
    return ListOffsetsRequest(
        replica_id=local_id,
        topics=[
            ListOffsetsRequestTopic(
                name=topic,
                partitions=[
                    ListOffsetsRequestPartition(
                        partition_index=each.partition.topic_partition.partition,
                        current_leader_epoch=each.leader_epoch,
                        timestamp=timestamp,
                    )
                    for each in group
                ],
            )
            for topic, group in groupby(asking, key=_topic)
        ],
    )


def _topic(each: Following) -> str:
    return each.partition.topic_partition.topic
