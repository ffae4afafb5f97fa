"""Positions and commits: which are committed, when they are repeated, and when they are not."""

import asyncio
from typing import Any

import pytest

from clients.errors import NoBrokersAvailable
from clients.high_level.delivery import COMMIT_PATIENCE_S
from clients.high_level.streams import Chunk
from offsets.store_errors import CommitFailed, OffsetFetchFailed
from protocol.records.batch import Record
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.clients.high_level.deliveries import P0, P1, Scene, play
from tests.stage.clock import VirtualTimeLoop


def test_positions_that_are_known_are_committed_and_no_others() -> None:
    async def scene() -> None:
        work = Scene()
        work.delivery.start({P0: ("0", 5), P1: ("1", None)})
        await work.delivery.commit_offsets()
        assert work.store.commits == [{P0: 5}]

    play(scene)


def test_what_has_been_consumed_is_committed() -> None:
    async def scene() -> None:
        work = Scene()
        work.delivery.start({P0: ("0", 5)})
        await work.consume(P0, 5, 8)
        await work.delivery.commit_offsets()
        assert work.store.commits == [{P0: 8}]

    play(scene)


@pytest.mark.fault("strangers-45")
def test_the_epoch_of_the_last_record_is_committed_with_its_place() -> None:
    async def scene() -> None:
        work = Scene()
        work.store.answer = {P0: OffsetAndMetadata(5, "", 2), P1: OffsetAndMetadata(6)}
        await work.delivery.fetch_offsets({P0, P1})
        work.delivery.start({P0: ("0", 5), P1: ("1", 6)})
        await work.delivery.commit_offsets()

        feed = work.delivery.feed_of(P0)
        feed.epochs.note([(5, 2), (7, 4)])
        await work.consume(P0, 5, 8)
        feed.fetch_offset = 9
        await work.delivery.commit_offsets()

        # So it is with the application's own offsets, of what has been read.
        for offset in (OffsetAndMetadata(7), OffsetAndMetadata(8, "", 3), OffsetAndMetadata(99)):
            await work.delivery.commit_offsets({P0: offset})
        assert [of[P0] for of in work.store.epochs] == [2, 4, 2, 3, -1]
        assert work.store.epochs[0][P1] == -1

    play(scene)


@pytest.mark.fault("strangers-45")
def test_a_partition_that_moves_or_is_sought_keeps_the_epoch_before_its_place() -> None:
    async def scene() -> None:
        work = Scene()
        work.store.answer = {P0: OffsetAndMetadata(5, "", 2)}
        await work.delivery.fetch_offsets({P0})
        work.delivery.start({P0: ("0", 5)})
        work.delivery.move({P0: "1"})
        assert work.delivery.feed_of(P0).epochs.before(5) == 2
        work.delivery.seek(P0, 4, 1)
        assert work.delivery.feed_of(P0).epochs.before(4) == 1
        work.delivery.seek(P0, 4)
        assert work.delivery.feed_of(P0).epochs.before(4) == -1

    play(scene)


def test_a_stopped_partition_can_be_committed_until_it_is_forgotten() -> None:
    async def scene() -> None:
        work = Scene()
        work.delivery.start({P0: ("0", 5), P1: ("1", 6)})
        work.delivery.stop({P0})
        await work.delivery.commit({P0})
        await work.delivery.forget({P0})
        await work.delivery.commit_offsets()
        assert work.store.commits == [{P0: 5}, {P1: 6}]

    play(scene)


def test_forgetting_waits_for_a_commit_that_is_on_its_way() -> None:
    async def scene() -> None:
        work = Scene()
        work.store.latency_s = 3.0
        work.delivery.start({P0: ("0", 5)})
        commit = asyncio.ensure_future(work.delivery.commit_offsets())
        await asyncio.sleep(1)
        await work.delivery.forget({P0})
        assert asyncio.get_running_loop().time() == 3.0
        await commit

    play(scene)


