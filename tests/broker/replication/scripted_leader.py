"""A leader that answers by a script, and a broker that follows it in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import attrs

from broker.replication.leader_fetcher import FetcherConfig
from broker.replication.partition import Partition
from broker.replication.replica_fetchers import ReplicaFetchers
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
)
from protocol.messages.leader_and_isr import LeaderAndIsrRequestPartitionState
from protocol.messages.list_offsets import (
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
from tests.broker.small_cluster import in_virtual_time

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
            return self._waiting.result() if done else fetch_response(session=request.session_id)
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
        made.take_state(state_from_controller(), NOW_MS)
        return made


def state_from_controller(leader: int = 1, epoch: int = EPOCH) -> LeaderAndIsrRequestPartitionState:
    return LeaderAndIsrRequestPartitionState(
        partition_index=0,
        controller_epoch=1,
        leader=leader,
        leader_epoch=epoch,
        isr=(0, 1),
        partition_epoch=0,
        replicas=(0, 1),
    )


def leader_batch(base_offset: int, *values: bytes, epoch: int = EPOCH) -> bytes:
    """A batch as the leader's log has it."""
    data = bytearray(batch(*values))
    data[0:8] = base_offset.to_bytes(8, "big")
    data[12:16] = epoch.to_bytes(4, "big")
    return bytes(data)


def fetch_response(
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


def epochs_response(
    *answers: tuple[int, int, int] | tuple[int, ErrorCode],
) -> OffsetForLeaderEpochResponse:
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


def offsets_response(offset: int, error: ErrorCode = NONE) -> ListOffsetsResponse:
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
