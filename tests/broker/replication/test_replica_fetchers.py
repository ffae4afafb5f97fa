"""What a follower asks its leader, and what it makes of the answers: the leader is a script."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from itertools import pairwise
from typing import Any

import attrs
import pytest

from broker.replication.partition import Partition
from broker.replication.replica_fetchers import FetcherConfig, ReplicaFetchers
from broker.replication.replication_quota import ReplicationQuota
from clients.errors import ConnectionFailed
from core_log.config import LogConfig
from core_log.log_manager import LogManager
from core_log.log_work import LogWork
from core_log.memory_directory import MemoryDirectory
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
    partition_error,
)
from protocol.messages.leader_and_isr import LeaderAndIsrRequestPartitionState
from protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponsePartition,
    OffsetForLeaderEpochResponseTopic,
)
from protocol.records.batch_header import read_header
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import NOW_MS, AtOnce, batch
from tests.broker.small_cluster import in_virtual_time, pass_time
from tests.stage.waiting import until

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
EPOCH = 7
NONE = ErrorCode.NONE


@attrs.define(eq=False)
class Leader:
    """Broker 1: gives the answers it has been told to, in order. An answer may be a function of
    the request, or an exception. A Fetch beyond the last waits its time for nothing."""

    script: dict[type, list[Any]] = attrs.field(factory=dict)
    asked: list[Any] = attrs.field(factory=list)
    connections: list[Connection] = attrs.field(factory=list)
    refused: int = 0  # connections, at first
    is_silent: bool = False

    async def connect(self, leader: int) -> Connection:
        assert leader == 1
        await asyncio.sleep(0.001)
        if self.refused:
            self.refused -= 1
            raise ConnectionFailed("leader", 1, "refused")
        self.connections.append(Connection(self))
        return self.connections[-1]

    def will(self, kind: type, *answers: Any) -> Leader:
        self.script.setdefault(kind, []).extend(answers)
        return self

    def requests(self, kind: type) -> list[Any]:
        return [each for each in self.asked if isinstance(each, kind)]

    @property
    def fetches(self) -> list[dict[TopicPartition, int]]:
        """Of each Fetch the partitions it names, and from where."""
        return [
            {
                TopicPartition(topic.topic, p.partition): p.fetch_offset
                for topic in each.topics
                for p in topic.partitions
            }
            for each in self.requests(FetchRequest)
        ]

    @property
    def epochs_asked(self) -> list[dict[TopicPartition, int]]:
        """Of each OffsetForLeaderEpoch the partitions and their epochs."""
        return [
            {
                TopicPartition(topic.topic, p.partition): p.leader_epoch
                for topic in each.topics
                for p in topic.partitions
            }
            for each in self.requests(OffsetForLeaderEpochRequest)
        ]


@attrs.define(eq=False)
class Connection:
    leader: Leader
    closed: bool = False
    _waiting: asyncio.Future[Any] | None = None

    async def call(self, request: Any) -> Any:
        if self.closed:
            raise ConnectionFailed("leader", 1, "closed")
        self.leader.asked.append(request)
        await asyncio.sleep(0.001)
        answers = self.leader.script.get(type(request), [])
        if not answers:
            self._waiting = asyncio.get_running_loop().create_future()
            longest = 30 if self.leader.is_silent else 0.5
            done, _ = await asyncio.wait({self._waiting}, timeout=longest)
            return self._waiting.result() if done else fetched(session=request.session_id)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if callable(answer) else answer

    def abort(self, reason: str) -> None:
        self.closed = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionFailed("leader", 1, reason))
            self._waiting.exception()  # seen, as a connection sees to it


@attrs.define(eq=False)
class Follower:
    """Broker 0, which follows broker 1 in all its partitions."""

    leader: Leader
    settings: FetcherConfig = attrs.field(factory=FetcherConfig)
    config: LogConfig = attrs.field(factory=LogConfig)
    logs: LogManager = attrs.field(init=False)
    disk: MemoryDirectory = attrs.field(factory=MemoryDirectory)
    tasks: list[asyncio.Task[None]] = attrs.field(factory=list)
    grown: list[TopicPartition] = attrs.field(factory=list)
    fetchers: ReplicaFetchers = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.logs = LogManager([self.disk], self.config, lambda: NOW_MS)
        self.logs.load()
        self.fetchers = ReplicaFetchers(
            0,
            self.settings,
            self.leader.connect,
            self.spawn,
            lambda: NOW_MS,
            ReplicationQuota(0, lambda: NOW_MS),
            LogWork(AtOnce()),
            lambda partition: self.grown.append(partition.topic_partition),
        )

    def spawn(self, work: Coroutine[Any, Any, None]) -> object:
        self.tasks.append(asyncio.ensure_future(work))
        return self.tasks[-1]

    def partition(
        self, tp: TopicPartition = T0, written: Sequence[tuple[int, int]] = (), watermark: int = 0
    ) -> Partition:
        """One whose log has, per (epoch, number), so many records."""
        made = Partition(tp, 0, self.logs.get_or_create(tp, self.config), watermark)
        for epoch, number in written:
            data = batch(*[b"own"] * number)
            header = read_header(data)
            made.log.append(
                data, header, leader_epoch=epoch, now_ms=NOW_MS, max_timestamp=header.max_timestamp
            )
        made.take_state(told(), NOW_MS)
        return made


def told(leader: int = 1, epoch: int = EPOCH) -> LeaderAndIsrRequestPartitionState:
    return LeaderAndIsrRequestPartitionState(
        partition_index=0,
        controller_epoch=1,
        leader=leader,
        leader_epoch=epoch,
        isr=(0, 1),
        partition_epoch=0,
        replicas=(0, 1),
    )


def sent(base_offset: int, *values: bytes, epoch: int = EPOCH) -> bytes:
    """A batch as the leader's log has it."""
    data = bytearray(batch(*values))
    data[0:8] = base_offset.to_bytes(8, "big")
    data[12:16] = epoch.to_bytes(4, "big")
    return bytes(data)


