"""Name the cause of a failure that keeps a replica from following its leader.

| cause | examples | consequence |
|---|---|---|
| our disk | a write fails | the log takes no writes (`Guard.fail`), the controller is told (`log_failures`), and the replica is fetched again when the log takes writes again |
| the leader | a batch is corrupt or out of order, the response has an error code | fetched again after a delay |
| ourselves | anything unexpected | logged with its traceback, fetched again after a delay |

No failure ends the fetching of a partition for good, or stops other partitions.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from core_log.appending.replicated_run import UnexpectedAppendOffset
from protocol.errors import ApiError
from protocol.records.corrupt_record import CorruptRecord
from protocol.topic_partition import TopicPartition

MOST_NAMED = 10
"""Most partitions that a message names; it has the number of the others."""


class Cause(Enum):
    """The party that caused a failure."""

    DISK = "our disk"
    LEADER = "the leader"
    OURSELVES = "ourselves"


CAUSES: tuple[tuple[type[Exception], Cause], ...] = (
    (ApiError, Cause.DISK),  # raised by our own log: an error of the leader is no exception
    (CorruptRecord, Cause.LEADER),
    (UnexpectedAppendOffset, Cause.LEADER),
)


def cause_of(error: Exception) -> Cause:
    """Return the party that caused the failure of one partition."""
    for error_type, party in CAUSES:
        if isinstance(error, error_type):
            return party
    return Cause.OURSELVES


def describe_failures(failures: Mapping[TopicPartition, str]) -> str:
    """Write a log line that names replicas which cannot follow their leaders, and the reasons."""
    named = [f"{tp} ({reason})" for tp, reason in list(failures.items())[:MOST_NAMED]]
    others = len(failures) - len(named)
    more = f" and {others} others" if others else ""
    return f"{len(failures)} replicas cannot follow their leaders: {', '.join(named)}{more}"
