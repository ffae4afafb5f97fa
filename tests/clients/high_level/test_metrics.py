"""Meters: counts, rates that decay, and the names under which Kafka shows them."""

import pytest

from clients.high_level.metrics import Meter, Meters, Rate, Timer
from protocol.topic_partition import TopicPartition


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_rate_follows_what_happens_and_forgets_it() -> None:
    clock = Clock()
    meter = Meter(clock)
    for _ in range(24):
        clock.now_s += 5
        meter.mark(50)
    assert meter.read().count == 1200
    assert meter.read().one_minute_rate == pytest.approx(10, rel=0.2)
    clock.now_s += 600
    assert meter.read() == Rate(1200, pytest.approx(0, abs=0.01))


def test_before_the_first_tick_there_is_a_count_and_no_rate() -> None:
    meter = Meter(Clock())
    meter.mark(3)
    assert meter.read() == Rate(3, 0.0)


def test_a_timer_knows_the_mean_the_longest_and_the_last() -> None:
    timer = Timer(Meter(Clock()))
    for took_ms in (10, 50, 30):
        timer.mark(took_ms)
    read = timer.read()
    assert (read.count, read.mean_ms, read.max_ms, read.last_ms) == (3, 30, 50, 30)


def test_a_moment_has_all_numbers_under_kafkas_names() -> None:
    meters = Meters(Clock())
    meters.kafka_commits.mark(2)
    meters.requests[7].mark()
    meters.count_fetched("t", 5, 500)
    moment = meters.read(
        {TopicPartition("t", 0): 4, TopicPartition("t", 1): 9},
        {"t": 2, "u": 1},
        {("t", "g_a-0"): 1},
        None,
        {TopicPartition("u", 0): "down", **{TopicPartition("t", p): "no leader" for p in (1, 0)}},
    )

    assert moment.max_lag == 9
    assert moment.owned_partitions_count == 3
    assert moment.describe_unreadable() == [
        "t-0 and 1 more could not be read: no leader",
        "u-0 could not be read: down",
    ]

    named = moment.by_name()
    assert named["KafkaCommitsPerSec"].count == 2
    assert named["ZooKeeperCommitsPerSec"].count == 0
    assert named["RebalanceRateAndTime"].count == 0
    assert named["OwnedPartitionsCount"] == 3
    assert named["OwnedPartitionsCount,topic=t"] == 2
    assert named["FetchQueueSize,topic=t,threadId=g_a-0"] == 1
    assert named["MaxLag"] == 9
    assert named["ConsumerLag,topic=t,partition=1"] == 9
    assert named["RequestsPerSec,brokerId=7"].count == 1
    assert named["BytesPerSec,topic=t"].count == 500
    assert named["MessagesPerSec,topic=t"].count == 5
    assert named["MinFetchRate"] == 0.0