def test_a_partition_that_moves_keeps_its_position_on_its_new_stream() -> None:
    async def scene() -> None:
        work = Scene()
        work.delivery.start({P0: ("0", 5)})
        await work.consume(P0, 5, 8)
        work.delivery.move({P0: "1"})
        former, feed = work.fetching
        assert not former.live
        assert feed.stream is work.streams[1]
        assert (feed.position, feed.fetch_offset) == (8, 8)

    play(scene)


def test_what_is_abandoned_is_never_committed() -> None:
    async def scene() -> None:
        work = Scene()
        work.delivery.start({P0: ("0", 5)})
        work.delivery.abandon()
        await work.delivery.commit_offsets()
        assert work.store.commits == []
        assert not work.fetching[0].live

    play(scene)


def test_during_a_pause_nothing_is_committed() -> None:
    async def scene() -> None:
        work = Scene()
        work.delivery.start({P0: ("0", 5)})
        work.delivery.pause()
        with pytest.raises(CommitFailed, match="unreachable"):
            await work.delivery.commit_offsets()
        assert work.store.commits == []
        work.delivery.resume()
        await work.delivery.commit_offsets()
        assert work.store.commits == [{P0: 5}]

    play(scene)


@pytest.mark.parametrize("trouble", ["pause", "abandon"])
def test_a_commit_that_still_looks_for_its_coordinator_is_not_sent_when_ownership_is_in_doubt(
    trouble: str,
) -> None:
    async def scene() -> None:
        work = Scene()
        work.store.latency_s = 60.0
        work.delivery.start({P0: ("0", 5)})
        committing = asyncio.ensure_future(work.delivery.commit_offsets(retries=0))
        await asyncio.sleep(1)
        getattr(work.delivery, trouble)()
        with pytest.raises(CommitFailed, match="interrupted"):
            await committing
        assert asyncio.get_running_loop().time() == 1
        await asyncio.sleep(120)
        assert work.store.commits == []

    play(scene)


def test_a_commit_that_waits_for_its_coordinator_holds_up_a_release_no_longer_than_patience() -> (
    None
):
    async def scene() -> None:
        work = Scene()
        work.store.latency_s = 60.0
        work.delivery.start({P0: ("0", 5), P1: ("1", 6)})
        by_the_clock = asyncio.ensure_future(work.delivery.commit_offsets(retries=0))
        await asyncio.sleep(1)
        await work.delivery.commit({P0})
        await work.delivery.forget({P0})
        assert asyncio.get_running_loop().time() == 1 + COMMIT_PATIENCE_S
        with pytest.raises(CommitFailed, match="interrupted"):
            await by_the_clock

    play(scene)


