"""The replicas of a broker without the broker: logs in memory, no ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from itertools import count
from typing import Any

import attrs

from broker.cluster.metadata_cache import MetadataCache
from broker.network.deferred import Deferred
from broker.network.purgatory import Purgatory, Wait
from broker.network.request_context import RequestContext
from broker.replication.control_work import ControlWork
from broker.replication.fetch_sessions import FetchSessions
from broker.replication.partition import IsrProposal, Partition
from broker.replication.partition_waits import PartitionWaits
from broker.replication.replica_manager import ReplicaManager
from broker.replication.replica_roles import ReplicaRoles
from broker.replication.replication_quota import ReplicationQuota
from broker.replication.topic_identities import TopicIdentities
from core_log.config import LogConfig
from core_log.log import AppendLater
from core_log.log_manager import LogManager
from core_log.log_work import LogWork
from core_log.memory_directory import MemoryDirectory
from kgroup.testing.threads import as_in_thread
from protocol.messages.fetch import FetchRequestPartition
from protocol.messages.leader_and_isr import (
    LeaderAndIsrRequest,
    LeaderAndIsrRequestPartitionState,
    LeaderAndIsrRequestTopicState,
)
from protocol.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataRequestEndpoint,
    UpdateMetadataRequestLiveBroker,
    UpdateMetadataRequestPartitionState,
    UpdateMetadataRequestTopicState,
)
from protocol.records.batch import encode_batch
from protocol.topic_identity import TopicIdentity
from protocol.topic_partition import TopicPartition
from tests.stage import turn_guard
from zk.api import ZkError

NOW_MS = 1_400_000_000_000


class AtOnce(Executor):
    """An executor that does its work in the caller's thread before `submit` returns."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            with turn_guard.uncounted():
                done.set_result(as_in_thread(partial(fn, *args, **kwargs)))
        except Exception as error:
            done.set_exception(error)
        return done


