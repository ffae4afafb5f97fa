"""A leader and a follower without a network between them: fetch rounds are plain calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.handlers import fetch
from broker.network.purgatory import Wait
from broker.replication.following_replica import FollowingReplica
from broker.replication.leader_fetcher import FetcherConfig, LeaderFetcher
from broker.replication.partition import Partition
from broker.replication.replica_fetchers import ReplicaFetchers, _FetchLoop
from broker.replication.replication_quota import ReplicationQuota
from core_log.config import LogConfig
from core_log.log_work import LogWork
from protocol.messages.fetch import FetchResponse
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import NOW_MS, AtOnce, Replicas, batch, context


class FetchingPair:
    """Broker 0, which leads so many partitions, and the fetcher of broker 1.

    The follower's logs are the leader's own, so it has everything that it fetches."""

    def __init__(self, partitions: int) -> None:
        self.replicas = Replicas(config=LogConfig(segment_index_bytes=1000))
        self.replicas.lead("t", partitions, isr=(0, 1), replicas=(0, 1))
        self.now_ms = NOW_MS
        quota = ReplicationQuota(1, lambda: self.now_ms)
        connect: Any = None
        owner = ReplicaFetchers(
            1,
            FetcherConfig(),
            connect,
            lambda work: None,
            lambda: self.now_ms,
            quota,
            LogWork(AtOnce()),
        )
        self.loop = _FetchLoop(owner, LeaderFetcher(1, 0, owner.config, quota))
        self.done: list[FetchResponse] = []
        self.happens: Callable[[], None] = lambda: None
        for tp, led in self.replicas.manager.partitions.items():
            replica = FollowingReplica(Partition(tp, 1, led.log), 0)
            replica.is_truncated = True
            self.loop.add(replica)

    async def call(self, request: Any) -> FetchResponse:
        """Handle the request as the leader; while it waits `happens` is called, or it times out."""
        answer = fetch.handle(
            self.replicas.manager,
            self.replicas.cache,
            self.replicas.sessions,
            1 << 30,
            self.replicas.deferred,
            self.replicas.leader_quota,
            request,
            context(11),
        )
        if isinstance(answer, Wait):
            self.replicas.purgatory.park(answer, self.done.append)
            self.happens()
            if not self.done:
                self.replicas.purgatory.expire_all()
            answer = self.done.pop()
        return answer

    @property
    def closed(self) -> bool:
        return False

    def abort(self, reason: str) -> None:
        raise AssertionError(reason)

    def round(self, happens: Callable[[], None] = lambda: None) -> None:
        """Run one round of the follower; call `happens` while its fetch waits."""
        self.happens = happens
        self.now_ms += 500
        self.loop._connection = self
        work = self.loop._round()
        try:
            while True:
                # A turn of the loop; what waits for more than the next turn yields a future.
                assert work.send(None) is None, "the round waits"
        except StopIteration:
            return

    def append(self, number: int) -> None:
        """Append a record to a partition."""
        self.replicas.write(TopicPartition("t", number), batch(b"v"), self.now_ms)
