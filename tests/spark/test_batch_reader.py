import pytest
from pyspark.sql.datasource import InputPartition

from protocol.settings import SettingError
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from spark_connector.batch_reader import KgroupBatchReader
from spark_connector.options import read_options
from spark_connector.split import OffsetRange
from tests.spark.fake_brokers import FakeBrokers

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def planned(brokers: FakeBrokers, **options: str) -> list[OffsetRange]:
    given = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t", **options}
    reader = KgroupBatchReader(read_options(given, streaming=False), connect=brokers.connect)
    return [r for partition in reader.partitions() for r in partition.value]


def test_a_batch_is_all_there_is_unless_told_otherwise() -> None:
    brokers = FakeBrokers({T0: [5, 9], T1: [3, 3]})
    assert planned(brokers) == [OffsetRange(T0, 5, 9)]


def test_a_batch_from_the_group_on_commits_nothing() -> None:
    brokers = FakeBrokers({T0: [5, 9], T1: [3, 8]}, {"g": {T0: OffsetAndMetadata(7)}})
    ranges = planned(brokers, **{"startingOffsets": "group", "commit.group.id": "g"})
    assert ranges == [OffsetRange(T0, 7, 9), OffsetRange(T1, 3, 8)]
    assert brokers.commits == []


def test_a_batch_that_ends_before_it_begins_is_an_error() -> None:
    brokers = FakeBrokers({T0: [5, 9]})
    text = "startingOffsets: begins at offset 8 of t-0, behind offset 6, where endingOffsets ends"
    with pytest.raises(SettingError, match=text):
        planned(brokers, startingOffsets='{"t":{"0":8}}', endingOffsets='{"t":{"0":6}}')


def test_a_batch_that_begins_behind_its_log_is_an_error() -> None:
    brokers = FakeBrokers({T0: [5, 9]})
    text = "startingOffsets: begins at offset 1000 of t-0, behind offset 9"
    with pytest.raises(SettingError, match=text):
        planned(brokers, startingOffsets='{"t":{"0":1000}}')


def test_a_batch_that_ends_behind_its_log_is_an_error() -> None:
    brokers = FakeBrokers({T0: [5, 9]})
    assert planned(brokers, endingOffsets='{"t":{"0":9}}') == [OffsetRange(T0, 5, 9)]
    text = "endingOffsets: ends at offset 10 of t-0, whose log ends at 9"
    with pytest.raises(SettingError, match=text):
        planned(brokers, endingOffsets='{"t":{"0":10}}')


def test_a_partition_or_topic_that_does_not_exist_is_named_with_its_option() -> None:
    brokers = FakeBrokers({T0: [5, 9]})
    with pytest.raises(SettingError, match="endingOffsets: names t-7, which does not exist"):
        planned(brokers, endingOffsets='{"t":{"7":10}}')
    with pytest.raises(SettingError, match="subscribe: names ships, which does not exist"):
        planned(brokers, subscribe="t,ships")


def test_the_task_spark_makes_of_an_empty_plan_reads_nothing() -> None:
    given = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t"}
    reader = KgroupBatchReader(read_options(given, streaming=False))
    assert list(reader.read(InputPartition(None))) == []


def test_a_batch_lies_between_two_times_and_ends_at_the_end_where_nothing_came_since() -> None:
    times = {T0: [(1_000, 5), (2_000, 7)], T1: [(1_500, 3)]}
    brokers = FakeBrokers({T0: [5, 9], T1: [3, 8]}, times=times)
    ranges = planned(brokers, startingTimestamp="1000", endingTimestamp="2000")
    assert ranges == [OffsetRange(T0, 5, 7), OffsetRange(T1, 3, 8)]


def test_the_ends_by_partition_outrank_the_offsets() -> None:
    brokers = FakeBrokers({T0: [5, 9], T1: [3, 8]}, times={T0: [(1_000, 5), (2_000, 7)]})
    ranges = planned(
        brokers,
        endingOffsets='{"t": {"0": 6, "1": 4}}',
        endingOffsetsByTimestamp='{"t": {"0": 1500, "1": 1500}}',
    )
    assert ranges == [OffsetRange(T0, 5, 7), OffsetRange(T1, 3, 8)]


@pytest.mark.fault("broker-11")
@pytest.mark.parametrize(
    ("option", "json", "text"),
    [
        ("startingOffsets", '{"t": {"0": 6}}', "Use -1 for latest, -2 for earliest, if you don't"),
        ("endingOffsets", '{"t": {"0": 6}}', "Use -1 for latest, if you don't care"),
        ("endingOffsetsByTimestamp", '{"t": {"0": 6}}', "Kafka timestamp based ending offsets"),
    ],
)
def test_json_that_leaves_partitions_out_is_refused_as_by_sparks_source(
    option: str, json: str, text: str
) -> None:
    brokers = FakeBrokers({T0: [5, 9], T1: [3, 8], TopicPartition("t", 2): [0, 1]})
    with pytest.raises(SettingError) as refused:
        planned(brokers, **{option: json})
    assert f"{option}: " in str(refused.value)
    assert text in str(refused.value)
    assert str(refused.value).endswith("Not specified: t-1 and 1 more")
