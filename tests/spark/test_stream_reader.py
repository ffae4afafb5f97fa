"""The reader, called in the order of Spark's calls, on brokers in memory."""

import json
import pickle
import re
from pathlib import Path
from typing import Any

import attrs
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
)

from clients.errors import DeadlineExceeded
from protocol.settings import SettingError
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from spark_connector.log_offsets import (
    DISCOVERY_S,
    GONE_GRACE_S,
    TRUNCATION_GRACE_S,
    WARNING_INTERVAL_S,
    DataLoss,
)
from spark_connector.options import read_options
from spark_connector.split import OffsetRange
from spark_connector.stream_reader import KgroupStreamReader
from tests.spark.fake_brokers import FakeBrokers

T0, T1, T2 = (TopicPartition("t", n) for n in range(3))
ALL = ReadAllAvailable()


@attrs.define(eq=False)
class Topic:
    """A topic and a group that outlive the query's planning processes."""

    machine: Path
    """Has the locks of the machine on which the planning processes run."""
    brokers: FakeBrokers = attrs.field(factory=lambda: FakeBrokers({T0: [0, 100], T1: [10, 50]}))
    running: KgroupStreamReader | None = None

    @property
    def now_s(self) -> float:
        return self.brokers.now_s

    @now_s.setter
    def now_s(self, now_s: float) -> None:
        self.brokers.now_s = now_s

    def reader(self, **options: str) -> KgroupStreamReader:
        """Return the query's reader in a new planning process; the last process ends."""
        if self.running is not None:
            self.running.stop()
        self.running = self.start(self.machine, **options)
        return self.running

    def start(self, machine: Path, **options: str) -> KgroupStreamReader:
        """Return the reader of another query, on some machine."""
        given = {
            "kafka.bootstrap.servers": "b:9092",
            "subscribe": "t",
            "commit.group.id": "g",
            **{name.replace("_", "."): value for name, value in options.items()},
        }
        if not given["subscribe"]:
            del given["subscribe"]
        return KgroupStreamReader(
            read_options(given, streaming=True),
            connect=self.brokers.connect,
            now_s=lambda: self.now_s,
            now_ms=lambda: int(self.now_s * 1000),
            lock_directory=machine,
            lock_patience_s=0,
        )

    def grow(self, partition: TopicPartition, records: int) -> None:
        self.brokers.logs[partition][1] += records

    def held(self) -> dict[str, Any]:
        held = self.brokers.groups.get("g", {})
        return {
            str(p): (committed.offset, re.sub(" run=[0-9]+-[0-9a-f]+$", "", committed.metadata))
            for p, committed in held.items()
        }


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    return Topic(tmp_path)


def place(t0: int, t1: int) -> dict[str, dict[str, int]]:
    return {"t": {"0": t0, "1": t1}}


def spans(partitions: "list[InputPartition] | Any") -> list[tuple[int, int, int]]:
    ranges: list[OffsetRange] = [r for partition in partitions for r in partition.value]
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
    topic.brokers.logs[T2] = [0, 8]
    topic.now_s += DISCOVERY_S
    end, read = batch(reader, start)
    assert end == {"t": {"0": 100, "1": 50, "2": 8}}
    assert read == [(2, 0, 8)]


@pytest.mark.fault("broker-6")
def test_a_partition_that_came_later_and_lost_its_first_records_fails_the_query(
    topic: Topic,
) -> None:
    start = topic.reader().initialOffset()
    topic.brokers.logs[T2] = [3, 8]
    topic.now_s += DISCOVERY_S
    with pytest.raises(DataLoss, match="Added partition t-2 starts from 3 instead of 0"):
        batch(topic.reader(), start)
    assert batch(topic.reader(failOnDataLoss="false"), start)[1] == [(2, 3, 8)]


@pytest.mark.fault("broker-6")
def test_a_topic_that_a_pattern_finds_later_is_no_other_than_an_added_partition(
    topic: Topic,
) -> None:
    reader = topic.reader(subscribe="", subscribePattern="^[tu]$")
    start = reader.initialOffset()
    topic.brokers.logs[TopicPartition("u", 0)] = [1, 2]
    topic.now_s += DISCOVERY_S
    with pytest.raises(DataLoss, match="Added partition u-0 starts from 1 instead of 0"):
        batch(reader, start)


