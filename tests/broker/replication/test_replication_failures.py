"""The cause of a failure, and the log line about replicas that cannot follow."""

from __future__ import annotations

import struct

import pytest

from broker.replication.replication_failures import Cause, cause_of, describe_failures
from core_log.appending.replicated_run import UnexpectedAppendOffset
from protocol.errors import ApiError, ErrorCode
from protocol.records.corrupt_record import CorruptRecord
from protocol.topic_partition import TopicPartition


@pytest.mark.parametrize(
    ("error", "blamed"),
    [
        (ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "no room"), Cause.DISK),
        (ApiError(ErrorCode.CORRUPT_MESSAGE, "no batch"), Cause.DISK),
        (CorruptRecord("checksum"), Cause.LEADER),
        (UnexpectedAppendOffset(1, 2, 3), Cause.LEADER),
        (AssertionError(), Cause.OURSELVES),
        (struct.error("short"), Cause.OURSELVES),
        (KeyError("t"), Cause.OURSELVES),
    ],
)
def test_each_failure_speaks_against_one(error: Exception, blamed: Cause) -> None:
    assert cause_of(error) == blamed


def test_many_replicas_are_counted_and_some_are_named() -> None:
    failures = {TopicPartition("t", number): "no room" for number in range(12)}
    line = describe_failures(failures)
    assert line.startswith("12 replicas cannot follow their leaders: t-0 (no room), t-1 (no room),")
    assert line.endswith("t-9 (no room) and 2 others")
    assert describe_failures({TopicPartition("t", 0): "why"}).endswith("leaders: t-0 (why)")
