"""The log lines about records that could not be delivered: how many lines, and their length."""

import pytest

from clients.errors import BrokerError, DeliveryTimedOut
from clients.producer.undelivered import GATHER_MS, MAX_LINES, Undelivered
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOO_LARGE = BrokerError(ErrorCode.MESSAGE_TOO_LARGE, "t-0")


def test_one_partition_and_error_is_one_line_however_many_batches_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    undelivered = Undelivered()
    for now_ms in range(100):
        undelivered.add(P0, TOO_LARGE, 3, now_ms)
    undelivered.write_due(GATHER_MS - 1)
    assert caplog.messages == []
    undelivered.write_due(GATHER_MS)
    assert caplog.messages == ["t-0: 300 records were not delivered: MESSAGE_TOO_LARGE: t-0"]


def test_another_error_and_another_partition_have_a_line_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    undelivered = Undelivered()
    undelivered.add(P1, TOO_LARGE, 1, 0)
    undelivered.add(P0, DeliveryTimedOut("late"), 1, 0)
    undelivered.add(P0, TOO_LARGE, 1, 0)
    undelivered.write()
    assert [line.split()[0] for line in caplog.messages] == ["t-0:", "t-0:", "t-1:"]


def test_what_has_been_said_is_not_said_again(caplog: pytest.LogCaptureFixture) -> None:
    undelivered = Undelivered()
    undelivered.add(P0, TOO_LARGE, 1, 0)
    undelivered.write()
    assert undelivered.due_in_ms(0) is None
    undelivered.write()
    undelivered.add(P0, TOO_LARGE, 2, 5000)
    assert undelivered.due_in_ms(5001) == GATHER_MS - 1
    undelivered.write()
    assert [line.split()[1] for line in caplog.messages] == ["1", "2"]


def test_of_very_many_partitions_some_have_a_line_and_the_others_share_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    undelivered = Undelivered()
    for partition in range(1000):
        undelivered.add(TopicPartition("t", partition), TOO_LARGE, 2, 0)
    undelivered.write()
    assert len(caplog.messages) == MAX_LINES + 1
    rest = 1000 - MAX_LINES
    assert caplog.messages[-1] == f"{2 * rest} records of {rest} more partitions were not delivered"


def test_records_that_had_failed_already_are_no_news() -> None:
    undelivered = Undelivered()
    undelivered.add(P0, TOO_LARGE, 0, 0)
    assert undelivered.due_in_ms(0) is None
