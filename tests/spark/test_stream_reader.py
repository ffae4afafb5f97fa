"""The reader, called in the order of Spark's calls, on brokers in memory."""

import json
import pickle
from typing import Any

import attrs
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from protocol.errors import ApiError
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from spark_connector.log_offsets import DISCOVERY_S, DataLoss
from spark_connector.options import read_options
from spark_connector.split import OffsetRange
from spark_connector.stream_reader import TRUNCATION_GRACE_S, KgroupStreamReader
from tests.spark.fake_brokers import FakeBrokers

T0, T1, T2 = (TopicPartition("t", n) for n in range(3))
ALL = ReadAllAvailable()


@attrs.define(eq=False)
class Topic:
    """A topic and a group that outlive the query's planning processes."""

    brokers: FakeBrokers = attrs.field(factory=lambda: FakeBrokers({T0: [0, 100], T1: [10, 50]}))

    now_s: float = 1000.0

    def reader(self, **options: str) -> KgroupStreamReader:
        given = {
            "kafka.bootstrap.servers": "b:9092",
            "subscribe": "t",
            "commit.group.id": "g",
            **{name.replace("_", "."): value for name, value in options.items()},
        }
        return KgroupStreamReader(
            read_options(given, streaming=True),
            connect=self.brokers.connect,
            now_s=lambda: self.now_s,
        )

    def grow(self, partition: TopicPartition, records: int) -> None:
        self.brokers.logs[partition][1] += records

    def held(self) -> dict[str, Any]:
        held = self.brokers.groups.get("g", {})
        return {str(p): (committed.offset, committed.metadata) for p, committed in held.items()}


@pytest.fixture
def topic() -> Topic:
    return Topic()


def place(t0: int, t1: int) -> dict[str, dict[str, int]]:
    return {"t": {"0": t0, "1": t1}}


def spans(partitions: "list[InputPartition] | Any") -> list[tuple[int, int, int]]:
    ranges: list[OffsetRange] = [partition.value for partition in partitions]
    return [(r.partition.partition, r.start, r.end) for r in ranges]


def batch(
    reader: KgroupStreamReader, start: dict[str, Any], limit: ReadLimit = ALL
) -> tuple[dict[str, Any], list[tuple[int, int, int]]]:
    """A trigger: where the batch ends, and what it reads."""
    end = reader.latestOffset(start, limit)
    return end, spans(reader.partitions(start, end)) if end != start else []


def test_traffic_between_the_two_questions_for_the_start_is_not_lost(topic: Topic) -> None:
    reader = topic.reader()
    first = reader.initialOffset()
    topic.grow(T0, 3)
    end = reader.latestOffset(first, ALL)
    start = reader.initialOffset()
    assert (start, end) == (place(100, 50), place(103, 50))
    assert spans(reader.partitions(start, end)) == [(0, 100, 103)]


def test_a_first_batch_that_failed_is_read_again_after_a_restart(topic: Topic) -> None:
    reader = topic.reader()
    reader.initialOffset()
    topic.grow(T0, 3)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    topic.grow(T0, 3)
    restarted = topic.reader()
    assert spans(restarted.partitions(restarted.initialOffset(), end)) == [(0, 100, 103)]


def test_without_a_group_a_start_behind_the_end_is_an_error_and_not_an_empty_batch(
    topic: Topic,
) -> None:
    reader = topic.reader(commit_mode="off")
    topic.grow(T0, 3)
    end = place(103, 50)
    topic.grow(T0, 3)
    with pytest.raises(ValueError, match="t-0 is to be read from offset 106 to 103"):
        reader.partitions(reader.initialOffset(), end)


def test_the_group_learns_of_a_batch_with_the_next_trigger_idle_or_not(topic: Topic) -> None:
    reader = topic.reader(startingOffsets="earliest", commit_metadata="etl")
    end, _ = batch(reader, reader.initialOffset())
    assert topic.held() == {"t-0": (0, "initial"), "t-1": (10, "initial")}
    assert batch(reader, end) == (end, [])
    assert topic.held() == {"t-0": (100, "etl"), "t-1": (50, "etl")}


def test_an_idle_trigger_gives_the_very_text_it_was_given(topic: Topic) -> None:
    topic.brokers.logs = {TopicPartition("t", n): [0, 5] for n in (10, 9, 1, 0)}
    reader = topic.reader()
    start = reader.initialOffset()
    assert json.dumps(reader.latestOffset(start, ALL)) == json.dumps(start)


def test_a_restarted_query_goes_on_at_its_checkpoint_whatever_the_group_says(topic: Topic) -> None:
    topic.brokers.groups["g"] = {T0: OffsetAndMetadata(99, "x"), T1: OffsetAndMetadata(49, "x")}
    reader = topic.reader()
    _, read = batch(reader, place(40, 20))
    assert read == [(0, 40, 100), (1, 20, 50)]
    assert topic.held()["t-0"] == (40, "spark")


def test_the_ends_are_listed_once_a_trigger(topic: Topic) -> None:
    reader = topic.reader(startingOffsets="earliest")
    assert reader.reportLatestOffset() is None
    start = reader.initialOffset()
    reader.latestOffset(start, ReadMaxRows(10))
    assert reader.reportLatestOffset() == place(100, 50)
    assert topic.brokers.end_listings == 1


def test_a_limit_bounds_the_batch_and_all_available_ignores_it(topic: Topic) -> None:
    reader = topic.reader(startingOffsets="earliest", maxOffsetsPerTrigger="14")
    start = reader.initialOffset()
    assert reader.getDefaultReadLimit() == ReadMaxRows(14)
    assert batch(reader, start, ReadMaxRows(14)) == (place(10, 14), [(0, 0, 10), (1, 10, 14)])
    assert batch(reader, start, ALL) == (place(100, 50), [(0, 0, 100), (1, 10, 50)])