def fetched(
    *parts: FetchResponsePartition, session: int = 0, error: ErrorCode = NONE
) -> FetchResponse:
    topics = [FetchResponseTopic(topic="t", partitions=parts)] if parts else []
    return FetchResponse(error_code=error, session_id=session, responses=topics)


def part(
    records: bytes, high_watermark: int = 0, *, index: int = 0, log_start: int = 0
) -> FetchResponsePartition:
    return FetchResponsePartition(
        partition_index=index,
        error_code=NONE,
        high_watermark=high_watermark,
        last_stable_offset=high_watermark,
        log_start_offset=log_start,
        records=records,
    )


def ended(*answers: tuple[int, int, int] | tuple[int, ErrorCode]) -> OffsetForLeaderEpochResponse:
    """(partition, epoch, end offset), or (partition, error)."""
    parts = [
        OffsetForLeaderEpochResponsePartition(
            error_code=NONE, partition=each[0], leader_epoch=each[1], end_offset=each[2]
        )
        if len(each) == 3
        else OffsetForLeaderEpochResponsePartition(error_code=each[1], partition=each[0])
        for each in answers
    ]
    topic = OffsetForLeaderEpochResponseTopic(topic="t", partitions=parts)
    return OffsetForLeaderEpochResponse(topics=[topic])


def at(offset: int, error: ErrorCode = NONE) -> ListOffsetsResponse:
    found = ListOffsetsResponsePartition(partition_index=0, error_code=error, offset=offset)
    return ListOffsetsResponse(topics=[ListOffsetsResponseTopic(name="t", partitions=[found])])


def follow(
    leader: Leader, story: Callable[[Follower], Coroutine[Any, Any, None]], **made: Any
) -> None:
    """Run the story of a follower of this leader."""

    async def run() -> None:
        follower = Follower(leader, **made)
        try:
            await story(follower)
        finally:
            for task in follower.tasks:
                task.cancel()

    in_virtual_time(run)