def test_a_partition_that_came_before_the_restart_of_a_failed_first_batch_is_read_from_its_earliest(
    topic: Topic,
) -> None:
    topic.reader().initialOffset()
    topic.brokers.logs[T2] = [0, 8]
    topic.grow(T0, 5)
    assert topic.reader().initialOffset() == {"t": {"0": 100, "1": 50, "2": 0}}


@pytest.mark.fault("broker-6")
def test_a_partition_that_lost_records_before_the_restart_of_a_failed_first_batch_is_data_loss(
    topic: Topic,
) -> None:
    topic.reader().initialOffset()
    topic.brokers.logs[T2] = [3, 8]
    with pytest.raises(DataLoss, match="Added partition t-2 starts from 3 instead of 0"):
        topic.reader().initialOffset()
    begin = topic.reader(failOnDataLoss="false").initialOffset()
    assert begin == {"t": {"0": 100, "1": 50, "2": 3}}


@pytest.mark.fault("strangers-84")
def test_another_query_that_asks_for_more_begins_where_it_asks(topic: Topic) -> None:
    """The one before it may have been tried with `latest`, and have had nothing to read."""
    topic.reader(startingOffsets="latest").initialOffset()
    begin = topic.reader(startingOffsets="earliest").initialOffset()
    assert begin == place(0, 10)
    # One that asks for less may be the same after a failure: it repeats, and loses nothing.
    assert topic.reader(startingOffsets="latest").initialOffset() == begin


def test_the_group_says_where_to_begin_and_what_it_does_not_know_begins_at_the_earliest(
    topic: Topic,
) -> None:
    topic.brokers.groups["g"] = {T0: OffsetAndMetadata(42, "by a consumer")}
    assert topic.reader(startingOffsets="group").initialOffset() == place(42, 10)


def test_json_says_where_to_begin(topic: Topic) -> None:
    reader = topic.reader(startingOffsets='{"t": {"0": -1, "1": -2}}')
    assert reader.initialOffset() == place(100, 10)


@pytest.mark.fault("broker-11")
@pytest.mark.parametrize("json", ['{"t": {"1": 20}}', '{"t": {}}', "{}"])
def test_json_that_leaves_partitions_out_is_refused_as_by_sparks_source(
    topic: Topic, json: str
) -> None:
    with pytest.raises(SettingError) as refused:
        topic.reader(startingOffsets=json).initialOffset()
    assert (
        "startingOffsets: If startingOffsets contains specific offsets, you must specify all "
        "TopicPartitions. Use -1 for latest, -2 for earliest, if you don't care. Not specified: t-0"
    ) in str(refused.value)


@pytest.mark.fault("broker-11")
def test_json_need_not_name_what_came_since_the_query_began(topic: Topic) -> None:
    """As in Spark's source: the options say where a query begins, the checkpoint where it is."""
    options = {"startingOffsets": '{"t": {"0": 90, "1": 40}}'}
    reader = topic.reader(**options)
    start = reader.initialOffset()
    topic.brokers.logs[T2] = [0, 8]
    topic.now_s += DISCOVERY_S
    assert batch(reader, start)[1] == [(0, 90, 100), (1, 40, 50), (2, 0, 8)]
    assert batch(topic.reader(**options), place(100, 50))[1] == [(2, 0, 8)]


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


