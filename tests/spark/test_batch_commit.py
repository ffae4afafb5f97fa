"""A batch query's end goes to the group when the caller says that the query succeeded."""

from uuid import uuid4

import pytest

from clients import blocking
from clients.admin import NewTopic
from kgroup.spark import commit_end, find_end
from protocol.settings import SettingError
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from spark_connector.batch_listener import least_ends
from spark_connector.batch_reader import EndOfQuery, KgroupBatchReader
from spark_connector.options import read_options
from spark_connector.split import OffsetRange
from tests.spark.fake_brokers import FakeBrokers
from tests.stage.cluster import DevCluster

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


def test_on_a_real_broker_the_next_query_begins_where_the_last_one_ended(
    dev_cluster: DevCluster,
) -> None:
    bootstrap = dev_cluster.address("bootstrap")
    topic, group = (f"{kind}-{uuid4().hex[:8]}" for kind in ("t", "g"))
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "startingOffsets": "group-or-earliest",
        "commit.group.id": group,
    }
    with (
        blocking.Admin(bootstrap) as admin,
        blocking.Producer({"bootstrap.servers": bootstrap}) as producer,
    ):
        assert admin.create_topics([NewTopic(topic, 1, 1)]) == {topic: None}
        for count in (3, 2):
            for _ in range(count):
                producer.send(topic, b"v")
            producer.flush()
            end = find_end(options)
            planned = planned_ranges({**options, "endingOffsets": end})
            commit_end(options, end)
            assert [(r.start, r.end) for r in planned] == ([(0, 3)] if count == 3 else [(3, 5)])

        committed = admin.group_offsets(group, [TopicPartition(topic, 0)])
    assert committed == {TopicPartition(topic, 0): OffsetAndMetadata(5, "spark")}


def planned_ranges(options: dict[str, str]) -> list[OffsetRange]:
    reader = KgroupBatchReader(read_options(options, streaming=False))
    return [r for task in reader.partitions() for r in task.value]


# --- several scans in one query


def end_of(ends: dict[TopicPartition, int], group: str = "g", server: str = "b:9092") -> EndOfQuery:
    given = {**OPTIONS, "commit.group.id": group, "kafka.bootstrap.servers": server}
    return EndOfQuery(read_options(given, streaming=False), ends)


@pytest.mark.fault("core-R6")
def test_of_two_scans_of_a_partition_the_least_end_is_committed() -> None:
    scans = [end_of({T0: 5, T1: 8}), end_of({T0: 9, T1: 3}), end_of({T0: 7})]
    (end,) = least_ends(scans)
    assert end.offsets == {T0: 5, T1: 3}


def test_scans_for_other_groups_and_clusters_have_ends_of_their_own() -> None:
    u0 = TopicPartition("u", 0)
    scans = [
        *(end_of({T0: 5}), end_of({T0: 9}, group="h"), end_of({T0: 7}, server="c:9092")),
        end_of({u0: 3}),
    ]
    assert [end.offsets for end in least_ends(scans)] == [{T0: 5, u0: 3}, {T0: 9}, {T0: 7}]