# ---- truncation


def test_it_asks_where_its_last_epoch_ended_and_fetches_only_then() -> None:
    leader = Leader().will(OffsetForLeaderEpochRequest, ended((0, 2, 3)))

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
    leader = Leader().will(OffsetForLeaderEpochRequest, ended((0, 4, 9)), ended((0, 3, 1)))

    async def story(follower: Follower) -> None:
        partition = follower.partition(written=[(3, 1), (3, 1), (5, 2)])
        follower.fetchers.follow([partition])
        await until(lambda: leader.fetches, "no fetch")
        assert leader.epochs_asked == [{T0: 5}, {T0: 3}]
        assert leader.fetches == [{T0: 1}]

    follow(leader, story)


def test_an_epoch_that_is_known_to_both_is_asked_about_once_for_many_fetches() -> None:
    leader = Leader().will(OffsetForLeaderEpochRequest, ended((0, 5, 4)))
    leader.will(FetchRequest, *[fetched(part(b""))] * 3)

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
    leader = Leader().will(OffsetForLeaderEpochRequest, ended((0, -1, -1)))

    async def story(follower: Follower) -> None:
        follower.fetchers.follow([follower.partition(written=[(0, 1), (0, 1)], watermark=1)])
        await until(lambda: leader.fetches, "no fetch")
        assert leader.fetches == [{T0: 1}]

    follow(leader, story)


def test_while_the_leader_gives_errors_nothing_is_cut_and_it_is_asked_again() -> None:
    errors = [ended((0, ErrorCode.NOT_LEADER_OR_FOLLOWER))] * 3
    leader = Leader().will(OffsetForLeaderEpochRequest, *errors, ended((0, 5, 1)))

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
            kept.take_state(told(leader=0, epoch=EPOCH + 1), NOW_MS)
            follower.fetchers.stop([T0])
            return ended((0, 5, 1), (1, 5, 1))

        leader.will(OffsetForLeaderEpochRequest, meanwhile)
        follower.fetchers.follow([kept, cut])
        await until(lambda: leader.fetches, "no fetch")
        assert (kept.log.log_end_offset, cut.log.log_end_offset) == (2, 1)
        assert leader.fetches == [{T1: 1}]

    follow(leader, story)


def test_of_several_partitions_each_is_cut_by_its_own_answer() -> None:
    leader = Leader().will(OffsetForLeaderEpochRequest, ended((0, 5, 1), (1, 5, 2)))

    async def story(follower: Follower) -> None:
        written = [(5, 1)] * 3
        follower.fetchers.follow([follower.partition(tp, written) for tp in (T0, T1)])
        await until(lambda: leader.fetches, "no fetch")
        assert leader.epochs_asked == [{T0: 5, T1: 5}]
        assert leader.fetches == [{T0: 1, T1: 2}]

    follow(leader, story)


# ---- what is taken, and what is not