def test_a_commit_that_was_answered_while_the_process_stood_still_has_not_taken_too_long(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        work = Scene()
        work.store.latency_s = COMMIT_PATIENCE_S - 1
        work.delivery.start({P0: ("0", 5)})
        commit = asyncio.ensure_future(work.delivery.commit({P0}))
        await asyncio.sleep(1)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.work(60)
        await commit
        assert caplog.messages == []

    play(scene)


def test_a_process_that_was_stopped_commits_nothing_before_its_timers_ring() -> None:
    async def scene() -> None:
        work = Scene()
        entitled = [False]
        work.delivery.entitled = lambda: entitled[0]
        work.delivery.start({P0: ("0", 5)})
        with pytest.raises(CommitFailed, match="unreachable"):
            await work.delivery.commit_offsets(None, retries=0)
        entitled[0] = True
        await work.delivery.commit_offsets()
        assert work.store.commits == [{P0: 5}]

    play(scene)


def test_what_is_not_owned_is_not_committed_though_asked_for_by_name() -> None:
    async def scene() -> None:
        work = Scene()
        work.delivery.start({P0: ("0", 5)})
        wanted = {P0: OffsetAndMetadata(6), P1: OffsetAndMetadata(7)}
        with pytest.raises(CommitFailed, match="g_a does not own them") as failure:
            await work.delivery.commit_offsets(wanted)
        assert failure.value.errors.keys() == {P1}
        assert work.store.commits == [{P0: 6}]

    play(scene)


def test_a_commit_that_waits_for_another_leaves_out_what_is_given_up_meanwhile() -> None:
    async def scene() -> None:
        work = Scene()
        work.store.latency_s = 1.0
        work.delivery.start({P0: ("0", 5), P1: ("1", 6)})
        first = asyncio.ensure_future(work.delivery.commit_offsets())
        await asyncio.sleep(0.5)
        work.delivery.stop({P0})
        forgetting = asyncio.ensure_future(work.delivery.forget({P0}))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(work.delivery.commit_offsets())
        await asyncio.gather(first, forgetting, second)
        assert work.store.commits == [{P0: 5, P1: 6}, {P1: 6}]

    play(scene)


def test_the_clock_does_not_take_back_what_the_application_committed() -> None:
    async def scene() -> None:
        work = Scene()
        work.delivery.start({P0: ("0", 5)})
        await work.delivery.commit_offsets({P0: OffsetAndMetadata(9)})
        await work.delivery.commit_offsets()
        work.delivery.move({P0: "1"})
        await work.delivery.commit_offsets()
        await work.consume(P0, 5, 9)
        await work.delivery.commit_offsets()
        await work.delivery.commit_offsets({P0: OffsetAndMetadata(2)})
        await work.delivery.commit_offsets()
        assert work.store.commits == [{P0: 9}, {P0: 9}, {P0: 2}, {P0: 9}]

    play(scene)


def test_a_reset_may_take_a_group_back() -> None:
    async def scene() -> None:
        work = Scene()
        work.delivery.start({P0: ("0", 500)})
        (feed,) = work.fetching
        feed.lose_place(500)
        feed.reset(100)
        feed.stream.put(Chunk(feed, 100, 101, [Record(100, 0, None, None, ())]))
        await anext(feed.stream)
        await work.delivery.commit_offsets()
        assert work.store.commits == [{P0: 100}]

    play(scene)


def test_a_reset_that_its_stream_has_not_come_to_is_committed_when_the_partition_leaves() -> None:
    async def scene() -> None:
        work = Scene()
        work.delivery.start({P0: ("0", 0), P1: ("0", None)})
        busy_with, grown = work.fetching
        records = [Record(offset, 0, None, None, ()) for offset in range(1000)]
        busy_with.stream.put(Chunk(busy_with, 0, 1000, records))
        await anext(busy_with.stream)
        grown.reset(100)
        grown.stream.put(Chunk(grown, 100, 101, [Record(100, 0, None, None, ())]))
        await work.delivery.commit_offsets()
        work.delivery.stop({P1})
        await work.delivery.commit({P1})
        assert work.store.commits == [{P0: 0, P1: 100}, {P1: 100}]

    play(scene)


def test_a_reset_that_its_stream_has_not_come_to_moves_with_the_partition() -> None:
    async def scene() -> None:
        work = Scene()
        work.delivery.start({P0: ("0", 0), P1: ("0", None)})
        busy_with, grown = work.fetching
        busy_with.stream.put(Chunk(busy_with, 0, 1, [Record(0, 0, None, None, ())]))
        grown.reset(100)
        work.delivery.move({P1: "1"})
        assert (work.fetching[-1].position, work.fetching[-1].fetch_offset) == (100, 100)

    play(scene)


def test_what_the_application_commits_of_before_a_reset_does_not_hide_what_comes_after() -> None:
    async def scene() -> None:
        work = Scene()
        work.delivery.start({P0: ("0", 500)})
        (feed,) = work.fetching
        feed.stream.put(Chunk(feed, 500, 501, [Record(500, 0, None, None, ())]))
        feed.lose_place(501)
        feed.reset(100)
        await anext(feed.stream)
        await work.delivery.commit_offsets({P0: OffsetAndMetadata(501)})
        feed.stream.put(Chunk(feed, 100, 101, [Record(100, 0, None, None, ())]))
        await anext(feed.stream)
        await work.delivery.commit_offsets()
        assert work.store.commits == [{P0: 501}, {P0: 100}]

    play(scene)


def test_a_commit_under_way_when_a_reset_leads_back_does_not_hold_the_group_there() -> None:
    """The log was truncated to 60 while 100 was being committed; the group continues at 60."""

    async def scene() -> None:
        work = Scene()
        work.delivery.start({P0: ("0", 95)})
        await work.consume(P0, 95, 100)
        work.store.latency_s = 3.0
        commit = asyncio.ensure_future(work.delivery.commit_offsets())
        await asyncio.sleep(1)
        (feed,) = work.delivery.owned
        feed.lose_place(101)
        feed.reset(60)
        await commit
        await work.delivery.commit_offsets()
        assert work.store.commits == [{P0: 100}, {P0: 60}]

    play(scene)


def test_what_was_committed_before_a_reply_was_lost_counts_as_not_committed() -> None:
    async def scene() -> None:
        work = Scene()
        work.store.failures = [NoBrokersAvailable("none")]
        work.delivery.start({P0: ("0", 5)})
        with pytest.raises(CommitFailed):
            await work.delivery.commit_offsets({P0: OffsetAndMetadata(9)}, retries=0)
        await work.delivery.commit_offsets()
        assert work.store.commits == [{P0: 9}, {P0: 5}]

    play(scene)


def test_offsets_are_fetched_with_none_for_no_commit() -> None:
    async def scene() -> None:
        work = Scene()
        work.store.answer = {P0: OffsetAndMetadata(9)}
        assert await work.delivery.fetch_offsets({P0, P1}) == ({P0: 9, P1: None}, {})

    play(scene)


def test_an_offset_in_doubt_is_a_failure_of_its_partition() -> None:
    async def scene() -> None:
        work = Scene()
        work.store.answer = OffsetFetchFailed({P1: "loading"}, {P0: OffsetAndMetadata(9)})
        assert await work.delivery.fetch_offsets({P0, P1}) == ({P0: 9}, {P1: "loading"})
        work.store.answer = NoBrokersAvailable("none")
        assert await work.delivery.fetch_offsets({P0}) == ({}, {P0: "none"})

    play(scene)


def test_a_listener_may_be_plain_functions_or_coroutines() -> None:
    class Plain:
        last_call: Any = None

        def before_releasing_partitions(self, partition_ownership: Any) -> None:
            self.last_call = partition_ownership

        def before_starting_fetchers(self, consumer_id: str, assignment: Any) -> None:
            self.last_call = (consumer_id, assignment)

    class Awaited(Plain):
        async def before_releasing_partitions(  # type: ignore[override]
            self, partition_ownership: Any
        ) -> None:
            self.last_call = partition_ownership

    async def scene() -> None:
        for listener in (Plain(), Awaited()):
            work = Scene()
            work.delivery.listener = listener  # type: ignore[assignment]
            await work.delivery.before_releasing({P0, P1})
            assert listener.last_call == {"t": {0, 1}}
            await work.delivery.before_starting({P0: "g_a-0"})
            assert listener.last_call == ("g_a", {P0: "g_a-0"})

    play(scene)


def test_each_partition_that_is_assigned_is_revoked_or_lost_once() -> None:
    class Changes:
        def __init__(self) -> None:
            self.calls: list[tuple[str, set[TopicPartition]]] = []

        def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
            self.calls.append(("assigned", partitions))

        def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
            self.calls.append(("revoked", partitions))

        def on_partitions_lost(self, partitions: set[TopicPartition]) -> None:
            self.calls.append(("lost", partitions))

    async def scene() -> None:
        work, changes = Scene(), Changes()
        work.delivery.listener = changes  # type: ignore[assignment]
        both = frozenset({P0, P1})
        # What was never assigned cannot go, and nothing is assigned or goes twice.
        await work.delivery.notify_lost(both)
        await work.delivery.notify_assigned(frozenset({P0}))
        await work.delivery.notify_assigned(both)
        await work.delivery.notify_revoked(frozenset({P1}))
        await work.delivery.notify_lost(both)
        await work.delivery.notify_revoked(both)
        assert changes.calls == [
            ("assigned", {P0}),
            ("assigned", {P1}),
            ("revoked", {P1}),
            ("lost", {P0}),
        ]

    play(scene)
