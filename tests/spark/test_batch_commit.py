"""A batch query's end goes to the group when the caller says that the query succeeded."""

import pytest

from protocol.settings import SettingError
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from spark_connector.batch_commit import commit_end, find_end
from tests.spark.fake_brokers import FakeBrokers

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OPTIONS = {
    "kafka.bootstrap.servers": "b:9092",
    "subscribe": "t",
    "startingOffsets": "group",
    "commit.group.id": "g",
}


def test_the_end_that_was_found_is_committed_whatever_came_since() -> None:
    brokers = FakeBrokers({T0: [0, 9], T1: [3, 8]})
    end = find_end(OPTIONS, connect=brokers.connect)
    brokers.logs[T0][1] += 5
    commit_end(OPTIONS, end, connect=brokers.connect)
    assert end == '{"t": {"0": 9, "1": 8}}'
    assert brokers.groups["g"] == {
        T0: OffsetAndMetadata(9, "spark"),
        T1: OffsetAndMetadata(8, "spark"),
    }


def test_an_end_by_time_is_found_as_offsets() -> None:
    brokers = FakeBrokers({T0: [0, 9]}, times={T0: [(1_000, 4)]})
    assert (
        find_end({**OPTIONS, "endingTimestamp": "500"}, connect=brokers.connect)
        == '{"t": {"0": 4}}'
    )


def test_a_group_with_members_is_left_alone() -> None:
    brokers = FakeBrokers({T0: [0, 9]}, members={"g": ("app",)})
    with pytest.raises(SettingError, match="group g has 1 members"):
        commit_end(OPTIONS, '{"t": {"0": 9}}', connect=brokers.connect)
    assert brokers.commits == []


def test_a_group_is_required() -> None:
    with pytest.raises(SettingError, match=r"commit\.group\.id: is required"):
        commit_end(
            {"kafka.bootstrap.servers": "b:9092", "subscribe": "t"},
            '{"t": {"0": 9}}',
            connect=FakeBrokers({T0: [0, 9]}).connect,
        )
