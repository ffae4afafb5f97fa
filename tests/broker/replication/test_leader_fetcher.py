"""Decisions of a fetcher, without a loop: what it asks next, and what it takes."""

from __future__ import annotations

from math import inf

import attrs
import pytest

from broker.replication.following_replica import FollowingReplica
from broker.replication.leader_fetcher import (
    AppendRecords,
    FetcherConfig,
    LeaderFetcher,
    Pause,
    RestartLog,
    TruncateLog,
)
from broker.replication.partition import Partition
from broker.replication.replication_quota import ReplicationQuota
from broker.replication.truncation import Truncation
from core_log.config import LogConfig
from core_log.log_manager import LogManager
from core_log.memory_directory import MemoryDirectory
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, partition_error
from protocol.records.batch_header import read_header
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import NOW_MS, batch
from tests.broker.replication.scripted_leader import (
    EPOCH,
    T0,
    T1,
    epochs_response,
    fetch_response,
    leader_batch,
    offsets_response,
    part,
    state_from_controller,
)


@attrs.define(eq=False)
class Following:
    """A fetcher of broker 1, its logs, and a clock that the test moves."""

    config: LogConfig = attrs.field(factory=LogConfig)
    monotonic_ms: int = 0
    logs: LogManager = attrs.field(init=False)
    fetcher: LeaderFetcher = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.logs = LogManager([MemoryDirectory()], self.config, lambda: NOW_MS)
        self.logs.load()
        quota = ReplicationQuota(0, lambda: self.monotonic_ms)
        self.fetcher = LeaderFetcher(0, 1, FetcherConfig(), quota)

    def add(self, name: TopicPartition = T0, records: int = 0) -> FollowingReplica:
        """Follow a partition that has so many records of the present epoch."""
        partition = Partition(name, 0, self.logs.get_or_create(name, self.config), 0)
        for _ in range(records):
            data = batch(b"own")
            header = read_header(data)
            partition.log.append(
                data,
                header,
                leader_epoch=EPOCH,
                now_ms=NOW_MS,
                max_timestamp=header.max_timestamp,
            )
        partition.take_state(state_from_controller(), NOW_MS)
        replica = FollowingReplica(partition, EPOCH)
        self.fetcher.add(replica)
        return replica

    def add_truncated(self, name: TopicPartition = T0, records: int = 0) -> FollowingReplica:
        """Follow a partition whose log needs no truncation."""
        replica = self.add(name, records)
        replica.is_truncated = True
        return replica

    def next_offsets(self) -> dict[TopicPartition, int]:
        """Return the partitions that the next fetch names, and from which offsets."""
        request = self.fetcher.next_fetch(self.monotonic_ms)
        assert isinstance(request, FetchRequest)
        return {
            TopicPartition(topic.topic, asked.partition): asked.fetch_offset
            for topic in request.topics
            for asked in topic.partitions
        }


# ---- what is asked for


def test_nothing_to_follow_is_a_pause_without_end() -> None:
    assert Following().fetcher.next_fetch(0) == Pause(inf)


def test_a_partition_is_not_fetched_before_it_is_truncated() -> None:
    stage = Following()
    replica = stage.add(records=2)
    assert stage.fetcher.next_fetch(0) == Pause(0)
    assert stage.fetcher.find_untruncated(0) == [replica]


def test_a_fetch_begins_where_the_log_ends() -> None:
    stage = Following()
    stage.add_truncated(T0, records=2)
    stage.add_truncated(T1)
    assert stage.next_offsets() == {T0: 2, T1: 0}


def test_a_removed_partition_is_not_asked_for() -> None:
    stage = Following()
    stage.add_truncated(T0)
    stage.add_truncated(T1)
    stage.fetcher.remove(T0)
    assert stage.next_offsets() == {T1: 0}


def test_a_new_leader_epoch_is_truncated_first_though_the_old_one_was_being_fetched() -> None:
    stage = Following()
    stage.add_truncated(T0)
    stage.next_offsets()
    again = stage.add(T0)
    assert isinstance(stage.fetcher.next_fetch(0), Pause)
    assert stage.fetcher.find_untruncated(0) == [again]


def test_records_that_are_not_on_disk_keep_a_partition_aside() -> None:
    stage = Following(LogConfig(flush_messages=1))
    stage.add_truncated(T0, records=1)
    assert stage.fetcher.next_fetch(0) == Pause(inf)


# ---- what is taken


def test_records_are_taken_where_the_log_still_ends_at_the_fetch_offset() -> None:
    stage = Following()
    replica = stage.add_truncated(T0)
    stage.next_offsets()
    response = part(leader_batch(0, b"a"))
    assert stage.fetcher.take(T0, response, 0) == AppendRecords(replica, response)


def test_records_for_another_log_end_are_dropped_and_asked_for_again() -> None:
    stage = Following()
    replica = stage.add_truncated(T0, records=2)
    stage.next_offsets()
    replica.partition.log.truncate_to(1)
    assert stage.fetcher.take(T0, part(leader_batch(2, b"a")), 0) is None
    assert stage.next_offsets() == {T0: 1}


def test_records_for_an_earlier_epoch_are_dropped() -> None:
    stage = Following()
    stage.add_truncated(T0)
    stage.next_offsets()
    stage.add_truncated(T0)
    assert stage.fetcher.take(T0, part(leader_batch(0, b"old")), 0) is None


def test_records_of_a_partition_that_left_are_dropped() -> None:
    stage = Following()
    stage.add_truncated(T0)
    stage.next_offsets()
    stage.fetcher.remove(T0)
    assert stage.fetcher.take(T0, part(leader_batch(0, b"old")), 0) is None


# ---- delays


