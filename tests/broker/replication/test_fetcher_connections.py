"""A fetcher's connection to its leader, and its fetch session there."""

from __future__ import annotations

import asyncio

import pytest

from broker.replication.leader_fetcher import FetcherConfig
from clients.errors import ConnectionFailed
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    partition_error,
)
from tests.broker.replication.replicas import NOW_MS
from tests.broker.replication.scripted_leader import (
    EPOCH,
    T0,
    T1,
    T2,
    Follower,
    Leader,
    fetch_response,
    follow,
    leader_batch,
    part,
    state_from_controller,
)
from tests.broker.small_cluster import pass_time
from tests.stage.waiting import until

# ---- the connection


def test_a_new_partition_is_added_to_the_session_and_the_fetch_under_way_goes_on() -> None:
    leader = Leader().will(FetchRequest, fetch_response(part(b""), session=9))

    async def story(follower: Follower) -> None:
        first, second = follower.partition(T0), follower.partition(T1)
        follower.fetchers.follow([first])
        await until(lambda: len(leader.fetches) == 2, "no fetch that waits")
        leader.will(FetchRequest, fetch_response(part(leader_batch(0, b"b"), index=1), session=9))
        follower.fetchers.follow([second])
        await until(lambda: second.log.log_end_offset == 1, "not fetched")
        sessions = [(each.session_id, each.session_epoch) for each in leader.requests(FetchRequest)]
        assert leader.fetches[:3] == [{T0: 0}, {}, {T1: 0}]
        assert sessions[:3] == [(0, 0), (9, 1), (9, 2)]
        assert [each.closed for each in leader.connections] == [False]

    follow(leader, story)


def test_a_leader_that_does_not_answer_when_there_is_more_to_ask_is_asked_anew() -> None:
    """It has lost its power, and is back: the connection of before is open on our side alone."""
    leader = Leader()

    async def story(follower: Follower) -> None:
        partition = follower.partition(T0)
        leader.is_silent = True
        follower.fetchers.follow([partition])
        await pass_time(20)
        assert [each.closed for each in leader.connections] == [False]
        leader.is_silent = False
        partition.take_state(state_from_controller(epoch=EPOCH + 1), NOW_MS)
        follower.fetchers.stop([T0])
        follower.fetchers.follow([partition])
        await pass_time(2)
        assert [each.closed for each in leader.connections] == [True, False]
        assert leader.requests(FetchRequest)[1].topics[0].partitions[0].current_leader_epoch == 8

    follow(leader, story)


def test_what_the_fetch_under_way_brings_for_an_earlier_epoch_is_not_taken() -> None:
    leader = Leader()

    async def story(follower: Follower) -> None:
        partition = follower.partition(T0)

        def too_late(request: FetchRequest) -> FetchResponse:
            partition.take_state(state_from_controller(epoch=EPOCH + 1), NOW_MS)
            follower.fetchers.stop([T0])
            follower.fetchers.follow([partition])
            return fetch_response(part(leader_batch(0, b"old")), session=9)

        leader.will(FetchRequest, too_late)
        follower.fetchers.follow([partition])
        await until(lambda: len(leader.fetches) == 2, "not fetched again")
        assert (partition.log.log_end_offset, leader.fetches) == (0, [{T0: 0}, {T0: 0}])
        (named,) = leader.requests(FetchRequest)[1].topics[0].partitions
        assert named.current_leader_epoch == EPOCH + 1

    follow(leader, story)


def test_a_lost_connection_is_made_again_after_pauses_that_grow() -> None:
    leader = Leader(refused=4)
    leader.will(FetchRequest, ConnectionFailed("leader", 1, "reset"))

    async def story(follower: Follower) -> None:
        follower.fetchers.follow([follower.partition()])
        await until(lambda: len(leader.fetches) == 2, "not fetched again")
        waited = 0.02 + 0.04 + 0.08 + 0.16 + 0.32
        assert asyncio.get_running_loop().time() == pytest.approx(waited, abs=0.02)
        assert [each.closed for each in leader.connections] == [True, False]

    follow(leader, story)