@attrs.define(eq=False)
class Fetchers:
    """The twin of the fetchers: it notes which partitions are fetched, and from which leader."""

    following: dict[TopicPartition, int] = attrs.field(factory=dict)
    flushes: list[TopicPartition] = attrs.field(factory=list)
    starts: list[TopicPartition] = attrs.field(factory=list)

    def follow(self, partitions: Iterable[Partition]) -> None:
        self.following.update((p.topic_partition, p.leader) for p in partitions)

    def stop(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self.following.pop(tp, None)

    def note_start_moved(self, partition: Partition) -> None:
        self.starts.append(partition.topic_partition)

    def failures(self) -> dict[TopicPartition, str]:
        return {}

    def note_flush(self, partition: Partition) -> None:
        self.flushes.append(partition.topic_partition)


@attrs.define(eq=False)
class Replicas:
    """The replicas of broker 0, and everything that handlers use. Broker 1 is the other one."""

    directory: MemoryDirectory = attrs.field(factory=lambda: MemoryDirectory("logs"))
    others: tuple[MemoryDirectory, ...] = ()
    cache: MetadataCache = attrs.field(factory=MetadataCache)
    purgatory: Purgatory = attrs.field(factory=Purgatory)
    config: LogConfig = attrs.field(factory=LogConfig)
    manager: ReplicaManager = attrs.field(init=False)
    roles: ReplicaRoles = attrs.field(init=False)
    deferred: Deferred = attrs.field(init=False)
    flushes: list[Any] = attrs.field(factory=list)
    fetchers: Fetchers = attrs.field(factory=lambda: Fetchers())
    sessions: FetchSessions = attrs.field(factory=lambda: FetchSessions(10, count(1).__next__))
    proposals: list[IsrProposal] = attrs.field(factory=list)
    monotonic_ms: Callable[[], int] = lambda: NOW_MS
    identities: dict[str, TopicIdentity] = attrs.field(factory=dict)
    """The topics in ZooKeeper."""
    reads: list[list[str]] = attrs.field(factory=list)
    is_zookeeper_silent: bool = False
    """The topics that were read, by request."""
    leader_quota: ReplicationQuota = attrs.field(
        factory=lambda: ReplicationQuota(0, lambda: NOW_MS)
    )

    def __attrs_post_init__(self) -> None:
        logs = LogManager([self.directory, *self.others], self.config, self.monotonic_ms)
        logs.load()
        self.manager = ReplicaManager(
            0,
            logs,
            lambda topic: self.config,
            PartitionWaits(self.purgatory, self.sessions),
            self.flushes.append,
            self.fetchers,
            self.proposals.append,
            self.monotonic_ms,
            checkpointed=logs.read_high_watermarks(),
        )
        self.roles = ReplicaRoles(
            self.manager, TopicIdentities(self._read_identities, 1000), lambda: NOW_MS
        )
        self.deferred = Deferred(asyncio.ensure_future, self.purgatory.touch, AtOnce())

    async def _read_identities(self, topics: Sequence[str]) -> Mapping[str, TopicIdentity]:
        self.reads.append(list(topics))
        if self.is_zookeeper_silent:
            raise ZkError("no answer")
        return {topic: self.identities[topic] for topic in topics if topic in self.identities}

    def lead(
        self,
        topic: str,
        partitions: int = 1,
        *,
        leader: int = 0,
        isr: tuple[int, ...] = (0,),
        replicas: tuple[int, ...] = (0,),
        epoch: int = 0,
    ) -> Replicas:
        """Obey a LeaderAndIsr and an UpdateMetadata for a topic."""
        is_new = self.manager.logs.get(TopicPartition(topic, 0)) is None
        answer = self.roles.become_leader_or_follower(
            leader_and_isr(topic, partitions, leader, isr, replicas, epoch, is_new=is_new), NOW_MS
        )
        assert not any(error.error_code for error in answer.partition_errors)
        self.cache.update(update_metadata(topic, partitions, leader, isr, replicas, epoch))
        self.check()
        return self

    def check(self) -> None:
        """Check the invariants of all partitions; call it after every step."""
        for partition in self.manager.partitions.values():
            partition.check()

    def write(self, tp: TopicPartition, data: bytes, now_ms: int = NOW_MS) -> None:
        """Append a batch, after a flush if it needs one."""

        def append() -> None:
            self.manager.append(tp, data, all_in_sync=False, zstd_allowed=True, now_ms=now_ms)

        try:
            append()
        except AppendLater:
            self.flush()
            append()
        self.manager.partition(tp).check()

    def flush(self) -> None:
        """Do the flushes that were started, and check their partitions."""
        while self.flushes:
            partition = self.flushes.pop()
            flush = partition.log.begin_flush()
            as_in_thread(flush.run)
            partition.log.end_flush(flush)
            self.manager.note_flush(partition)
            partition.check()

    def control(self, executor: Executor | None = None, timeout_ms: int = 30_000) -> ControlWork:
        """Make what obeys control requests; by default logs are created in the caller's thread."""
        return ControlWork(
            self.roles,
            asyncio.ensure_future,
            self.purgatory.touch,
            LogWork(executor or AtOnce()),
            lambda: NOW_MS,
            timeout_ms,
        )

    async def ended(self, answer: Any) -> Any:
        """Wait as long as a handler's outcome is a Wait; return the response."""
        while isinstance(answer, Wait):
            done: list[Any] = []
            self.purgatory.park(answer, done.append)
            while not done:
                self.flush()
                await asyncio.sleep(0)
            (answer,) = done
        return answer


async def no_identities(topics: Sequence[str]) -> dict[str, TopicIdentity]:
    """Know of no topic in ZooKeeper."""
    return {}


def roles_of(manager: ReplicaManager) -> ReplicaRoles:
    """Make what gives replicas their roles, without a ZooKeeper."""
    return ReplicaRoles(manager, TopicIdentities(no_identities, 0), lambda: NOW_MS)


def leader_and_isr(
    topic: str,
    partitions: int = 1,
    leader: int = 0,
    isr: tuple[int, ...] = (0,),
    replicas: tuple[int, ...] = (0,),
    epoch: int = 0,
    controller_epoch: int = 1,
    is_new: bool = False,
    zk_version: int = 0,
) -> LeaderAndIsrRequest:
    states = [
        LeaderAndIsrRequestPartitionState(
            partition_index=index,
            controller_epoch=controller_epoch,
            leader=leader,
            leader_epoch=epoch,
            isr=isr,
            partition_epoch=zk_version,
            replicas=replicas,
            is_new=is_new,
        )
        for index in range(partitions)
    ]
    return LeaderAndIsrRequest(
        controller_id=0,
        controller_epoch=controller_epoch,
        topic_states=[LeaderAndIsrRequestTopicState(topic_name=topic, partition_states=states)],
        live_leaders=[],
    )


def update_metadata(
    topic: str = "",
    partitions: int = 1,
    leader: int = 0,
    isr: tuple[int, ...] = (0,),
    replicas: tuple[int, ...] = (0,),
    epoch: int = 0,
    controller_epoch: int = 1,
    live: Mapping[int, int] | None = None,
) -> UpdateMetadataRequest:
    """Build a request; `live` maps broker ids to ports."""
    states = [
        UpdateMetadataRequestPartitionState(
            partition_index=index,
            controller_epoch=controller_epoch,
            leader=leader,
            leader_epoch=epoch,
            isr=isr,
            zk_version=0,
            replicas=replicas,
        )
        for index in range(partitions)
    ]
    topics = [UpdateMetadataRequestTopicState(topic_name=topic, partition_states=states)]
    return UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=controller_epoch,
        topic_states=topics if topic else [],
        live_brokers=[
            UpdateMetadataRequestLiveBroker(
                id=broker_id,
                endpoints=[
                    UpdateMetadataRequestEndpoint(
                        port=port, host="h", listener="PLAINTEXT", security_protocol=0
                    )
                ],
            )
            for broker_id, port in (live or {0: 9092, 1: 9093}).items()
        ],
    )


def context(api_version: int = 7, client_id: str = "test") -> RequestContext:
    return RequestContext(
        api_version, client_id, "PLAINTEXT", "127.0.0.1:1", NOW_MS, monotonic_ms=NOW_MS
    )


def batch(*values: bytes, key: bytes | None = None, timestamp_ms: int = 1) -> bytes:
    """Encode a batch of records with these values."""
    return encode_batch([(timestamp_ms, key, value, ()) for value in values])


def follower_at(replicas: Replicas, tp: TopicPartition, offset: int, replica: int = 1) -> None:
    """Fetch from `offset` as a follower."""
    asked = FetchRequestPartition(
        partition=tp.partition, fetch_offset=offset, log_start_offset=0, partition_max_bytes=1
    )
    replicas.manager.follower_progress.note_follower_fetch(replica, [(tp, asked)], NOW_MS)
    replicas.manager.partition(tp).check()