def test_what_is_fetched_is_appended_and_the_watermark_follows() -> None:
    leader = Leader().will(
        FetchRequest,
        fetched(part(sent(0, b"a", b"b"), high_watermark=1)),
        fetched(part(sent(2, b"c"), high_watermark=9, log_start=1)),
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
            partition.take_state(told(epoch=EPOCH + 1), NOW_MS)
            follower.fetchers.stop([T0])
            follower.fetchers.follow([partition])
            return fetched(part(sent(0, b"old")))

        leader.will(FetchRequest, meanwhile)
        follower.fetchers.follow([partition])
        await until(lambda: len(leader.fetches) == 2, "not fetched again")
        assert partition.log.log_end_offset == 0
        last = leader.requests(FetchRequest)[-1].topics[0].partitions[0]
        assert last.current_leader_epoch == EPOCH + 1

    follow(leader, story)


def test_an_answer_is_dropped_when_the_log_ends_elsewhere_now() -> None:
    leader = Leader()

    async def story(follower: Follower) -> None:
        partition = follower.partition(written=[(EPOCH, 1), (EPOCH, 1)])

        def meanwhile(request: FetchRequest) -> FetchResponse:
            partition.log.truncate_to(1)
            partition.note_truncation()
            return fetched(part(sent(2, b"behind a gap"), 3))

        leader.will(OffsetForLeaderEpochRequest, ended((0, EPOCH, 2)))
        leader.will(FetchRequest, meanwhile)
        follower.fetchers.follow([partition])
        await until(lambda: len(leader.fetches) == 2, "not fetched again")
        assert leader.fetches == [{T0: 2}, {T0: 1}]
        assert (partition.log.log_end_offset, partition.high_watermark) == (1, 0)

    follow(leader, story)


def test_a_leader_that_knows_a_later_epoch_is_asked_seldom_until_the_controller_speaks() -> None:
    fenced = fetched(partition_error(0, ErrorCode.FENCED_LEADER_EPOCH))
    leader = Leader().will(FetchRequest, *[fenced] * 60)

    async def story(follower: Follower) -> None:
        partition = follower.partition()
        follower.fetchers.follow([partition])
        await pass_time(59.5)
        assert 2 <= len(leader.asked) <= 60
        assert follower.fetchers.troubled() == {T0: "FENCED_LEADER_EPOCH"}
        partition.take_state(told(epoch=EPOCH + 1), NOW_MS)
        follower.fetchers.stop([T0])
        follower.fetchers.follow([partition])
        asked = len(leader.asked)
        await until(lambda: len(leader.asked) == asked + 1, "not fetched again")
        assert follower.fetchers.troubled() == {}

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
        return fetched(*(parts[index] for index in sorted(asked)))

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
    corrupt = bytearray(sent(0, b"a"))
    corrupt[-1] ^= 1
    good = fetched(part(sent(0, b"a")), part(sent(0, b"b"), index=1))
    leader = Leader().will(
        FetchRequest, fetched(part(bytes(corrupt)), part(sent(0, b"b"), index=1))
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
        .will(OffsetForLeaderEpochRequest, ended((0, EPOCH, 2)))
        .will(FetchRequest, fetched(part(sent(1, b"x"))))
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
            return fetched(part(sent(0, b"b"), index=1))

        leader.will(FetchRequest, fetched(part(sent(0, b"a" * 9000))), when_there_is_room)
        first, second = follower.partition(T0), follower.partition(T1)
        follower.disk.disk.free_bytes = 8000
        follower.fetchers.follow([first, second])
        await until(lambda: len(leader.fetches) == 3, "too few fetches")
        assert leader.fetches == [{T0: 0, T1: 0}, {T1: 0}, {T1: 1}]
        assert first.log.failure is not None
        assert (first.is_failed, second.is_failed) == (True, False)  # what the controller is told
        assert list(follower.fetchers.troubled()) == [T0]

    follow(leader, story)


def test_a_log_that_takes_writes_again_is_fetched_again() -> None:
    leader = Leader().will(FetchRequest, fetched(part(sent(0, b"a"))))

    async def story(follower: Follower) -> None:
        partition = follower.partition()
        partition.log.guard.fail("no room")
        follower.fetchers.follow([partition])
        await pass_time(60)
        assert (leader.asked, follower.fetchers.troubled()) == ([], {T0: "no room"})
        partition.log.guard.failure = None
        await until(lambda: partition.log.log_end_offset == 1, "not fetched again")
        assert follower.fetchers.troubled() == {}

    follow(leader, story)


def test_a_batch_from_before_segment_bytes_was_lowered_is_appended() -> None:
    leader = Leader().will(FetchRequest, fetched(part(sent(0, b"v" * 500), 1)))

    async def story(follower: Follower) -> None:
        partition = follower.partition()
        follower.fetchers.follow([partition])
        await until(lambda: partition.log.log_end_offset == 1, "not appended")
        assert follower.fetchers.troubled() == {}

    follow(leader, story, config=LogConfig(segment_bytes=100))


def test_damage_where_the_log_is_to_be_cut_goes_too_and_is_fetched_again() -> None:
    leader = Leader().will(OffsetForLeaderEpochRequest, ended((0, 2, 3)))
    leader.will(FetchRequest, fetched(part(sent(1, b"b", epoch=2) + sent(2, b"c", epoch=2), 3)))

    async def story(follower: Follower) -> None:
        partition = follower.partition(written=[(2, 1)] * 4)
        active = partition.log.segments.active
        active.log.write(active.size // 4 + 8, (1).to_bytes(4, "big"))  # a size that cannot be
        follower.fetchers.follow([partition])
        await until(lambda: partition.log.log_end_offset == 3, "not fetched again")
        assert leader.fetches[0] == {T0: 1}
        assert partition.log.failure is None

    follow(leader, story)


def test_what_nobody_expects_of_one_partition_delays_that_one_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    no_bytes: Any = 5
    leader = Leader()

    def answer(request: FetchRequest) -> FetchResponse:
        asked = [p.partition for topic in request.topics for p in topic.partitions]
        parts = {0: part(no_bytes), 1: part(b"", index=1), 2: part(b"", index=2)}
        return fetched(*(parts[index] for index in asked))

    leader.will(FetchRequest, *[answer] * 100)

    async def story(follower: Follower) -> None:
        follower.fetchers.follow([follower.partition(tp) for tp in (T0, T1, T2)])
        await until(lambda: len(leader.fetches) >= 100, "too few fetches")
        assert sum(T0 in asked for asked in leader.fetches) < 10
        assert all(asked.keys() >= {T1, T2} for asked in leader.fetches)
        assert len(leader.connections) == 1
        assert list(follower.fetchers.troubled()) == [T0]

    follow(leader, story)
    assert [record.exc_info is not None for record in caplog.records] == [True]  # told once


def test_an_unexpected_epoch_end_delays_its_partition_alone() -> None:
    leader = Leader().will(OffsetForLeaderEpochRequest, ended((0, 5, -7), (1, 5, 1)))

    async def story(follower: Follower) -> None:
        odd = follower.partition(T0, written=[(5, 1)] * 2)
        even = follower.partition(T1, written=[(5, 1)] * 2)
        follower.fetchers.follow([odd, even])
        await until(lambda: leader.fetches, "no fetch")
        assert (odd.log.log_end_offset, even.log.log_end_offset) == (2, 1)
        assert leader.fetches[0] == {T1: 1}

    follow(leader, story)


def test_what_brought_records_is_asked_for_last_the_next_time() -> None:
    leader = Leader().will(FetchRequest, fetched(part(sent(0, b"a"))))

    async def story(follower: Follower) -> None:
        follower.fetchers.follow([follower.partition(tp) for tp in (T0, T1, T2)])
        await until(lambda: len(leader.fetches) == 2, "too few fetches")
        assert [list(each) for each in leader.fetches] == [[T0, T1, T2], [T1, T2, T0]]

    follow(leader, story)


# ---- out of range


def out_of_range(ends: ListOffsetsResponse, starts: ListOffsetsResponse) -> Leader:
    return (
        Leader()
        .will(OffsetForLeaderEpochRequest, ended((0, EPOCH, 3)))
        .will(FetchRequest, fetched(partition_error(0, ErrorCode.OFFSET_OUT_OF_RANGE)))
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
    leader = out_of_range(at(end), at(start))

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
    unknown = at(-1, ErrorCode.UNKNOWN_LEADER_EPOCH)
    leader = out_of_range(unknown, unknown).will(ListOffsetsRequest, at(2), at(0))

    async def story(follower: Follower) -> None:
        partition = follower.partition(written=[(EPOCH, 1)] * 3)
        follower.fetchers.follow([partition])
        await until(lambda: len(leader.requests(ListOffsetsRequest)) == 2, "not asked")
        assert partition.log.log_end_offset == 3
        await until(lambda: len(leader.fetches) == 2, "not fetched again")
        assert partition.log.log_end_offset == 2

    follow(leader, story)


# ---- the connection


def test_a_new_partition_is_added_to_the_session_and_the_fetch_under_way_goes_on() -> None:
    leader = Leader().will(FetchRequest, fetched(part(b""), session=9))

    async def story(follower: Follower) -> None:
        first, second = follower.partition(T0), follower.partition(T1)
        follower.fetchers.follow([first])
        await until(lambda: len(leader.fetches) == 2, "no fetch that waits")
        leader.will(FetchRequest, fetched(part(sent(0, b"b"), index=1), session=9))
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
        partition.take_state(told(epoch=EPOCH + 1), NOW_MS)
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
            partition.take_state(told(epoch=EPOCH + 1), NOW_MS)
            follower.fetchers.stop([T0])
            follower.fetchers.follow([partition])
            return fetched(part(sent(0, b"old")), session=9)

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
            return fetched()

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


# ---- flush.messages


def test_the_leader_is_not_told_of_what_is_not_on_disk() -> None:
    leader = Leader().will(FetchRequest, fetched(part(sent(0, b"a"))))

    async def story(follower: Follower) -> None:
        partition = follower.partition()
        follower.fetchers.follow([partition])
        await until(lambda: follower.grown, "nothing fetched")
        await pass_time(10)
        assert leader.fetches == [{T0: 0}]
        flush = partition.log.begin_flush()
        flush.run()
        partition.log.end_flush(flush)
        follower.fetchers.flushed(partition)
        await until(lambda: len(leader.fetches) == 2, "not fetched again")
        assert leader.fetches[-1] == {T0: 1}

    follow(leader, story, config=LogConfig(flush_messages=1))


def test_a_partition_whose_flush_never_ends_holds_up_no_other() -> None:
    refused = partition_error(1, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    leader = Leader().will(FetchRequest, fetched(part(sent(0, b"a")), refused))

    async def story(follower: Follower) -> None:
        follower.fetchers.follow([follower.partition(T0), follower.partition(T1)])
        await until(lambda: len(leader.fetches) == 2, "the other is not fetched again")
        assert leader.fetches[-1] == {T1: 0}

    follow(leader, story, config=LogConfig(flush_messages=1))


# ---- sessions


def test_in_a_session_only_what_changed_is_named() -> None:
    leader = Leader().will(
        FetchRequest,
        fetched(part(b""), part(b"", index=1), session=5),
        fetched(part(sent(0, b"a")), session=5),
        fetched(session=5),
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
    leader = Leader().will(FetchRequest, fetched(part(b""), session=5), fetched(error=error))

    async def story(follower: Follower) -> None:
        follower.fetchers.follow([follower.partition()])
        await until(lambda: len(leader.fetches) == 3, "too few fetches")
        assert leader.fetches == [{T0: 0}, {}, {T0: 0}]
        assert leader.requests(FetchRequest)[-1].session_epoch == 0

    follow(leader, story)


def test_a_session_ends_with_its_connection() -> None:
    leader = Leader().will(
        FetchRequest, fetched(part(b""), session=5), ConnectionFailed("leader", 1, "reset")
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
        fetched(part(b""), part(b"", index=1), session=5),
        fetched(partition_error(0, ErrorCode.UNKNOWN_LEADER_EPOCH), session=5),
        *[fetched(session=5)] * 100,
    )

    async def story(follower: Follower) -> None:
        follower.fetchers.follow([follower.partition(T0), follower.partition(T1)])
        await until(lambda: {T0: 0} in leader.fetches, "not named again")
        forgotten = leader.requests(FetchRequest)[2].forgotten_topics_data
        assert [(each.topic, list(each.partitions)) for each in forgotten] == [("t", [0])]

    follow(leader, story)