@pytest.mark.fault("core-R5")
def test_a_log_that_lost_its_end_is_read_on_from_there_if_told_so(
    topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    reader = topic.reader(failOnDataLoss="false", maxOffsetsPerTrigger="1000")
    limit = reader.getDefaultReadLimit()
    assert batch(reader, place(200, 50), limit) == (place(200, 50), [])
    topic.now_s += TRUNCATION_GRACE_S
    assert batch(reader, place(200, 50), limit) == (place(100, 50), [])
    topic.grow(T0, 7)
    assert batch(reader, place(100, 50), limit) == (place(107, 50), [(0, 100, 107)])
    (warned,) = caplog.messages
    assert "its last records have been lost" in warned
    assert topic.held()["t-0"] == (100, "spark")


@pytest.mark.fault("core-R5")
@pytest.mark.fault("strangers-20")
def test_a_topic_that_was_created_again_is_read_from_its_start_if_told_so(
    topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    reader = topic.reader(failOnDataLoss="false")
    topic.brokers.leader_epoch = 0
    reader.latestOffset(place(200, 50), ALL)
    topic.now_s += TRUNCATION_GRACE_S
    end, read = batch(reader, place(200, 50))
    # The shorter log tells it of the other, too, which is as long as what was read.
    assert (end, read) == (place(0, 10), [])
    assert "the topic of t-1 was created again after offset 50" in caplog.text
    assert "t-0 ends at offset 100, but was read up to 200: its topic was del" in caplog.text
    assert batch(reader, end) == (place(100, 50), [(0, 0, 100), (1, 10, 50)])


@pytest.mark.fault("core-R5")
def test_a_topic_with_another_id_is_read_from_its_start_also_where_it_has_grown_beyond(
    topic: Topic,
) -> None:
    topic.brokers.topic_ids["t"] = b"1" * 16
    reader = topic.reader(failOnDataLoss="false")
    assert batch(reader, place(100, 50)) == (place(100, 50), [])

    topic.brokers.topic_ids["t"] = b"2" * 16
    topic.grow(T0, 5)
    topic.now_s += DISCOVERY_S
    end, read = batch(reader, place(100, 50))
    assert (end, read) == (place(0, 10), [])
    assert batch(reader, end) == (place(105, 50), [(0, 0, 105), (1, 10, 50)])

    # A broker that is behind tells of the topic before.
    topic.brokers.topic_ids["t"] = b"1" * 16
    topic.now_s += DISCOVERY_S
    assert batch(reader, place(105, 50)) == (place(105, 50), [])


def test_a_topic_with_another_id_fails_the_query(topic: Topic) -> None:
    topic.brokers.topic_ids["t"] = b"1" * 16
    reader = topic.reader()
    reader.latestOffset(place(100, 50), ALL)
    topic.brokers.topic_ids["t"] = b"2" * 16
    topic.now_s += DISCOVERY_S
    with pytest.raises(DataLoss, match="the topic of t-0 was deleted and created again"):
        reader.latestOffset(place(100, 50), ALL)


def test_a_partition_that_is_gone_fails_the_query(topic: Topic) -> None:
    del topic.brokers.logs[T1]
    with pytest.raises(DataLoss, match="t-1 at offset 50 no longer exists"):
        topic.reader().latestOffset(place(100, 50), ALL)


@pytest.mark.fault("strangers-30")
def test_a_topic_that_has_fewer_partitions_is_read_from_its_start_if_told_so(
    topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    del topic.brokers.logs[T1]
    reader = topic.reader(failOnDataLoss="false")
    end, read = batch(reader, place(50, 50))
    assert (end, read) == ({"t": {"0": 0}}, [])
    assert "t-1 at offset 50 no longer exists" in caplog.text
    assert "the topic of t-0 was created again after offset 50" in caplog.text
    assert batch(reader, end) == ({"t": {"0": 100}}, [(0, 0, 100)])


def test_a_topic_that_does_not_exist_fails_the_query(topic: Topic) -> None:
    with pytest.raises(SettingError, match="subscribe: names ships, which does not exist"):
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


# ---- what is read


def test_a_pattern_reads_the_topics_in_whose_names_it_is_found_and_new_ones_too(
    topic: Topic,
) -> None:
    mine, other = TopicPartition("my-flights-2", 0), TopicPartition("ships", 0)
    topic.brokers.logs = {mine: [0, 4], other: [0, 9]}
    reader = topic.reader(subscribe="", subscribePattern="flights", startingOffsets="earliest")
    start = reader.initialOffset()
    assert start == {"my-flights-2": {"0": 0}}
    topic.brokers.logs[TopicPartition("flights", 0)] = [2, 7]
    topic.now_s += DISCOVERY_S
    assert reader.latestOffset(start, ALL) == {"flights": {"0": 7}, "my-flights-2": {"0": 4}}


def test_a_pattern_that_matches_nothing_yet_waits_for_topics(topic: Topic) -> None:
    reader = topic.reader(subscribe="", subscribePattern="^flights$")
    start = reader.initialOffset()
    assert (start, reader.latestOffset(start, ALL)) == ({}, {})


def test_assigned_partitions_alone_are_read(topic: Topic) -> None:
    reader = topic.reader(subscribe="", assign='{"t": [1]}', startingOffsets="earliest")
    start = reader.initialOffset()
    assert batch(reader, start) == ({"t": {"1": 50}}, [(1, 10, 50)])


def test_an_assigned_partition_that_is_not_there_is_refused(topic: Topic) -> None:
    with pytest.raises(SettingError, match="assign: names t-7, which does not exist"):
        topic.reader(subscribe="", assign='{"t": [1, 7]}').initialOffset()


def test_a_topic_that_is_no_longer_subscribed_to_fails_the_query_with_the_reason(
    topic: Topic,
) -> None:
    topic.brokers.logs[TopicPartition("u", 0)] = [0, 5]
    with pytest.raises(DataLoss, match="t-0 at offset 7 is not in subscribe, which has changed"):
        topic.reader(subscribe="u").latestOffset({"t": {"0": 7}, "u": {"0": 5}}, ALL)


def test_a_topic_deleted_under_a_query_that_may_lose_data_is_left_behind(topic: Topic) -> None:
    topic.brokers.logs[TopicPartition("u", 0)] = [0, 5]
    reader = topic.reader(subscribe="t,u", startingOffsets="earliest", failOnDataLoss="false")
    start = reader.initialOffset()
    del topic.brokers.logs[TopicPartition("u", 0)]
    topic.now_s += DISCOVERY_S
    assert reader.latestOffset(start, ALL) == {**place(100, 50), "u": {"0": 0}}
    topic.now_s += GONE_GRACE_S
    assert reader.latestOffset(start, ALL) == place(100, 50)


# ---- where a query begins


def test_a_timestamp_outranks_offsets_and_gives_the_first_record_since(topic: Topic) -> None:
    topic.brokers.times = {T0: [(1_000, 0), (2_000, 60)], T1: [(1_500, 10), (3_000, 40)]}
    reader = topic.reader(startingTimestamp="2000", startingOffsets="earliest")
    assert reader.initialOffset() == place(60, 40)


def test_timestamps_by_partition_outrank_offsets(topic: Topic) -> None:
    topic.brokers.times = {T0: [(1_000, 0), (2_000, 60)], T1: [(1_500, 20)]}
    times = '{"t": {"0": 1500, "1": 1}}'
    reader = topic.reader(startingOffsetsByTimestamp=times, startingOffsets="earliest")
    assert reader.initialOffset() == place(60, 20)


@pytest.mark.fault("broker-11")
@pytest.mark.parametrize("json", ['{"t": {"0": 1500}}', "{}"])
def test_timestamps_that_leave_partitions_out_are_refused_as_by_sparks_source(
    topic: Topic, json: str
) -> None:
    topic.brokers.times = {T0: [(1_000, 0), (2_000, 60)]}
    with pytest.raises(SettingError) as refused:
        topic.reader(startingOffsetsByTimestamp=json).initialOffset()
    text = str(refused.value)
    assert "Partitions specified for Kafka timestamp based starting offsets don't match" in text
    assert "or you didn't specify all the partitions. Not specified: t-" in text


def test_a_partition_without_a_record_since_the_timestamp_is_an_error_unless_latest_is_asked_for(
    topic: Topic,
) -> None:
    topic.brokers.times = {T0: [(2_000, 60)]}
    with pytest.raises(SettingError, match="startingTimestamp: t-1 has no record since 2000"):
        topic.reader(startingTimestamp="2000").initialOffset()
    reader = topic.reader(startingTimestamp="2000", startingOffsetsByTimestampStrategy="latest")
    assert reader.initialOffset() == place(60, 50)


def test_what_the_group_does_not_know_begins_at_the_latest_if_asked_for(topic: Topic) -> None:
    topic.brokers.groups["g"] = {T0: OffsetAndMetadata(42, "by a consumer")}
    assert topic.reader(startingOffsets="group-or-latest").initialOffset() == place(42, 50)


@pytest.mark.parametrize(("choice", "begin"), [("earliest", 0), ("latest", 100)])
def test_a_group_beyond_the_log_begins_where_the_option_says(
    topic: Topic, choice: str, begin: int
) -> None:
    topic.brokers.groups["g"] = {T0: OffsetAndMetadata(500), T1: OffsetAndMetadata(20)}
    reader = topic.reader(startingOffsets="group", onGroupOutOfRange=choice)
    assert reader.initialOffset() == place(begin, 20)


@pytest.mark.parametrize("offset", [5, 51])
def test_a_group_outside_of_the_log_is_named_with_what_to_do(topic: Topic, offset: int) -> None:
    topic.brokers.groups["g"] = {T1: OffsetAndMetadata(offset)}
    with pytest.raises(SettingError) as refused:
        topic.reader(startingOffsets="group").initialOffset()
    assert f"group g is at offset {offset} of t-1, whose log begins at 10 and ends at 50" in str(
        refused.value
    )
    assert "set onGroupOutOfRange to earliest or latest" in str(refused.value)


# ---- a first batch that failed, without a group


def test_a_first_batch_that_nobody_remembers_is_read_from_as_early_as_it_can_have_begun(
    topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    reader = topic.reader(commit_mode="off")
    start = reader.initialOffset()
    topic.grow(T0, 3)
    end = reader.latestOffset(start, ALL)
    topic.grow(T0, 3)
    restarted = topic.reader(commit_mode="off")
    assert spans(restarted.partitions(restarted.initialOffset(), end)) == [(0, 0, 103), (1, 10, 50)]
    assert "reading it from {'t': {'0': 0, '1': 10}}" in caplog.text
    assert batch(restarted, end) == (place(106, 50), [(0, 103, 106)])


def test_a_first_batch_that_nobody_remembers_is_not_skipped_if_nothing_came_since(
    topic: Topic,
) -> None:
    reader = topic.reader(commit_mode="off")
    start = reader.initialOffset()
    topic.grow(T0, 3)
    end = reader.latestOffset(start, ALL)
    restarted = topic.reader(commit_mode="off")
    assert restarted.initialOffset() == end
    assert spans(restarted.partitions(end, end)) == [(0, 0, 103), (1, 10, 50)]


def test_a_first_batch_from_the_earliest_is_read_again_as_it_was(topic: Topic) -> None:
    reader = topic.reader(startingOffsets="earliest", commit_mode="off")
    end = reader.latestOffset(reader.initialOffset(), ALL)
    restarted = topic.reader(startingOffsets="earliest", commit_mode="off")
    assert spans(restarted.partitions(restarted.initialOffset(), end)) == [(0, 0, 100), (1, 10, 50)]


def test_a_file_remembers_where_a_query_began_until_its_first_batch_succeeds(
    topic: Topic, tmp_path: Path
) -> None:
    file = tmp_path / "first"
    options = {"commit_mode": "off", "initialOffsetsFile": str(file)}
    reader = topic.reader(**options)
    start = reader.initialOffset()
    topic.grow(T0, 3)
    end = reader.latestOffset(start, ALL)
    topic.grow(T0, 3)
    restarted = topic.reader(**options)
    assert spans(restarted.partitions(restarted.initialOffset(), end)) == [(0, 100, 103)]
    restarted.latestOffset(end, ALL)
    assert not file.exists()


def test_a_file_of_something_else_is_refused(topic: Topic, tmp_path: Path) -> None:
    file = tmp_path / "first"
    file.write_text("hello")
    with pytest.raises(SettingError, match=r"initialOffsetsFile: .*first cannot be read"):
        topic.reader(initialOffsetsFile=str(file)).initialOffset()


# ---- batches with a least size


def test_a_batch_with_too_little_waits_until_there_is_enough_or_the_delay_has_passed(
    topic: Topic,
) -> None:
    reader = topic.reader(minOffsetsPerTrigger="10", maxTriggerDelay="1m")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    start = reader.initialOffset()

    # The first batch of a run does not wait, as in Spark's source.
    topic.grow(T0, 1)
    first = reader.latestOffset(start, limit)
    assert first == place(101, 50)

    topic.grow(T0, 9)
    assert reader.latestOffset(first, limit) == first
    topic.grow(T1, 1)
    second = reader.latestOffset(first, limit)
    assert second == place(110, 51)

    topic.grow(T0, 1)
    topic.now_s += 59
    assert reader.latestOffset(second, limit) == second
    topic.now_s += 1
    assert reader.latestOffset(second, limit) == place(111, 51)


def test_all_available_does_not_wait_for_a_least_size(topic: Topic) -> None:
    reader = topic.reader(minOffsetsPerTrigger="10", maxOffsetsPerTrigger="20")
    first = reader.latestOffset(reader.initialOffset(), ReadMaxRows(20))
    topic.grow(T0, 2)
    assert reader.latestOffset(first, ReadMaxRows(20)) == first
    assert reader.latestOffset(first, ALL) == place(102, 50)


def test_an_available_now_run_does_not_leave_a_rest_behind(topic: Topic) -> None:
    reader = topic.reader(
        startingOffsets="earliest", minOffsetsPerTrigger="30", maxOffsetsPerTrigger="130"
    )
    reader.prepareForTriggerAvailableNow()
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert reader.latestOffset(first, limit) == place(100, 50)


# ---- brokers that are away


def test_a_query_lives_on_while_all_brokers_are_away_and_goes_on_when_they_are_back(
    topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    reader = topic.reader()
    start = reader.initialOffset()
    reader.latestOffset(start, ALL)
    topic.grow(T0, 5)
    topic.brokers.away = True
    for _ in range(60):
        assert json.dumps(reader.latestOffset(start, ALL)) == json.dumps(start)
    warnings = [record for record in caplog.records if "the brokers are away" in record.message]
    assert 0 < len(warnings) <= topic.now_s / WARNING_INTERVAL_S
    topic.brokers.away = False
    assert batch(reader, start) == (place(105, 50), [(0, 100, 105)])


def test_a_query_whose_brokers_were_never_there_fails_after_its_timeout(topic: Topic) -> None:
    topic.brokers.away = True
    with pytest.raises(DeadlineExceeded):
        topic.reader(commit_mode="off").initialOffset()
    assert topic.brokers.calls == 6


def test_a_restarted_query_waits_for_its_brokers_as_long_as_a_new_one(topic: Topic) -> None:
    topic.brokers.away = True
    reader = topic.reader(commit_mode="off", kafka_default_api_timeout_ms="30000")
    with pytest.raises(DeadlineExceeded):
        reader.latestOffset(place(100, 50), ALL)
    assert topic.brokers.calls == 3


def test_a_partition_without_a_leader_does_not_hold_up_the_others(
    topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    reader = topic.reader(startingOffsets="earliest")
    start = reader.initialOffset()
    topic.brokers.leaderless = {T0}
    end, read = batch(reader, start)
    assert (end, read) == (place(0, 50), [(1, 10, 50)])
    assert "t-0 cannot be read for now (LEADER_NOT_AVAILABLE)" in caplog.text
    topic.brokers.leaderless.clear()
    assert batch(reader, end) == (place(100, 50), [(0, 0, 100)])


# ---- tasks


def test_small_partitions_share_a_task_unless_that_is_switched_off(topic: Topic) -> None:
    topic.brokers.logs = {TopicPartition("t", n): [0, 100] for n in range(200)}
    end = {"t": {str(n): 100 for n in range(200)}}
    start = {"t": {str(n): 0 for n in range(200)}}
    assert len(topic.reader().partitions(start, end)) == 4
    assert len(topic.reader(joinedTaskOffsets="0").partitions(start, end)) == 200
    assert len(topic.reader(minPartitions="300").partitions(start, end)) == 400


# ---- two queries on one group


def test_a_second_query_on_the_group_is_refused_at_its_start(topic: Topic) -> None:
    topic.reader().initialOffset()
    second = topic.start(topic.machine)
    with pytest.raises(SettingError, match=r"commit\.group\.id: another query .* group g,"):
        second.initialOffset()
    with pytest.raises(SettingError, match="another query on this machine"):
        second.latestOffset(place(100, 50), ALL)


def test_a_group_is_free_again_when_the_planning_process_has_ended(topic: Topic) -> None:
    topic.reader().initialOffset()
    assert topic.reader().initialOffset() == place(100, 50)


def test_of_two_queries_on_different_machines_the_newcomer_ends(
    topic: Topic, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    first = topic.reader(startingOffsets="earliest")
    end, _ = batch(first, first.initialOffset())
    first.latestOffset(end, ALL)

    # The newcomer takes what is there for its own, until the first one commits again.
    newcomer = topic.start(elsewhere)
    newcomer.latestOffset(place(90, 50), ALL)
    newcomer.latestOffset(place(95, 50), ALL)
    assert topic.held()["t-0"] == (95, "spark")

    topic.grow(T0, 7)
    end, _ = batch(first, end)
    first.latestOffset(end, ALL)
    assert "another query" in caplog.text
    assert topic.held()["t-0"] == (107, "spark")

    with pytest.raises(
        SettingError, match=r"group g is that of another query \(run .*\), which was"
    ):
        newcomer.latestOffset(place(100, 50), ALL)
    assert topic.held()["t-0"] == (107, "spark")


# ---- a group that somebody has moved


def move(topic: Topic, t0: int, t1: int) -> None:
    topic.brokers.groups["g"] = {T0: OffsetAndMetadata(t0, ""), T1: OffsetAndMetadata(t1, "")}


def test_a_new_query_follows_a_group_that_somebody_has_moved(topic: Topic) -> None:
    move(topic, 40, 20)
    reader = topic.reader(startingOffsets="latest", onGroupReset="follow")
    assert reader.initialOffset() == place(40, 20)
    assert topic.held() == {"t-0": (40, "initial"), "t-1": (20, "initial")}


def test_a_new_query_does_not_follow_what_another_query_has_committed(topic: Topic) -> None:
    earlier = topic.reader(startingOffsets="earliest")
    end, _ = batch(earlier, earlier.initialOffset(), ReadMaxRows(30))
    earlier.latestOffset(end, ALL)
    reader = topic.reader(startingOffsets="latest", onGroupReset="follow")
    assert reader.initialOffset() == place(100, 50)


def test_one_partition_that_was_moved_makes_a_new_query_begin_at_the_group(topic: Topic) -> None:
    earlier = topic.reader(startingOffsets="earliest")
    end, _ = batch(earlier, earlier.initialOffset())
    earlier.latestOffset(end, ALL)
    topic.brokers.groups["g"][T0] = OffsetAndMetadata(3, "")
    reader = topic.reader(startingOffsets="latest", onGroupReset="follow")
    assert reader.initialOffset() == place(3, 50)


def test_a_followed_group_outside_of_the_log_is_as_its_option_has_it(topic: Topic) -> None:
    move(topic, 40, 3)
    with pytest.raises(SettingError, match="set onGroupOutOfRange"):
        topic.reader(onGroupReset="follow").initialOffset()
    reader = topic.reader(onGroupReset="follow", onGroupOutOfRange="earliest")
    assert reader.initialOffset() == place(40, 10)


def test_a_first_batch_that_failed_is_repeated_where_the_query_followed_the_group(
    topic: Topic,
) -> None:
    move(topic, 40, 20)
    reader = topic.reader(onGroupReset="follow")
    end = reader.latestOffset(reader.initialOffset(), ALL)
    topic.grow(T0, 5)
    restarted = topic.reader(onGroupReset="follow")
    assert spans(restarted.partitions(restarted.initialOffset(), end)) == [
        (0, 40, 100),
        (1, 20, 50),
    ]
