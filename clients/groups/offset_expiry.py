"""Find when committed offsets expire, and when retention takes the records at them. Pure.

The rules are those of coordinators from 2.1 on (KIP-211), as `groups.coordinator.expiry` has them:

| the group | which of its offsets expire | the retention counts from |
|---|---|---|
| only commits, and never had a member | all | its commit, for each |
| has lost its members | all | when it lost the last; its commit, if no record says when |
| has members that are consumers | of topics none of them subscribes to (KAFKA-8730) | its commit |
| has other members, or is rebalancing | none | |

Its commit is at the time that the committer says, as Kafka's rule has it: with OffsetCommit 1 that
is not the broker's.

A commit with an expiry of its own, as brokers before 2.1 write all, expires at that time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.groups.group_facts import CoordinatorFacts
from protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from clients.groups.recorded_groups import RecordedGroup, RecordedOffset


def expires_at_ms(
    group: CoordinatorFacts,
    recorded: RecordedGroup,
    partition: TopicPartition,
    retention_ms: int | None,
) -> int | None:
    """Return when the offset of a partition expires; None if it does not, or it is not known.

    `retention_ms` is the coordinator's offsets.retention.minutes; None if it could not be read.
    """
    committed = recorded.offsets.get(partition)
    if committed is None:
        return None

    # What members consume stays, or may: the topics of some are not known.
    if group.members:
        subscribed = group.subscribed_topics
        if subscribed is None or partition.topic in subscribed:
            return None
    if committed.expires_at_ms is not None:
        return committed.expires_at_ms
    if retention_ms is None:
        return None

    begins_ms = _begin_of_retention(group, recorded, committed)
    return None if begins_ms < 0 else begins_ms + retention_ms


def _begin_of_retention(
    group: CoordinatorFacts, recorded: RecordedGroup, committed: RecordedOffset
) -> int:
    metadata = recorded.metadata
    if group.members or metadata is None or not metadata.protocol_type:
        return committed.commit_timestamp_ms
    # The record of a group without members says since when; -1 in old versions.
    if metadata.members or metadata.state_timestamp_ms < 0:
        return committed.commit_timestamp_ms
    return metadata.state_timestamp_ms


def deleted_at_ms(record_ms: int, cleanup_policy: str, retention_ms: int) -> int | None:
    """Return the earliest time at which retention may delete a record; None for never.

    A segment goes as a whole, when its last record is older than retention.ms: a record lives at
    least so long. retention.bytes may take it earlier.
    """
    if "delete" not in cleanup_policy or retention_ms < 0 or record_ms < 0:
        return None
    return record_ms + retention_ms