def test_an_available_now_run_ends_where_the_logs_ended_at_its_start(topic: Topic) -> None:
    reader = topic.reader(startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    topic.grow(T0, 900)
    end, _ = batch(reader, reader.initialOffset())
    assert end == place(100, 50)
    assert batch(reader, end) == (end, [])
    assert topic.held() == {"t-0": (100, "spark"), "t-1": (50, "spark")}


def test_a_new_available_now_run_from_the_latest_begins_at_its_own_end(topic: Topic) -> None:
    reader = topic.reader()
    reader.prepareForTriggerAvailableNow()
    topic.grow(T0, 900)
    start = reader.initialOffset()
    assert batch(reader, start) == (start, [])


def test_a_partition_that_came_later_is_read_from_its_earliest_offset(topic: Topic) -> None:
    reader = topic.reader()
    start = reader.initialOffset()
    topic.brokers.logs[T2] = [3, 8]
    topic.now_s += DISCOVERY_S
    end, read = batch(reader, start)
    assert end == {"t": {"0": 100, "1": 50, "2": 8}}
    assert read == [(2, 3, 8)]


def test_a_partition_that_came_before_the_restart_of_a_failed_first_batch_is_read_from_its_earliest(
    topic: Topic,
) -> None:
    topic.reader().initialOffset()
    topic.brokers.logs[T2] = [3, 8]
    topic.grow(T0, 5)
    assert topic.reader().initialOffset() == {"t": {"0": 100, "1": 50, "2": 3}}


def test_the_group_says_where_to_begin_and_what_it_does_not_know_begins_at_the_earliest(
    topic: Topic,
) -> None:
    topic.brokers.groups["g"] = {T0: OffsetAndMetadata(42, "by a consumer")}
    assert topic.reader(startingOffsets="group").initialOffset() == place(42, 10)


def test_json_says_where_to_begin(topic: Topic) -> None:
    reader = topic.reader(startingOffsets='{"t": {"0": -1}}')
    assert reader.initialOffset() == place(100, 10)


def test_json_with_a_partition_that_is_not_there_is_refused(topic: Topic) -> None:
    with pytest.raises(ValueError, match="names t-7, which does not exist"):
        topic.reader(startingOffsets='{"t": {"7": 0}}').initialOffset()


def test_a_log_that_stays_shorter_than_what_was_read_fails_the_query(topic: Topic) -> None:
    reader = topic.reader()
    assert reader.latestOffset(place(200, 50), ALL) == place(200, 50)
    topic.now_s += TRUNCATION_GRACE_S
    with pytest.raises(DataLoss, match="t-0 ends at offset 100, but was read up to 200"):
        reader.latestOffset(place(200, 50), ALL)


def test_a_log_that_is_shorter_for_a_moment_does_no_harm(topic: Topic) -> None:
    reader = topic.reader()
    reader.latestOffset(place(101, 50), ALL)
    topic.grow(T0, 2)
    topic.now_s += TRUNCATION_GRACE_S
    assert batch(reader, place(101, 50)) == (place(102, 50), [(0, 101, 102)])


def test_an_available_now_run_does_not_end_well_over_a_log_that_was_cut(topic: Topic) -> None:
    reader = topic.reader()
    reader.prepareForTriggerAvailableNow()
    with pytest.raises(DataLoss, match="t-0 ends at offset 100"):
        reader.latestOffset(place(200, 50), ALL)


def test_a_log_that_ends_before_what_was_read_is_waited_for_with_one_warning_if_told_so(
    topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    reader = topic.reader(failOnDataLoss="false", commit_mode="off")
    for _ in range(4):
        assert reader.latestOffset(place(200, 50), ALL) == place(200, 50)
        topic.now_s += TRUNCATION_GRACE_S
    assert len(caplog.records) == 1


def test_a_partition_that_is_gone_fails_the_query(topic: Topic) -> None:
    del topic.brokers.logs[T1]
    with pytest.raises(DataLoss, match="t-1 at offset 50 no longer exists"):
        topic.reader().latestOffset(place(100, 50), ALL)


def test_a_topic_that_does_not_exist_fails_the_query(topic: Topic) -> None:
    with pytest.raises(ApiError, match="ships"):
        topic.reader(subscribe="ships").initialOffset()


def test_a_query_whose_coordinator_is_away_goes_on(topic: Topic) -> None:
    reader = topic.reader(startingOffsets="earliest")
    start = reader.initialOffset()
    topic.brokers.failing = True
    end, read = batch(reader, start)
    assert batch(reader, end) == (end, [])
    reader.commit(end)
    assert read == [(0, 0, 100), (1, 10, 50)]
    assert topic.held() == {"t-0": (0, "initial"), "t-1": (10, "initial")}


def test_sparks_own_commit_is_a_second_chance(topic: Topic) -> None:
    reader = topic.reader(startingOffsets="earliest")
    end, _ = batch(reader, reader.initialOffset())
    reader.commit(end)
    assert topic.held() == {"t-0": (100, "spark"), "t-1": (50, "spark")}


def test_no_group_is_touched_when_none_was_named(topic: Topic) -> None:
    reader = topic.reader(commit_mode="off")
    end, _ = batch(reader, reader.initialOffset())
    reader.latestOffset(end, ALL)
    reader.commit(end)
    assert topic.brokers.commits == []


def test_a_reader_that_has_planned_nothing_can_be_pickled() -> None:
    given = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t", "commit.group.id": "g"}
    reader = KgroupStreamReader(read_options(given, streaming=True))
    assert pickle.loads(pickle.dumps(reader)).getDefaultReadLimit() == ALL
