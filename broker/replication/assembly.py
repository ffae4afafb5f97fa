"""Build the replication wing, which leads and follows partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from broker.network.purgatory import Purgatory
from broker.process.process import Process
from broker.process.signals import Signals
from broker.replication.control_work import ControlWork
from broker.replication.directory_moves import DirectoryMoves
from broker.replication.fetch_sessions import MAX_EPOCH, FetchSessions
from broker.replication.flusher import Flusher
from broker.replication.isr_writer import IsrWriter
from broker.replication.leader_fetcher import FetcherConfig
from broker.replication.partition_waits import PartitionWaits
from broker.replication.replica_fetchers import LeaderConnection, ReplicaFetchers
from broker.replication.replica_manager import ReplicaManager
from broker.replication.replica_roles import ReplicaRoles
from broker.replication.replication_quota import ReplicationQuotas
from broker.replication.set_aside_logs import SetAsideLogs
from broker.replication.stray_logs import StrayLogs
from broker.replication.topic_identities import TopicIdentities, read_identities
from broker.replication.verification import Verification
from broker.settings.config import BrokerConfig
from broker.settings.topic_configs import TopicConfigs
from core_log.log_manager import LogManager
from protocol.frozen import frozen
from protocol.metrics import Metrics
from zk.api import ZkSession


@frozen
class Replication:
    """The parts of the wing that other wings use.

    `checkpoint_lock` is held while checkpoints are written.
    """

    logs: LogManager
    replicas: ReplicaManager
    sessions: FetchSessions
    flusher: Flusher
    isr_writer: IsrWriter
    quotas: ReplicationQuotas
    moves: DirectoryMoves
    control: ControlWork
    strays: StrayLogs
    set_aside: SetAsideLogs
    checkpoint_lock: asyncio.Lock


def assemble(
    *,
    config: BrokerConfig,
    process: Process,
    signals: Signals,
    zk: ZkSession,
    logs: LogManager,
    topic_configs: TopicConfigs,
    cluster_id: str,
    connect: Callable[[int], Awaitable[LeaderConnection]],
    purgatory: Purgatory,
) -> Replication:
    """Build the wing over the open logs; `connect(leader)` is for the fetches of followers."""
    spawn = process.spawn

    # The parts that the replica manager uses.
    quotas = ReplicationQuotas.measured(
        config.broker_id,
        process.monotonic_ms,
        between=config.replication_quota_windows,
        within=config.alter_log_dirs_quota_windows,
    )
    flusher = Flusher(process.work, spawn, process.monotonic_ms, signals.flushed)
    isr_writer = IsrWriter(
        zk, spawn, process.monotonic_ms, signals.isr_written, signals.isr_superseded
    )
    session_id = partial(process.rng.randint, 1, MAX_EPOCH)
    sessions = FetchSessions(config.fetch_session_slots, session_id)

    fetchers = ReplicaFetchers(
        config.broker_id,
        FetcherConfig(
            max_bytes=config.replica_fetch_max_bytes,
            response_max_bytes=config.replica_fetch_response_max_bytes,
            wait_max_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            backoff_ms=config.replica_fetch_backoff_ms,
            fetchers=config.num_replica_fetchers,
        ),
        connect,
        spawn,
        process.now_ms,
        quotas.follower,
        process.work,
        signals.replicated,
    )
    verifies = config.transactions.partition_verification_enable
    replicas = ReplicaManager(
        config.broker_id,
        logs,
        topic_configs.get,
        PartitionWaits(purgatory, sessions),
        flusher.start,
        fetchers,
        isr_writer.write,
        process.monotonic_ms,
        config.replica_lag_time_max_ms,
        checkpointed=logs.read_high_watermarks(),
        leadership=signals.leadership,
        write_back=process.work.write_back,
        verification=Verification() if verifies else None,
    )
    replicas.subscribe(signals)

    # The parts that use the replica manager.
    checkpoint_lock = asyncio.Lock()
    moves = DirectoryMoves(
        replicas, quotas.directories, process.work, spawn, process.now_ms, checkpoint_lock
    )
    signals.leadership.subscribe(moves.resume)
    identities = TopicIdentities(
        partial(read_identities, zk, cluster_id), config.zookeeper_session_timeout_ms
    )
    identities.follow(zk)
    signals.partitions_deleted.subscribe(
        lambda partitions: identities.forget({partition.topic for partition in partitions})
    )
    control = ControlWork(
        ReplicaRoles(replicas, identities, process.now_ms),
        spawn,
        process.touch,
        process.work,
        process.monotonic_ms,
        config.request_timeout_ms,
    )
    _count_in(process.metrics, replicas)
    return Replication(
        logs=logs,
        replicas=replicas,
        sessions=sessions,
        flusher=flusher,
        isr_writer=isr_writer,
        quotas=quotas,
        moves=moves,
        control=control,
        strays=StrayLogs(replicas, zk),
        set_aside=SetAsideLogs(logs, identities.read, process.work, process.now_ms),
        checkpoint_lock=checkpoint_lock,
    )


def _count_in(metrics: Metrics, replicas: ReplicaManager) -> None:
    """Show the replicas of this broker among its figures."""
    metrics.watch("replicas", lambda: len(replicas.partitions))
    metrics.watch("leaders", lambda: sum(p.is_leader for p in replicas.partitions.values()))
    metrics.watch("replicas_not_following", lambda: len(replicas.followers.failures()))
