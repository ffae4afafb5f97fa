"""Where a follower truncates its log, and how it returns to the range of its leader's log."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

from broker.replication.partition import Partition
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    FetchRequest,
    partition_error,
)
from protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from tests.broker.replication.replicas import NOW_MS
from tests.broker.replication.scripted_leader import (
    EPOCH,
    T0,
    T1,
    Follower,
    Leader,
    epochs_response,
    fetch_response,
    follow,
    leader_batch,
    offsets_response,
    part,
    state_from_controller,
)
from tests.broker.small_cluster import pass_time
from tests.stage.waiting import until

# ---- truncation


def test_it_asks_where_its_last_epoch_ended_and_fetches_only_then() -> None:
    leader = Leader().will(OffsetForLeaderEpochRequest, epochs_response((0, 2, 3)))

    async def story(follower: Follower) -> None:
        partition = follower.partition(written=[(2, 2), (2, 1), (2, 1)])
        follower.fetchers.follow([partition])
        await until(lambda: leader.fetches, "no fetch")
        assert [type(each) for each in leader.asked] == [OffsetForLeaderEpochRequest, FetchRequest]
        assert leader.epochs_asked == [{T0: 2}]
        asked = leader.asked[0]
        assert (asked.replica_id, asked.topics[0].partitions[0].current_leader_epoch) == (0, EPOCH)
        assert (partition.log.log_end_offset, leader.fetches) == (3, [{T0: 3}])

    follow(leader, story)


def test_it_goes_back_epoch_by_epoch_until_one_is_known_to_both() -> None:
    leader = Leader().will(
        OffsetForLeaderEpochRequest, epochs_response((0, 4, 9)), epochs_response((0, 3, 1))
    )

    async def story(follower: Follower) -> None:
        partition = follower.partition(written=[(3, 1), (3, 1), (5, 2)])
        follower.fetchers.follow([partition])
        await until(lambda: leader.fetches, "no fetch")
        assert leader.epochs_asked == [{T0: 5}, {T0: 3}]
        assert leader.fetches == [{T0: 1}]

    follow(leader, story)


def test_an_epoch_that_is_known_to_both_is_asked_about_once_for_many_fetches() -> None:
    leader = Leader().will(OffsetForLeaderEpochRequest, epochs_response((0, 5, 4)))
    leader.will(FetchRequest, *[fetch_response(part(b""))] * 3)

    async def story(follower: Follower) -> None:
        follower.fetchers.follow([follower.partition(written=[(5, 1)])])
        await until(lambda: len(leader.fetches) == 4, "too few fetches")
        assert leader.epochs_asked == [{T0: 5}]

    follow(leader, story)


def test_a_log_without_epochs_is_cut_to_its_watermark_and_nobody_asked() -> None:
    leader = Leader()

    async def story(follower: Follower) -> None:
        partition = follower.partition(written=[(0, 1), (0, 1)], watermark=1)
        partition.log.leader_epochs.clear()
        follower.fetchers.follow([partition])
        await until(lambda: leader.fetches, "no fetch")
        assert (leader.epochs_asked, leader.fetches) == ([], [{T0: 1}])

    follow(leader, story)


def test_where_the_leader_knows_nothing_the_watermark_counts() -> None:
    leader = Leader().will(OffsetForLeaderEpochRequest, epochs_response((0, -1, -1)))

    async def story(follower: Follower) -> None:
        follower.fetchers.follow([follower.partition(written=[(0, 1), (0, 1)], watermark=1)])
        await until(lambda: leader.fetches, "no fetch")
        assert leader.fetches == [{T0: 1}]

    follow(leader, story)


def test_while_the_leader_gives_errors_nothing_is_cut_and_it_is_asked_again() -> None:
    errors = [epochs_response((0, ErrorCode.NOT_LEADER_OR_FOLLOWER))] * 3
    leader = Leader().will(OffsetForLeaderEpochRequest, *errors, epochs_response((0, 5, 1)))

    async def story(follower: Follower) -> None:
        partition = follower.partition(written=[(5, 1), (5, 1)])
        follower.fetchers.follow([partition])
        await until(lambda: len(leader.epochs_asked) == 3, "not asked again")
        assert (partition.log.log_end_offset, leader.fetches) == (2, [])
        await until(lambda: leader.fetches, "no fetch")
        assert leader.fetches == [{T0: 1}]

    follow(leader, story)


def test_a_partition_that_changes_its_leader_while_epochs_are_asked_is_not_cut() -> None:
    leader = Leader()

    async def story(follower: Follower) -> None:
        kept = follower.partition(T0, [(5, 1), (5, 1)])
        cut = follower.partition(T1, [(5, 1), (5, 1)])

        def meanwhile(request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
            kept.take_state(state_from_controller(leader=0, epoch=EPOCH + 1), NOW_MS)
            follower.fetchers.stop([T0])
            return epochs_response((0, 5, 1), (1, 5, 1))

        leader.will(OffsetForLeaderEpochRequest, meanwhile)
        follower.fetchers.follow([kept, cut])
        await until(lambda: leader.fetches, "no fetch")
        assert (kept.log.log_end_offset, cut.log.log_end_offset) == (2, 1)
        assert leader.fetches == [{T1: 1}]

    follow(leader, story)


def test_of_several_partitions_each_is_cut_by_its_own_answer() -> None:
    leader = Leader().will(OffsetForLeaderEpochRequest, epochs_response((0, 5, 1), (1, 5, 2)))

    async def story(follower: Follower) -> None:
        written = [(5, 1)] * 3
        follower.fetchers.follow([follower.partition(tp, written) for tp in (T0, T1)])
        await until(lambda: leader.fetches, "no fetch")
        assert leader.epochs_asked == [{T0: 5, T1: 5}]
        assert leader.fetches == [{T0: 1, T1: 2}]

    follow(leader, story)


def test_damage_where_the_log_is_to_be_cut_goes_too_and_is_fetched_again() -> None:
    leader = Leader().will(OffsetForLeaderEpochRequest, epochs_response((0, 2, 3)))
    leader.will(
        FetchRequest,
        fetch_response(part(leader_batch(1, b"b", epoch=2) + leader_batch(2, b"c", epoch=2), 3)),
    )

    async def story(follower: Follower) -> None:
        partition = follower.partition(written=[(2, 1)] * 4)
        active = partition.log.segments.active
        active.log.write(active.size // 4 + 8, (1).to_bytes(4, "big"))  # a size that cannot be
        follower.fetchers.follow([partition])
        await until(lambda: partition.log.log_end_offset == 3, "not fetched again")
        assert leader.fetches[0] == {T0: 1}
        assert partition.log.failure is None

    follow(leader, story)


def test_an_unexpected_epoch_end_delays_its_partition_alone() -> None:
    leader = Leader().will(OffsetForLeaderEpochRequest, epochs_response((0, 5, -7), (1, 5, 1)))

    async def story(follower: Follower) -> None:
        odd = follower.partition(T0, written=[(5, 1)] * 2)
        even = follower.partition(T1, written=[(5, 1)] * 2)
        follower.fetchers.follow([odd, even])
        await until(lambda: leader.fetches, "no fetch")
        assert (odd.log.log_end_offset, even.log.log_end_offset) == (2, 1)
        assert leader.fetches[0] == {T1: 1}

    follow(leader, story)


# ---- out of range


def out_of_range(ends: ListOffsetsResponse, starts: ListOffsetsResponse) -> Leader:
    return (
        Leader()
        .will(OffsetForLeaderEpochRequest, epochs_response((0, EPOCH, 3)))
        .will(FetchRequest, fetch_response(partition_error(0, ErrorCode.OFFSET_OUT_OF_RANGE)))
        .will(ListOffsetsRequest, ends, starts)
    )


@pytest.mark.parametrize(
    ("end", "start", "begins", "ends"),
    [
        pytest.param(2, 0, 0, 2, id="the leader's log ends before ours"),
        pytest.param(90, 50, 50, 50, id="it begins after ours ends"),
        pytest.param(90, 1, 0, 3, id="it was a passing state: nothing is thrown away"),
        pytest.param(3, 3, 0, 3, id="it begins where ours ends"),
    ],
)
def test_out_of_range_is_settled_by_the_leaders_bounds(
    end: int, start: int, begins: int, ends: int
) -> None:
    leader = out_of_range(offsets_response(end), offsets_response(start))

    async def story(follower: Follower) -> None:
        partition = follower.partition(written=[(EPOCH, 1)] * 3)
        follower.fetchers.follow([partition])
        await until(lambda: len(leader.fetches) == 2, "not fetched again")
        times = [r.topics[0].partitions[0].timestamp for r in leader.requests(ListOffsetsRequest)]
        assert times == [-1, -2]
        assert (partition.log.log_start_offset, partition.log.log_end_offset) == (begins, ends)
        assert leader.fetches[-1] == {T0: ends}

    follow(leader, story)


def test_bounds_that_the_leader_does_not_tell_are_asked_again_and_nothing_is_cut() -> None:
    unknown = offsets_response(-1, ErrorCode.UNKNOWN_LEADER_EPOCH)
    leader = out_of_range(unknown, unknown).will(
        ListOffsetsRequest, offsets_response(2), offsets_response(0)
    )

    async def story(follower: Follower) -> None:
        partition = follower.partition(written=[(EPOCH, 1)] * 3)
        follower.fetchers.follow([partition])
        await until(lambda: len(leader.requests(ListOffsetsRequest)) == 2, "not asked")
        assert partition.log.log_end_offset == 3
        await until(lambda: len(leader.fetches) == 2, "not fetched again")
        assert partition.log.log_end_offset == 2

    follow(leader, story)


# ---- a log's turn that comes late


@contextlib.asynccontextmanager
async def asked_without_a_turn(follower: Follower, partition: Partition) -> AsyncIterator[None]:
    """The partition's leader has responded about its epochs, and a flush has the log's turn."""
    async with follower.fetchers.work.turn(partition.log):
        follower.fetchers.follow([partition])
        await until(lambda: len(follower.leader.epochs_asked) == 1, "not asked")
        await pass_time(1)
        yield


def test_a_log_is_not_truncated_for_an_earlier_leader_when_its_turn_comes_late() -> None:
    """A flush has the log's turn, and meanwhile the controller names another epoch."""
    leader = Leader().will(
        OffsetForLeaderEpochRequest, epochs_response((0, 5, 1)), epochs_response((0, 5, 2))
    )

    async def story(follower: Follower) -> None:
        partition = follower.partition(written=[(5, 1), (5, 1)])
        async with asked_without_a_turn(follower, partition):
            partition.take_state(state_from_controller(epoch=EPOCH + 1), NOW_MS)
            follower.fetchers.stop([T0])
            follower.fetchers.follow([partition])
        await until(lambda: leader.fetches, "no fetch")
        assert (partition.log.log_end_offset, leader.fetches) == (2, [{T0: 2}])

    follow(leader, story)


def test_a_log_that_leads_when_its_turn_comes_is_not_truncated() -> None:
    leader = Leader().will(OffsetForLeaderEpochRequest, epochs_response((0, 5, 1)))

    async def story(follower: Follower) -> None:
        partition = follower.partition(written=[(5, 1), (5, 1)])
        async with asked_without_a_turn(follower, partition):
            partition.take_state(state_from_controller(leader=0, epoch=EPOCH + 1), NOW_MS)
            follower.fetchers.stop([T0])
        await pass_time(1)
        assert (partition.log.log_end_offset, partition.is_leader) == (2, True)

    follow(leader, story)
