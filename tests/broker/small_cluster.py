"""Brokers without sockets: replica managers on disks in memory that fetch from each other.

Their fetchers, the handlers those ask, the ISR writer and ZooKeeper's twin are the real ones. The
controller is the test itself: `elect` writes the partition's state and tells every live broker.
Time is virtual, a disk outlives its broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any, TypeVar

import attrs

from broker.cluster.metadata_cache import MetadataCache
from broker.handlers import delete_records, fetch, list_offsets, offset_for_leader_epoch, produce
from broker.network.purgatory import Purgatory, Wait
from broker.network.request_context import RequestContext
from broker.process.signals import Signals
from broker.replication.fetch_sessions import FetchSessions
from broker.replication.flusher import Flusher
from broker.replication.isr_writer import IsrWriter
from broker.replication.leader_fetcher import FetcherConfig
from broker.replication.partition import Partition
from broker.replication.partition_waits import PartitionWaits
from broker.replication.replica_fetchers import ReplicaFetchers
from broker.replication.replica_manager import ReplicaManager
from broker.replication.replication_quota import ReplicationQuota
from clients.errors import ConnectionFailed
from core_log.config import LogConfig
from core_log.log_manager import LogManager
from core_log.log_work import LogWork
from core_log.memory_directory import MemoryDirectory
from protocol.errors import ErrorCode
from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from protocol.records.batch import decode_records
from protocol.records.batch_header import read_header
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import (
    NOW_MS,
    AtOnce,
    batch,
    leader_and_isr,
    roles_of,
    update_metadata,
)
from tests.stage.clock import run_in_virtual_time
from tests.stage.waiting import until
from zk.memory import MemoryZooKeeper
from zk.znodes import PartitionState

T0 = TopicPartition("t", 0)
LAG_MS = 10_000
VERSIONS = {FetchRequest: 11, ListOffsetsRequest: 5, OffsetForLeaderEpochRequest: 3}

R = TypeVar("R")


def in_virtual_time(story: Callable[[], Coroutine[Any, Any, R]]) -> R:
    return run_in_virtual_time(story())


async def pass_time(seconds: float) -> None:
    """Let virtual time pass, for what must not happen in it."""
    await asyncio.sleep(seconds)


@attrs.define(eq=False)
class Broker:
    """A broker from its start to its end; `disk` is there before and after."""

    cluster: SmallCluster
    id: int
    disk: MemoryDirectory
    tasks: list[asyncio.Task[None]] = attrs.field(factory=list)
    purgatory: Purgatory = attrs.field(factory=Purgatory)
    cache: MetadataCache = attrs.field(factory=MetadataCache)
    manager: ReplicaManager = attrs.field(init=False)
    handlers: dict[type, Callable[[Any, RequestContext], Any]] = attrs.field(init=False)
    asked: list[Any] = attrs.field(factory=list)

    async def start(self) -> None:
        cluster = self.cluster
        session = cluster.zookeeper.session()
        await session.start()
        logs = LogManager([self.disk], cluster.config, cluster.now_ms)
        logs.load()
        signals = Signals()
        writer = IsrWriter(
            session, self.spawn, cluster.now_ms, signals.isr_written, signals.isr_superseded
        )
        work = LogWork(AtOnce())
        flusher = Flusher(work, self.spawn, cluster.now_ms, signals.flushed)
        quota = ReplicationQuota(self.id, cluster.now_ms)
        fetchers = ReplicaFetchers(
            self.id,
            cluster.fetcher_config,
            self._connect,
            self.spawn,
            cluster.now_ms,
            quota,
            work,
            signals.replicated,
        )
        sessions = FetchSessions(10, count(1).__next__)
        manager = self.manager = ReplicaManager(
            self.id,
            logs,
            lambda topic: cluster.config,
            PartitionWaits(self.purgatory, sessions),
            flusher.start,
            fetchers,
            writer.write,
            cluster.now_ms,
            LAG_MS,
            checkpointed=logs.read_high_watermarks(),
        )
        manager.subscribe(signals)
        cache, nothing = self.cache, Any
        deferred: Any = nothing  # of versions that nobody speaks here
        self.handlers = {
            FetchRequest: lambda request, context: fetch.handle(
                manager, cache, sessions, 1 << 30, deferred, quota, request, context
            ),
            ListOffsetsRequest: lambda *asked: list_offsets.handle(
                manager, cache, deferred, LAG_MS, *asked
            ),
            OffsetForLeaderEpochRequest: lambda *asked: offset_for_leader_epoch.handle(
                manager, cache, *asked
            ),
            ProduceRequest: lambda *asked: produce.handle(manager, cache, deferred, *asked),
            DeleteRecordsRequest: lambda *asked: delete_records.handle(manager, cache, *asked),
        }

    def spawn(self, work: Coroutine[Any, Any, None]) -> object:
        self.tasks.append(asyncio.ensure_future(work))
        return self.tasks[-1]

    @property
    def partition(self) -> Partition:
        return self.manager.partition(T0)

    @property
    def values(self) -> list[bytes]:
        """All records of its log, in order."""
        return [value for value, _ in self.records]

    @property
    def records(self) -> list[tuple[bytes, int]]:
        """(value, leader epoch) of each."""
        found = []
        for segment in self.partition.log.segments:
            data = segment.log.read(0, segment.size)
            position = 0
            while position < len(data):
                header = read_header(data, position)
                one = data[position : position + header.size]
                found += [
                    (record.value or b"", header.partition_leader_epoch)
                    for record in decode_records(one)
                ]
                position += header.size
        return found

    @property
    def epochs(self) -> list[tuple[int, int]]:
        return self.partition.log.leader_epochs.entries

    @property
    def log_end(self) -> int:
        return self.partition.log.log_end_offset

    @property
    def watermark(self) -> int:
        return self.partition.high_watermark

    async def ask(self, request: Any, version: int = 7) -> Any:
        """What it answers, sooner or later."""
        context = RequestContext(
            VERSIONS.get(type(request), version),
            "",
            "PLAINTEXT",
            "1:1",
            self.cluster.now_ms(),
            monotonic_ms=self.cluster.now_ms(),
        )
        self.asked.append(request)
        answer = self.handlers[type(request)](request, context)
        if isinstance(answer, Wait):
            later: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

            def done(found: Any) -> None:
                if not later.done():  # who asked may be gone
                    later.set_result(found)

            self.purgatory.park(answer, done)
            answer = await later
        return _sent(answer) if isinstance(answer, FetchResponse) else answer

    async def produce(self, *values: bytes, acks: int = 1, timeout_ms: int = 1000) -> ErrorCode:
        """Send one batch."""
        answer = await self.ask(
            ProduceRequest(
                transactional_id=None,
                acks=acks,
                timeout_ms=timeout_ms,
                topic_data=[
                    ProduceRequestTopic(
                        name="t",
                        partition_data=[ProduceRequestPartition(index=0, records=batch(*values))],
                    )
                ],
            )
        )
        return ErrorCode.of(answer.responses[0].partition_responses[0].error_code)

    def checkpoint(self) -> None:
        """Write high watermarks, as it is done every few seconds."""
        self.manager.logs.checkpoint_high_watermarks(self.manager.high_watermarks())

    async def _connect(self, leader: int) -> Connection:
        return await Connection(self.cluster, self.id, leader).open()


@attrs.define(eq=False)
class Connection:
    """Between two brokers, for as long as both live and nothing stands between them."""

    cluster: SmallCluster
    asking: int
    asked: int
    closed: bool = False
    _call: asyncio.Task[Any] | None = None

    async def open(self) -> Connection:
        await asyncio.sleep(0.001)
        if self.cluster.is_cut(self.asking, self.asked):
            raise ConnectionFailed(f"broker {self.asked}", 0, "not there")
        self.cluster.connections.append(self)
        return self

    async def call(self, request: Any) -> Any:
        if self.closed:
            raise ConnectionFailed(f"broker {self.asked}", 0, "closed")
        await asyncio.sleep(0.001)
        if self.closed:
            raise ConnectionFailed(f"broker {self.asked}", 0, "closed")
        self._call = asyncio.ensure_future(self.cluster.brokers[self.asked].ask(request))
        await asyncio.wait({self._call})
        if self.closed or self._call.cancelled():
            raise ConnectionFailed(f"broker {self.asked}", 0, "closed")
        return self._call.result()

    def abort(self, reason: str) -> None:
        self.closed = True
        if self._call is not None:
            self._call.cancel()


@attrs.define(eq=False)
class SmallCluster:
    """Brokers 0, 1 … of which each has a replica of partition t-0."""

    size: int = 2
    config: LogConfig = attrs.field(factory=LogConfig)
    fetcher_config: FetcherConfig = attrs.field(factory=FetcherConfig)
    zookeeper: MemoryZooKeeper = attrs.field(factory=MemoryZooKeeper)
    brokers: dict[int, Broker] = attrs.field(factory=dict)
    disks: list[MemoryDirectory] = attrs.field(init=False)
    connections: list[Connection] = attrs.field(factory=list)
    cut: set[int] = attrs.field(factory=set)
    loop: asyncio.AbstractEventLoop = attrs.field(factory=asyncio.get_running_loop)
    epoch: int = -1

    def __attrs_post_init__(self) -> None:
        self.disks = [MemoryDirectory(f"disk{number}") for number in range(self.size)]

    def __getitem__(self, broker: int) -> Broker:
        return self.brokers[broker]

    def now_ms(self) -> int:
        return NOW_MS + round(self.loop.time() * 1000)

    async def start(self, leader: int = 0) -> SmallCluster:
        """All brokers, and a leader with all of them in sync."""
        admin = self.zookeeper.session()
        await admin.start()
        await admin.ensure_path("/isr_change_notification")
        await admin.ensure_path(PartitionState.path(*T0))
        for number in range(self.size):
            await self.start_broker(number)
        await self.elect(leader, tuple(range(self.size)), is_new=True)
        return self

    async def start_broker(self, number: int) -> Broker:
        """Start, and hear nothing before the next election."""
        broker = self.brokers[number] = Broker(self, number, self.disks[number])
        await broker.start()
        return broker

    def kill(self, number: int) -> None:
        """A process ends where it is: what it wrote stays written."""
        broker = self.brokers.pop(number)
        broker.disk.disk.locked.clear()
        for task in broker.tasks:
            task.cancel()
        self._hang_up(number)

    def lose_power(self, number: int) -> None:
        """What was not flushed is gone too."""
        self.kill(number)
        self.disks[number].lose_power()

    def part(self, number: int) -> None:
        """Cut a broker off from the others."""
        self.cut.add(number)
        self._hang_up(number)

    def is_cut(self, *numbers: int) -> bool:
        return any(each in self.cut or each not in self.brokers for each in numbers)

    def _hang_up(self, number: int) -> None:
        for each in self.connections:
            if number in (each.asking, each.asked):
                each.abort("hung up")
        self.connections = [each for each in self.connections if not each.closed]

    @property
    def state(self) -> PartitionState:
        """What the state node has."""
        return PartitionState.decode(self.zookeeper.tree[PartitionState.path(*T0)].data)

    async def elect(
        self,
        leader: int,
        isr: tuple[int, ...] | None = None,
        *,
        is_new: bool = False,
        tell: tuple[int, ...] | None = None,
    ) -> None:
        """Have `leader` lead a new epoch, and tell those who live (or `tell`)."""
        self.epoch += 1
        isr = self.state.isr if isr is None else isr
        admin = self.zookeeper.session()
        await admin.start()
        state = PartitionState(leader, self.epoch, isr, 1)
        stat = await admin.set(PartitionState.path(*T0), state.encode())
        replicas = tuple(range(self.size))
        for number, broker in sorted(self.brokers.items()):
            if tell is not None and number not in tell:
                continue
            live = dict.fromkeys(self.brokers, 9092)
            broker.cache.update(
                update_metadata("t", 1, leader, isr, replicas, self.epoch, live=live)
            )
            request = leader_and_isr(
                "t", 1, leader, isr, replicas, self.epoch, is_new=is_new, zk_version=stat.version
            )
            roles_of(broker.manager).become_leader_or_follower(request, self.now_ms())

    async def in_step(self) -> None:
        """Wait until every live replica has all that the leader has, and knows it committed."""
        leader = self.brokers[self.state.leader]
        await until(
            lambda: all(
                (each.log_end, each.watermark) == (leader.log_end, leader.log_end)
                for each in self.brokers.values()
            ),
            "the replicas do not come into step",
        )


def _sent(response: Any) -> Any:
    """With the bytes in it, as they arrive."""
    return attrs.evolve(
        response,
        responses=[
            attrs.evolve(topic, partitions=[_part_sent(part) for part in topic.partitions])
            for topic in response.responses
        ],
    )


def _part_sent(part: Any) -> Any:
    records = part.records
    return attrs.evolve(part, records=records if isinstance(records, bytes) else records.read())