def test_who_has_nothing_to_follow_hangs_up_and_comes_back_when_there_is() -> None:
    leader = Leader()

    async def story(follower: Follower) -> None:
        partition = follower.partition()

        def last(request: FetchRequest) -> FetchResponse:
            follower.fetchers.stop([T0])
            return fetch_response()

        leader.will(FetchRequest, last)
        follower.fetchers.follow([partition])
        await until(lambda: leader.connections and leader.connections[0].closed, "it holds on")
        follower.fetchers.follow([partition])
        await until(lambda: len(leader.fetches) == 2, "not fetched again")

    follow(leader, story)


def test_partitions_are_spread_over_the_fetchers_as_kafka_spreads_them() -> None:
    leader = Leader()

    async def story(follower: Follower) -> None:
        follower.fetchers.follow([follower.partition(tp) for tp in (T0, T1, T2)])
        await until(lambda: len(leader.fetches) == 2, "too few fetches")
        assert sorted(leader.fetches, key=len) == [{T1: 0}, {T0: 0, T2: 0}]

    follow(leader, story, settings=FetcherConfig(fetchers=2))


# ---- sessions


def test_in_a_session_only_what_changed_is_named() -> None:
    leader = Leader().will(
        FetchRequest,
        fetch_response(part(b""), part(b"", index=1), session=5),
        fetch_response(part(leader_batch(0, b"a")), session=5),
        fetch_response(session=5),
    )

    async def story(follower: Follower) -> None:
        follower.fetchers.follow([follower.partition(T0), follower.partition(T1)])
        await until(lambda: len(leader.fetches) == 4, "too few fetches")
        assert leader.fetches == [{T0: 0, T1: 0}, {}, {T0: 1}, {}]
        sessions = [(r.session_id, r.session_epoch) for r in leader.requests(FetchRequest)]
        assert sessions == [(0, 0), (5, 1), (5, 2), (5, 3)]

    follow(leader, story)


@pytest.mark.parametrize(
    "error", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH]
)
def test_a_session_the_leader_knows_no_more_is_begun_anew(error: ErrorCode) -> None:
    leader = Leader().will(
        FetchRequest, fetch_response(part(b""), session=5), fetch_response(error=error)
    )

    async def story(follower: Follower) -> None:
        follower.fetchers.follow([follower.partition()])
        await until(lambda: len(leader.fetches) == 3, "too few fetches")
        assert leader.fetches == [{T0: 0}, {}, {T0: 0}]
        assert leader.requests(FetchRequest)[-1].session_epoch == 0

    follow(leader, story)


def test_a_session_ends_with_its_connection() -> None:
    leader = Leader().will(
        FetchRequest, fetch_response(part(b""), session=5), ConnectionFailed("leader", 1, "reset")
    )

    async def story(follower: Follower) -> None:
        follower.fetchers.follow([follower.partition()])
        await until(lambda: len(leader.fetches) == 3, "too few fetches")
        assert leader.fetches == [{T0: 0}, {}, {T0: 0}]
        assert leader.requests(FetchRequest)[-1].session_epoch == 0

    follow(leader, story)


def test_what_waits_is_forgotten_by_the_session_and_named_again_later() -> None:
    leader = Leader().will(
        FetchRequest,
        fetch_response(part(b""), part(b"", index=1), session=5),
        fetch_response(partition_error(0, ErrorCode.UNKNOWN_LEADER_EPOCH), session=5),
        *[fetch_response(session=5)] * 100,
    )

    async def story(follower: Follower) -> None:
        follower.fetchers.follow([follower.partition(T0), follower.partition(T1)])
        await until(lambda: {T0: 0} in leader.fetches, "not named again")
        forgotten = leader.requests(FetchRequest)[2].forgotten_topics_data
        assert [(each.topic, list(each.partitions)) for each in forgotten] == [("t", [0])]

    follow(leader, story)
