"""The offsets log and its twin in memory: the same tests for both."""

from collections.abc import Callable
from typing import Protocol

import pytest

from broker.coordinators.replicated_log import ReplicatedLog
from broker.network.purgatory import Purgatory
from broker.replication.fetch_sessions import FetchSessions
from broker.replication.partition import Partition
from broker.replication.partition_waits import PartitionWaits
from broker.replication.replica_manager import ReplicaManager
from core_log.config import LogConfig
from core_log.log_manager import LogManager
from core_log.memory_directory import MemoryDirectory
from groups.runtime.memory_partition_log import MemoryPartitionLog
from groups.runtime.partition_log import PartitionLog
from offsets.topic import offsets_partition
from protocol.errors import ApiError, ErrorCode
from protocol.internal_topics import OFFSETS_TOPIC
from protocol.messages.leader_and_isr import (
    LeaderAndIsrRequest,
    LeaderAndIsrRequestPartitionState,
    LeaderAndIsrRequestTopicState,
)
from protocol.records.batch import decode_records, encode_batch
from tests.broker.replication.replicas import Fetchers, roles_of

NOW_MS = 1_700_000_000_000

LOCAL, FOLLOWER = 1, 2
PARTITION = 3
BATCH_BYTES = 10_000


class Cluster(Protocol):
    """An offsets log whose followers the test controls."""

    log: PartitionLog

    def replicate(self) -> None:
        """Replicate everything that is appended so far."""


class MemoryCluster:
    """The twin."""

    def __init__(self, replicas: int) -> None:
        self.log = MemoryPartitionLog(replicas, BATCH_BYTES)

    def replicate(self) -> None:
        self.log.replicate(PARTITION)


class BrokerCluster:
    """Real replicas, their logs in memory."""

    def __init__(self, replicas: int, config: LogConfig | None = None) -> None:
        config = config or LogConfig(max_message_bytes=BATCH_BYTES)
        logs = LogManager([MemoryDirectory()], config, lambda: NOW_MS)
        logs.load()
        self.flushes: list[Partition] = []
        self.replicas = ReplicaManager(
            LOCAL,
            logs,
            lambda topic: config,
            PartitionWaits(Purgatory(), FetchSessions(1, lambda: 1)),
            self.flushes.append,
            Fetchers(),
            lambda change: None,
            lambda: NOW_MS,
        )
        self.log = ReplicatedLog(self.replicas, OFFSETS_TOPIC)
        self.epoch = -1
        self.lead([LOCAL] if replicas == 1 else [LOCAL, FOLLOWER])

    def lead(self, isr: list[int], leader: int = LOCAL) -> None:
        self.epoch += 1
        state = LeaderAndIsrRequestPartitionState(
            partition_index=PARTITION,
            controller_epoch=1,
            leader=leader,
            leader_epoch=self.epoch,
            isr=isr,
            partition_epoch=0,
            replicas=[LOCAL, FOLLOWER],
            is_new=not self.epoch,
        )
        topic = LeaderAndIsrRequestTopicState(topic_name=OFFSETS_TOPIC, partition_states=[state])
        request = LeaderAndIsrRequest(
            controller_id=LOCAL, controller_epoch=1, topic_states=[topic], live_leaders=[]
        )
        roles_of(self.replicas).become_leader_or_follower(request, NOW_MS)

    def replicate(self) -> None:
        self.lead([LOCAL])


@pytest.fixture(params=[MemoryCluster, BrokerCluster])
def cluster_of(request: pytest.FixtureRequest) -> Callable[[int], Cluster]:
    """Build a cluster of a given number of replicas, of either kind."""
    made: Callable[[int], Cluster] = request.param
    return made


def batch(*keys: bytes) -> bytes:
    return encode_batch([(NOW_MS, key, b"value", ()) for key in keys])


def keys(data: bytes) -> list[bytes | None]:
    return [record.key for record in decode_records(data)]


def test_append_gives_the_last_offset(cluster_of: Callable[[int], Cluster]) -> None:
    log = cluster_of(1).log
    assert log.append(PARTITION, batch(b"a", b"b"), NOW_MS) == 1
    assert log.append(PARTITION, batch(b"c"), NOW_MS) == 2
    assert (log.start_offset(PARTITION), log.end_offset(PARTITION)) == (0, 3)


