"""A broker's replicas without the broker: logs in memory, led as told, no ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import Any

import attrs

from broker.deferred import Deferred
from broker.dispatch import RequestContext
from broker.metadata_cache import MetadataCache
from broker.purgatory import Purgatory
from broker.replica_manager import ReplicaManager
from core_log.config import LogConfig
from core_log.log_manager import LogManager
from core_log.memory_directory import MemoryDirectory
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

NOW_MS = 1_400_000_000_000


class AtOnce(Executor):
    """Does everything in the caller's thread, before `submit` returns."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


@attrs.define(eq=False)
class Replicas:
    """Broker 0 of brokers 0 and 1, and everything handlers are given."""

    directory: MemoryDirectory = attrs.field(factory=lambda: MemoryDirectory("logs"))
    cache: MetadataCache = attrs.field(factory=MetadataCache)
    purgatory: Purgatory = attrs.field(factory=Purgatory)
    config: LogConfig = attrs.field(factory=LogConfig)
    manager: ReplicaManager = attrs.field(init=False)
    deferred: Deferred = attrs.field(init=False)
    flushes: list[Any] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        logs = LogManager([self.directory], self.config, lambda: NOW_MS)
        logs.load()
        self.manager = ReplicaManager(
            0,
            logs,
            lambda topic: self.config,
            self.purgatory.touch,
            self.flushes.append,
            checkpointed=logs.read_high_watermarks(),
        )
        self.deferred = Deferred(asyncio.ensure_future, self.purgatory.touch, AtOnce())

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
        """Have the controller tell this broker about a topic."""
        answer = self.manager.become_leader_or_follower(
            leader_and_isr(topic, partitions, leader, isr, replicas, epoch)
        )
        assert not any(error.error_code for error in answer.partition_errors)
        self.cache.update(update_metadata(topic, partitions, leader, isr, replicas, epoch))
        return self


def leader_and_isr(
    topic: str,
    partitions: int = 1,
    leader: int = 0,
    isr: tuple[int, ...] = (0,),
    replicas: tuple[int, ...] = (0,),
    epoch: int = 0,
    controller_epoch: int = 1,
) -> LeaderAndIsrRequest:
    states = [
        LeaderAndIsrRequestPartitionState(
            partition_index=index,
            controller_epoch=controller_epoch,
            leader=leader,
            leader_epoch=epoch,
            isr=isr,
            partition_epoch=0,
            replicas=replicas,
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
    """`live` maps broker ids to ports."""
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
    return RequestContext(api_version, client_id, "PLAINTEXT", "127.0.0.1:1", NOW_MS)


def batch(*values: bytes, key: bytes | None = None, timestamp_ms: int = 1) -> bytes:
    """A batch of records with these values."""
    return encode_batch([(timestamp_ms, key, value, ()) for value in values])
