"""Positions and commits: which are committed, when they are repeated, and when they are not."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import pytest

from clients.errors import NoBrokersAvailable
from clients.high_level.delivery import COMMIT_PATIENCE_S, StreamDelivery
from clients.high_level.streams import Chunk, MessageStream, PartitionFeed
from clients.serializers import bytes_decoder
from offsets.store import CommitFailed, OffsetFetchFailed, Offsets
from protocol.errors import ErrorCode
from protocol.records.batch import Record
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.clock import run_in_virtual_time

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Store:
    """A store that records commits; it fails as the next of `failures` says, None being success."""

    def __init__(self) -> None:
        self.commits: list[dict[TopicPartition, int]] = []
        self.failures: list[Exception | None] = []
        self.answer: Offsets | Exception = {}
        self.latency_s = 0.0

    async def fetch(self, group: str, partitions: Iterable[TopicPartition]) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def commit(self, group: str, offsets: Offsets) -> None:
        await asyncio.sleep(self.latency_s)
        self.commits.append({p: offset.offset for p, offset in offsets.items()})
        if self.failures and (failure := self.failures.pop(0)):
            raise failure


class Scene:
    def __init__(self) -> None:
        self.store = Store()
        self.fetching: list[PartitionFeed] = []
        self.streams = [MessageStream(bytes_decoder, bytes_decoder) for _ in range(2)]
        self.delivery = StreamDelivery(
            "g", "g_a", self.store, self.fetching.extend, commit_retries=3, commit_backoff_ms=1000
        )
        self.delivery.streams = self.streams
        self.delivery.stream_of = lambda partition, thread: self.streams[int(thread)]

    async def consume(self, partition: TopicPartition, start: int, end: int) -> None:
        """Let an application take [start, end) and ask for more."""
        feed = next(f for f in self.fetching if f.partition == partition and f.live)
        records = [Record(offset, 0, None, None, ()) for offset in range(start, end + 1)]
        feed.stream.put(Chunk(feed, start, end + 1, records))
        for _ in records:
            await anext(feed.stream)


def play(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_in_virtual_time(scene())


def retriable(*partitions: TopicPartition) -> CommitFailed:
    return CommitFailed(dict.fromkeys(partitions, ErrorCode.NOT_COORDINATOR))


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


def test_commit_behind_a_loss_fails_once_for_what_was_consumed_and_says_why() -> None:
    async def scene() -> None:
        work = Scene()
        work.delivery.explain_loss = lambda: "its session has ended"
        work.delivery.start({P0: ("0", 5), P1: ("1", 5)})
        await work.consume(P0, 5, 8)
        work.delivery.abandon()

        # Of the other partition nothing was consumed.
        why = "g_a does not own them: its session has ended"
        with pytest.raises(CommitFailed, match=why) as failure:
            await work.delivery.commit_offsets()
        assert failure.value.errors == {P0: ErrorCode.ILLEGAL_GENERATION}
        await work.delivery.commit_offsets()
        assert work.store.commits == []

    play(scene)


async def take_nothing(work: Scene) -> None:
    pass


async def take_some(work: Scene) -> None:
    position = work.delivery.positions()[P0].offset
    await work.consume(P0, position, position + 3)


async def lose_place(work: Scene) -> None:
    work.fetching[-1].lose_place(500)
    work.fetching[-1].reset(100)


async def come_to_the_reset(work: Scene) -> None:
    await lose_place(work)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(anext(work.fetching[-1].stream), 1)


async def commit(work: Scene) -> None:
    await work.delivery.commit_offsets()


async def seek(work: Scene) -> None:
    work.delivery.seek(P0, 40)


async def move(work: Scene) -> None:
    work.delivery.move({P0: "1"})


Step = Callable[[Scene], Coroutine[Any, Any, None]]


@pytest.mark.parametrize(
    ("steps", "is_error"),
    [
        ([take_nothing], False),
        ([take_some], True),
        ([take_some, commit], False),
        ([lose_place], False),
        ([lose_place, move], False),
        ([come_to_the_reset], False),
        ([lose_place, take_some], True),
        ([lose_place, take_some, commit], False),
        ([lose_place, take_some, move], True),
        ([take_some, lose_place], True),
        ([take_some, come_to_the_reset], True),
        ([take_some, lose_place, commit], False),
        ([take_some, commit, lose_place], False),
        ([seek], False),
        ([seek, take_some], True),
        ([take_some, seek], True),
        ([take_some, move], True),
    ],
    ids=lambda value: ", ".join(s.__name__ for s in value) if isinstance(value, list) else "",
)
def test_a_loss_is_an_error_only_where_messages_were_consumed_and_not_committed(
    steps: list[Step], is_error: bool
) -> None:
    async def scene() -> None:
        work = Scene()
        work.delivery.start({P0: ("0", 500)})
        for step in steps:
            await step(work)
        work.delivery.abandon()
        expected = pytest.raises(CommitFailed) if is_error else contextlib.nullcontext()
        with expected:
            await work.delivery.commit_offsets()

    play(scene)


def test_what_was_lost_and_is_ours_again_is_consumed_again_and_no_error() -> None:
    async def scene() -> None:
        work = Scene()
        work.delivery.start({P0: ("0", 5)})
        await work.consume(P0, 5, 8)
        work.delivery.abandon()
        work.delivery.start({P0: ("0", 5)})
        await work.delivery.commit_offsets()
        assert work.store.commits == [{P0: 5}]

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


def test_a_negative_offset_is_refused_and_leaves_everything_as_it_was() -> None:
    async def scene() -> None:
        work = Scene()
        work.delivery.start({P0: ("0", 5), P1: ("1", 6)})
        wanted = {P0: OffsetAndMetadata(9), P1: OffsetAndMetadata(-1)}
        with pytest.raises(ValueError, match="t-1: offset -1"):
            await work.delivery.commit_offsets(wanted)
        assert work.store.commits == []

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


@pytest.mark.parametrize("failures", [0, 1, 9])
def test_what_is_not_owned_is_an_error_however_often_the_rest_is_tried(failures: int) -> None:
    async def scene() -> None:
        work = Scene()
        work.store.failures = [retriable(P0)] * failures
        work.delivery.start({P0: ("0", 5)})
        wanted = {P0: OffsetAndMetadata(6), P1: OffsetAndMetadata(7)}
        with pytest.raises(CommitFailed) as failure:
            await work.delivery.commit_offsets(wanted)
        assert failure.value.errors[P1] is ErrorCode.ILLEGAL_GENERATION
        # The rest is tried four times, and no more.
        assert (P0 in failure.value.errors) == (failures == 9)
        assert work.store.commits == [{P0: 6}] * min(1 + failures, 4)

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


def test_a_commit_is_tried_again_for_the_partitions_that_failed() -> None:
    async def scene() -> None:
        work = Scene()
        work.store.failures = [retriable(P0), None]
        work.delivery.start({P0: ("0", 5), P1: ("1", 6)})
        await work.delivery.commit_offsets()
        assert work.store.commits == [{P0: 5, P1: 6}, {P0: 5}]
        assert asyncio.get_running_loop().time() == 1.0

    play(scene)


def test_a_commit_that_keeps_failing_is_given_up_after_its_retries() -> None:
    async def scene() -> None:
        work = Scene()
        work.store.failures = [retriable(P0) for _ in range(9)]
        work.delivery.start({P0: ("0", 5)})
        with pytest.raises(CommitFailed, match="NOT_COORDINATOR"):
            await work.delivery.commit_offsets()
        assert len(work.store.commits) == 4

    play(scene)


def test_a_commit_that_cannot_help_is_not_tried_again() -> None:
    async def scene() -> None:
        work = Scene()
        work.store.failures = [CommitFailed({P0: ErrorCode.OFFSET_METADATA_TOO_LARGE})]
        work.delivery.start({P0: ("0", 0)})
        with pytest.raises(CommitFailed):
            await work.delivery.commit_offsets({P0: OffsetAndMetadata(1, "x" * 9999)})
        assert len(work.store.commits) == 1

    play(scene)


def test_a_partition_that_left_between_attempts_is_not_committed_again() -> None:
    async def scene() -> None:
        work = Scene()
        work.store.failures = [retriable(P0, P1)]
        work.delivery.start({P0: ("0", 5), P1: ("1", 6)})
        commit = asyncio.ensure_future(work.delivery.commit_offsets())
        await asyncio.sleep(0.5)
        work.delivery.stop({P0})
        await work.delivery.forget({P0})
        await commit
        assert work.store.commits[1:] == [{P1: 6}]

    play(scene)


def test_a_rebalance_goes_on_without_a_commit_that_fails() -> None:
    async def scene() -> None:
        work = Scene()
        work.store.failures = [NoBrokersAvailable("none") for _ in range(9)]
        work.delivery.start({P0: ("0", 5)})
        work.delivery.stop({P0})
        await work.delivery.commit({P0})
        assert len(work.store.commits) == 2

    play(scene)


def test_a_rebalance_does_not_wait_for_a_commit_that_hangs() -> None:
    async def scene() -> None:
        work = Scene()
        work.store.latency_s = 3600.0
        work.delivery.start({P0: ("0", 5)})
        work.delivery.stop({P0})
        await work.delivery.commit({P0})
        await work.delivery.forget({P0})
        assert asyncio.get_running_loop().time() == 4.0

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
