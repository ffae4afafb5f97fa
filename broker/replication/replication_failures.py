"""What keeps a replica from following its leader: whom it speaks against, and what comes of it.

| it speaks against | examples | then |
|---|---|---|
| our disk | an error of a write | the log takes no more (`Guard.fail`) and the controller is told (`log_failures`); the replica is fetched again when the log takes writes again |
| the leader | a batch that is corrupt or out of order, an error code in its answer | tried again after a delay |
| ourselves | anything unexpected | logged with its traceback; tried again after a delay |

Nothing of it ends the fetching of a partition for good, and nothing stops the partitions beside it.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from core_log.appending.replicated_run import UnexpectedAppendOffset
from protocol.errors import ApiError
from protocol.records.corrupt_record import CorruptRecord
from protocol.topic_partition import TopicPartition

MOST_NAMED = 10
"""Partitions that are named where many cannot be fetched; the others are counted."""


class Culprit(Enum):
    """Whom a failure speaks against."""

    DISK = "our disk"
    LEADER = "the leader"
    OURSELVES = "ourselves"


CULPRITS: tuple[tuple[type[Exception], Culprit], ...] = (
    (ApiError, Culprit.DISK),  # of our own log; what the leader answers is no exception
    (CorruptRecord, Culprit.LEADER),
    (UnexpectedAppendOffset, Culprit.LEADER),
)


def culprit(error: Exception) -> Culprit:
    """Say whom the failure of one partition speaks against."""
    for kind, blamed in CULPRITS:
        if isinstance(error, kind):
            return blamed
    return Culprit.OURSELVES


def told_of(troubled: Mapping[TopicPartition, str]) -> str:
    """Say to people which replicas cannot follow their leaders, and why."""
    named = [f"{tp} ({trouble})" for tp, trouble in list(troubled.items())[:MOST_NAMED]]
    others = len(troubled) - len(named)
    more = f" and {others} others" if others else ""
    return f"{len(troubled)} replicas cannot follow their leaders: {', '.join(named)}{more}"
