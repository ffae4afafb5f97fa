"""What a follower fetches, what it keeps of it, and when it asks again."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from broker.replication.leader_fetcher import FetcherConfig
from broker.replication.replica_fetchers import PARTITIONS_A_TURN
from core_log.config import LogConfig
from core_log.log import Log
from core_log.log_work import LogWork
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    partition_error,
)
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
)
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import NOW_MS, AtOnce
from tests.broker.replication.scripted_leader import (
    EPOCH,
    T0,
    T1,
    T2,
    Follower,
    Leader,
    epochs_response,
    fetch_response,
    follow,
    leader_batch,
    part,
    state_from_controller,
)
from tests.broker.small_cluster import pass_time
from tests.stage.waiting import until

# ---- what is taken, and what is not


def test_what_is_fetched_is_appended_and_the_watermark_follows() -> None:
    leader = Leader().will(
        FetchRequest,
        fetch_response(part(leader_batch(0, b"a", b"b"), high_watermark=1)),
        fetch_response(part(leader_batch(2, b"c"), high_watermark=9, log_start=1)),
    )

    async def story(follower: Follower) -> None:
        partition = follower.partition()
        follower.fetchers.follow([partition])
        await until(lambda: len(leader.fetches) == 3, "too few fetches")
        assert leader.fetches == [{T0: 0}, {T0: 2}, {T0: 3}]
        assert (partition.high_watermark, partition.log.log_start_offset) == (3, 1)
        assert partition.log.leader_epochs.entries == [(EPOCH, 1)]
        assert follower.grown == [T0, T0]

    follow(leader, story)


def test_a_fetch_says_who_asks_in_which_epoch_and_within_which_bounds() -> None:
    leader = Leader()
    settings = FetcherConfig(11, 22, 33, 44)

    async def story(follower: Follower) -> None:
        follower.fetchers.follow([follower.partition()])
        await until(lambda: leader.fetches, "no fetch")
        (asked,) = leader.requests(FetchRequest)
        bounds = (asked.max_bytes, asked.max_wait_ms, asked.min_bytes)
        assert (asked.replica_id, bounds) == (0, (22, 33, 44))
        (p,) = asked.topics[0].partitions
        assert (p.current_leader_epoch, p.log_start_offset, p.partition_max_bytes) == (EPOCH, 0, 11)

    follow(leader, story, settings=settings)


def test_an_answer_is_dropped_when_another_epoch_has_begun_meanwhile() -> None:
    leader = Leader()

    async def story(follower: Follower) -> None:
        partition = follower.partition()

        def meanwhile(request: FetchRequest) -> FetchResponse:
            partition.take_state(state_from_controller(epoch=EPOCH + 1), NOW_MS)
            follower.fetchers.stop([T0])
            follower.fetchers.follow([partition])
            return fetch_response(part(leader_batch(0, b"old")))

        leader.will(FetchRequest, meanwhile)
        follower.fetchers.follow([partition])
        await until(lambda: len(leader.fetches) == 2, "not fetched again")
        assert partition.log.log_end_offset == 0
        last = leader.requests(FetchRequest)[-1].topics[0].partitions[0]
        assert last.current_leader_epoch == EPOCH + 1

    follow(leader, story)


def test_rest_of_an_answer_is_dropped_when_another_epoch_begins_during_a_flush() -> None:
    """Before a second segment the first is flushed, and meanwhile the controller speaks."""
    leader = Leader()
    leader.will(
        FetchRequest,
        fetch_response(part(leader_batch(0, b"a") + leader_batch(1, b"old"), high_watermark=2)),
    )
    leader.will(OffsetForLeaderEpochRequest, epochs_response((0, EPOCH, 1)))

    async def story(follower: Follower) -> None:
        partition = follower.partition()

        class Work(LogWork):
            async def flush(self, log: Log) -> None:
                await super().flush(log)
                partition.take_state(state_from_controller(epoch=EPOCH + 1), NOW_MS)
                follower.fetchers.stop([T0])
                follower.fetchers.follow([partition])

        follower.fetchers.work = Work(AtOnce())
        follower.fetchers.follow([partition])
        await until(lambda: len(leader.fetches) == 2, "not fetched again")
        assert leader.fetches[-1] == {T0: 1}
        assert (partition.log.log_end_offset, partition.high_watermark) == (1, 0)

    follow(leader, story, config=LogConfig(segment_bytes=100))


@pytest.mark.fault("strangers-21")
def test_an_answer_with_news_of_very_many_is_appended_in_turns_of_the_loop() -> None:
    many = [TopicPartition("t", number) for number in range(3 * PARTITIONS_A_TURN)]
    news = [part(leader_batch(0, b"a"), index=number) for number in range(len(many))]
    leader = Leader()
    in_turns: list[int] = []

    async def story(follower: Follower) -> None:
        partitions = [follower.partition(tp) for tp in many]
        last = partitions[-1]

        async def watch() -> None:
            before = 0
            while before < len(many) - 1:
                in_turns.append(len(follower.grown) - before)
                if before == 0 < len(follower.grown):
                    # The controller speaks in between: the last part is of no use any more.
                    last.take_state(state_from_controller(epoch=EPOCH + 1), NOW_MS)
                    follower.fetchers.stop([last.topic_partition])
                    follower.fetchers.follow([last])
                before = len(follower.grown)
                await asyncio.sleep(0)

        def answer(request: FetchRequest) -> FetchResponse:
            follower.spawn(watch())
            return fetch_response(*news)

        leader.will(FetchRequest, answer)
        follower.fetchers.follow(partitions)
        await until(lambda: len(leader.fetches) == 2, "not fetched again")
        assert follower.grown == many[:-1]
        assert last.log.log_end_offset == 0

    follow(leader, story)
    assert max(in_turns) <= PARTITIONS_A_TURN


def test_an_answer_is_dropped_when_the_log_ends_elsewhere_now() -> None:
    leader = Leader()

    async def story(follower: Follower) -> None:
        partition = follower.partition(written=[(EPOCH, 1), (EPOCH, 1)])

        def meanwhile(request: FetchRequest) -> FetchResponse:
            partition.log.truncate_to(1)
            partition.note_truncation()
            return fetch_response(part(leader_batch(2, b"behind a gap"), 3))

        leader.will(OffsetForLeaderEpochRequest, epochs_response((0, EPOCH, 2)))
        leader.will(FetchRequest, meanwhile)
        follower.fetchers.follow([partition])
        await until(lambda: len(leader.fetches) == 2, "not fetched again")
        assert leader.fetches == [{T0: 2}, {T0: 1}]
        assert (partition.log.log_end_offset, partition.high_watermark) == (1, 0)

    follow(leader, story)


def test_a_leader_that_knows_a_later_epoch_is_asked_seldom_until_the_controller_speaks() -> None:
    fenced = fetch_response(partition_error(0, ErrorCode.FENCED_LEADER_EPOCH))
    leader = Leader().will(FetchRequest, *[fenced] * 60)

    async def story(follower: Follower) -> None:
        partition = follower.partition()
        follower.fetchers.follow([partition])
        await pass_time(59.5)
        assert 2 <= len(leader.asked) <= 60
        assert follower.fetchers.failures() == {T0: "FENCED_LEADER_EPOCH"}
        partition.take_state(state_from_controller(epoch=EPOCH + 1), NOW_MS)
        follower.fetchers.stop([T0])
        follower.fetchers.follow([partition])
        asked = len(leader.asked)
        await until(lambda: len(leader.asked) == asked + 1, "not fetched again")
        assert follower.fetchers.failures() == {}

    follow(leader, story)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_a_refused_partition_waits_alone_and_longer_each_time(code: ErrorCode) -> None:
    leader = Leader()
    times: list[float] = []

    def answer(request: FetchRequest) -> FetchResponse:
        asked = {p.partition for topic in request.topics for p in topic.partitions}
        if 0 in asked:
            times.append(asyncio.get_running_loop().time())
        parts = {0: partition_error(0, code), 1: part(b"", index=1)}
        return fetch_response(*(parts[index] for index in sorted(asked)))

    leader.will(FetchRequest, *[answer] * 5000)

    async def story(follower: Follower) -> None:
        follower.fetchers.follow([follower.partition(T0), follower.partition(T1)])
        await until(lambda: len(times) == 10, "not asked again")
        waited = [later - earlier for earlier, later in pairwise(times)]
        assert waited[:4] == pytest.approx([0.02, 0.04, 0.08, 0.16], abs=0.004)
        assert waited[-3:] == pytest.approx([1, 1, 1], abs=0.004)
        assert len(leader.fetches) > 1000

    follow(leader, story)


def test_a_corrupt_batch_delays_its_partition_alone_and_is_fetched_again() -> None:
    corrupt = bytearray(leader_batch(0, b"a"))
    corrupt[-1] ^= 1
    good = fetch_response(part(leader_batch(0, b"a")), part(leader_batch(0, b"b"), index=1))
    leader = Leader().will(
        FetchRequest, fetch_response(part(bytes(corrupt)), part(leader_batch(0, b"b"), index=1))
    )

    async def story(follower: Follower) -> None:
        first, second = follower.partition(T0), follower.partition(T1)
        follower.fetchers.follow([first, second])
        await until(lambda: len(leader.fetches) == 2, "too few fetches")
        assert leader.fetches == [{T0: 0, T1: 0}, {T1: 1}]
        leader.will(FetchRequest, *[good] * 100)
        await until(lambda: first.log.log_end_offset == 1, "not fetched again")
        assert second.log.log_end_offset == 1

    follow(leader, story)


def test_offsets_that_do_not_follow_are_refused() -> None:
    leader = (
        Leader()
        .will(OffsetForLeaderEpochRequest, epochs_response((0, EPOCH, 2)))
        .will(FetchRequest, fetch_response(part(leader_batch(1, b"x"))))
    )

    async def story(follower: Follower) -> None:
        partition = follower.partition(written=[(EPOCH, 2)])
        follower.fetchers.follow([partition])
        await until(lambda: len(leader.fetches) == 2, "not fetched again")
        assert (partition.log.log_end_offset, follower.grown) == (2, [])

    follow(leader, story)


def test_a_full_disk_ends_its_partition_and_the_others_go_on() -> None:
    leader = Leader()

    async def story(follower: Follower) -> None:
        def when_there_is_room(request: FetchRequest) -> FetchResponse:
            follower.disk.disk.free_bytes = None
            return fetch_response(part(leader_batch(0, b"b"), index=1))

        leader.will(
            FetchRequest, fetch_response(part(leader_batch(0, b"a" * 9000))), when_there_is_room
        )
        first, second = follower.partition(T0), follower.partition(T1)
        follower.disk.disk.free_bytes = 8000
        follower.fetchers.follow([first, second])
        await until(lambda: len(leader.fetches) == 3, "too few fetches")
        assert leader.fetches == [{T0: 0, T1: 0}, {T1: 0}, {T1: 1}]
        assert first.log.failure is not None
        assert (first.is_failed, second.is_failed) == (True, False)  # what the controller is told
        assert list(follower.fetchers.failures()) == [T0]

    follow(leader, story)


def test_a_log_that_takes_writes_again_is_fetched_again() -> None:
    leader = Leader().will(FetchRequest, fetch_response(part(leader_batch(0, b"a"))))

    async def story(follower: Follower) -> None:
        partition = follower.partition()
        partition.log.guard.fail("no room")
        follower.fetchers.follow([partition])
        await pass_time(60)
        assert (leader.asked, follower.fetchers.failures()) == ([], {T0: "no room"})
        partition.log.guard.failure = None
        await until(lambda: partition.log.log_end_offset == 1, "not fetched again")
        assert follower.fetchers.failures() == {}

    follow(leader, story)


def test_a_batch_from_before_segment_bytes_was_lowered_is_appended() -> None:
    leader = Leader().will(FetchRequest, fetch_response(part(leader_batch(0, b"v" * 500), 1)))

    async def story(follower: Follower) -> None:
        partition = follower.partition()
        follower.fetchers.follow([partition])
        await until(lambda: partition.log.log_end_offset == 1, "not appended")
        assert follower.fetchers.failures() == {}

    follow(leader, story, config=LogConfig(segment_bytes=100))


def test_what_nobody_expects_of_one_partition_delays_that_one_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    no_bytes: Any = 5
    leader = Leader()

    def answer(request: FetchRequest) -> FetchResponse:
        asked = [p.partition for topic in request.topics for p in topic.partitions]
        parts = {0: part(no_bytes), 1: part(b"", index=1), 2: part(b"", index=2)}
        return fetch_response(*(parts[index] for index in asked))

    leader.will(FetchRequest, *[answer] * 100)

    async def story(follower: Follower) -> None:
        follower.fetchers.follow([follower.partition(tp) for tp in (T0, T1, T2)])
        await until(lambda: len(leader.fetches) >= 100, "too few fetches")
        assert sum(T0 in asked for asked in leader.fetches) < 10
        assert all(asked.keys() >= {T1, T2} for asked in leader.fetches)
        assert len(leader.connections) == 1
        assert list(follower.fetchers.failures()) == [T0]

    follow(leader, story)
    assert [record.exc_info is not None for record in caplog.records] == [True]  # told once


def test_what_brought_records_is_asked_for_last_the_next_time() -> None:
    leader = Leader().will(FetchRequest, fetch_response(part(leader_batch(0, b"a"))))

    async def story(follower: Follower) -> None:
        follower.fetchers.follow([follower.partition(tp) for tp in (T0, T1, T2)])
        await until(lambda: len(leader.fetches) == 2, "too few fetches")
        assert [list(each) for each in leader.fetches] == [[T0, T1, T2], [T1, T2, T0]]

    follow(leader, story)


# ---- flush.messages


def test_the_leader_is_not_told_of_what_is_not_on_disk() -> None:
    leader = Leader().will(FetchRequest, fetch_response(part(leader_batch(0, b"a"))))

    async def story(follower: Follower) -> None:
        partition = follower.partition()
        follower.fetchers.follow([partition])
        await until(lambda: follower.grown, "nothing fetched")
        await pass_time(10)
        assert leader.fetches == [{T0: 0}]
        flush = partition.log.begin_flush()
        flush.run()
        partition.log.end_flush(flush)
        follower.fetchers.note_flush(partition)
        await until(lambda: len(leader.fetches) == 2, "not fetched again")
        assert leader.fetches[-1] == {T0: 1}

    follow(leader, story, config=LogConfig(flush_messages=1))


def test_a_partition_whose_flush_never_ends_holds_up_no_other() -> None:
    refused = partition_error(1, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    leader = Leader().will(FetchRequest, fetch_response(part(leader_batch(0, b"a")), refused))

    async def story(follower: Follower) -> None:
        follower.fetchers.follow([follower.partition(T0), follower.partition(T1)])
        await until(lambda: len(leader.fetches) == 2, "the other is not fetched again")
        assert leader.fetches[-1] == {T1: 0}

    follow(leader, story, config=LogConfig(flush_messages=1))