def test_single_replica_has_committed_when_append_returns(
    cluster_of: Callable[[int], Cluster],
) -> None:
    log = cluster_of(1).log
    log.append(PARTITION, batch(b"a"), NOW_MS)
    assert log.committed_end(PARTITION) == 1


def test_followers_hold_the_committed_end_back_and_the_listener_hears_when_it_moves(
    cluster_of: Callable[[int], Cluster],
) -> None:
    cluster = cluster_of(2)
    ends: list[int] = []
    cluster.log.on_committed(PARTITION, lambda: ends.append(cluster.log.committed_end(PARTITION)))
    cluster.log.append(PARTITION, batch(b"a", b"b"), NOW_MS)
    assert cluster.log.committed_end(PARTITION) == 0
    cluster.replicate()
    assert ends[-1] == 2


def test_read_gives_whole_batches_from_the_one_that_holds_the_offset(
    cluster_of: Callable[[int], Cluster],
) -> None:
    log = cluster_of(2).log
    for key in (b"a", b"b", b"c"):
        log.append(PARTITION, batch(key, key + b"2"), NOW_MS)
    assert keys(log.read(PARTITION, 0, 10_000)) == [b"a", b"a2", b"b", b"b2", b"c", b"c2"]
    assert keys(log.read(PARTITION, 3, 10_000)) == [b"b", b"b2", b"c", b"c2"]
    assert log.read(PARTITION, 6, 10_000) == b""


def test_read_gives_a_batch_larger_than_asked_for(cluster_of: Callable[[int], Cluster]) -> None:
    log = cluster_of(1).log
    log.append(PARTITION, batch(b"a"), NOW_MS)
    log.append(PARTITION, batch(b"b"), NOW_MS)
    assert keys(log.read(PARTITION, 0, 1)) == [b"a"]


def test_batch_larger_than_allowed_is_refused_and_not_kept(
    cluster_of: Callable[[int], Cluster],
) -> None:
    log = cluster_of(1).log
    with pytest.raises(ApiError) as refused:
        log.append(PARTITION, batch(b"k" * log.max_batch_bytes(PARTITION)), NOW_MS)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert log.end_offset(PARTITION) == 0


# ---- the real one alone


def test_append_where_another_broker_leads_is_refused() -> None:
    cluster = BrokerCluster(2)
    cluster.lead([FOLLOWER], leader=FOLLOWER)
    with pytest.raises(ApiError) as refused:
        cluster.log.append(PARTITION, batch(b"a"), NOW_MS)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_append_with_too_few_in_sync_replicas_is_refused() -> None:
    cluster = BrokerCluster(1, LogConfig(min_insync_replicas=2))
    with pytest.raises(ApiError) as refused:
        cluster.log.append(PARTITION, batch(b"a"), NOW_MS)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


def test_too_few_in_sync_are_told_of() -> None:
    cluster = BrokerCluster(2, LogConfig(min_insync_replicas=2))
    assert cluster.log.is_enough_in_sync(PARTITION)
    cluster.lead([LOCAL])
    assert not cluster.log.is_enough_in_sync(PARTITION)


def test_append_that_is_due_a_flush_is_committed_once_it_is_flushed() -> None:
    cluster = BrokerCluster(1, LogConfig(flush_messages=1))
    cluster.log.append(PARTITION, batch(b"a"), NOW_MS)
    assert cluster.log.committed_end(PARTITION) == 0
    log = cluster.replicas.log(offsets_partition(PARTITION))
    flush = log.begin_flush()
    flush.run()
    log.end_flush(flush)
    cluster.replicas.note_flush(cluster.flushes[0])
    assert cluster.log.committed_end(PARTITION) == 1


def test_partition_led_again_is_listened_to_once() -> None:
    cluster = BrokerCluster(1)
    heard: list[None] = []
    for _ in range(3):
        cluster.log.on_committed(PARTITION, lambda: heard.append(None))
    cluster.log.append(PARTITION, batch(b"a"), NOW_MS)
    assert len(heard) == 1