def test_a_refused_partition_is_asked_for_after_delays_that_double_up_to_the_backoff() -> None:
    stage = Following()
    replica = stage.add_truncated(T0)
    delays = []
    for _ in range(8):
        stage.monotonic_ms = int(replica.retry_at_ms)
        stage.next_offsets()
        refusal = partition_error(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert stage.fetcher.take(T0, refusal, stage.monotonic_ms) is None
        pause = stage.fetcher.next_fetch(stage.monotonic_ms)
        assert isinstance(pause, Pause)
        delays.append(pause.ms)
    assert delays == [20, 40, 80, 160, 320, 640, 1000, 1000]
    assert replica.trouble == "NOT_LEADER_OR_FOLLOWER"


def test_a_fenced_epoch_waits_the_whole_backoff_at_once() -> None:
    stage = Following()
    stage.add_truncated(T0)
    stage.next_offsets()
    stage.fetcher.take(T0, partition_error(0, ErrorCode.FENCED_LEADER_EPOCH), 0)
    assert stage.fetcher.next_fetch(0) == Pause(1000)


def test_a_success_forgets_trouble_and_delay() -> None:
    stage = Following()
    replica = stage.add_truncated(T0)
    stage.fetcher.fail(replica, OSError("no room"), 0)
    stage.fetcher.recover(replica)
    assert (replica.trouble, replica.delay_ms) == ("", 20)


def test_a_failed_log_is_looked_at_again_after_a_delay() -> None:
    stage = Following()
    replica = stage.add_truncated(T0)
    replica.partition.log.guard.fail("no room")
    assert stage.fetcher.next_fetch(0) == Pause(20)
    replica.partition.log.guard.failure = None
    stage.monotonic_ms = 20
    assert stage.next_offsets() == {T0: 0}


def test_new_trouble_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    stage = Following()
    replica = stage.add_truncated(T0)
    for _ in range(3):
        stage.fetcher.fail(replica, OSError("no room"), 0)
    assert len(caplog.records) == 1


# ---- truncation and range


def test_the_last_epoch_counts_only_for_partitions_that_were_asked_and_still_follow() -> None:
    stage = Following()
    stayed = stage.add(T0, records=3)
    left = stage.add(T1, records=3)
    stage.fetcher.remove(T1)
    response = epochs_response((0, EPOCH, 2), (1, EPOCH, 2), (2, EPOCH, 2))
    assert stage.fetcher.truncate_by_epochs([stayed, left], response, 0) == [
        TruncateLog(stayed, Truncation(2, done=True))
    ]


def test_a_log_without_epochs_is_truncated_to_its_watermark() -> None:
    stage = Following()
    replica = stage.add(records=2)
    replica.partition.log.leader_epochs.clear()
    assert stage.fetcher.truncate_by_watermark([replica]) == [
        TruncateLog(replica, Truncation(0, done=True))
    ]


def test_an_unfinished_truncation_asks_about_the_epoch_before() -> None:
    stage = Following()
    replica = stage.add(records=2)
    stage.fetcher.note_changed(TruncateLog(replica, Truncation(1, done=False)))
    assert stage.fetcher.find_untruncated(0) == [replica]
    stage.fetcher.note_changed(TruncateLog(replica, Truncation(1, done=True)))
    assert stage.fetcher.find_untruncated(0) == []


@pytest.mark.parametrize(
    ("start", "end", "change"),
    [
        pytest.param(0, 2, "truncate to 2", id="the leader's log ends before ours"),
        pytest.param(50, 90, "restart at 50", id="the leader's log starts after ours ends"),
        pytest.param(1, 90, "none", id="our end is within"),
    ],
)
def test_a_log_out_of_range_returns_by_the_leaders_bounds(
    start: int, end: int, change: str
) -> None:
    stage = Following()
    replica = stage.add_truncated(records=3)
    stage.next_offsets()
    assert stage.fetcher.take(T0, partition_error(0, ErrorCode.OFFSET_OUT_OF_RANGE), 0) is None
    assert stage.fetcher.find_out_of_range(0) == [replica]

    ends = stage.fetcher.read_offsets([replica], offsets_response(end), 0)
    starts = stage.fetcher.read_offsets([replica], offsets_response(start), 0)
    expected = {
        "truncate to 2": [TruncateLog(replica, Truncation(2, done=True))],
        "restart at 50": [RestartLog(replica, 50)],
        "none": [],
    }
    assert list(stage.fetcher.return_to_range([replica], starts, ends)) == expected[change]
    assert replica.is_out_of_range == (change != "none")


# ---- the quota


def test_a_throttled_partition_that_lags_waits_while_the_quota_is_exceeded() -> None:
    stage = Following(LogConfig(follower_replication_throttled_replicas=("0:0",)))
    replica = stage.add_truncated(T0)
    stage.add_truncated(T1)
    stage.next_offsets()

    stage.fetcher.quota.limit = 10
    append = AppendRecords(replica, part(b"x" * 1000, high_watermark=9))
    stage.fetcher.note_appended(append)
    stage.fetcher.end_session()
    assert stage.next_offsets() == {T1: 0}

    stage.fetcher.remove(T1)
    assert stage.fetcher.next_fetch(0) == Pause(1000)
    stage.monotonic_ms = 3_600_000
    assert stage.next_offsets() == {T0: 0}


def test_a_session_names_only_changes_until_it_ends() -> None:
    stage = Following()
    stage.add_truncated(T0)
    assert stage.next_offsets() == {T0: 0}
    stage.fetcher.read_session(fetch_response(session=5))
    assert stage.next_offsets() == {}
    stage.fetcher.end_session()
    assert stage.next_offsets() == {T0: 0}
