"""Build the coordinator of transactions, the sender of its markers, and who asks coordinators."""

from __future__ import annotations

from collections.abc import Callable

from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.peers import Peers
from broker.cluster.producer_ids import ProducerIds
from broker.coordinators.broker_connection import BrokerConnections
from broker.coordinators.marker_sender import NO_LEADER, MarkerSender
from broker.coordinators.replicated_log import ReplicatedLog
from broker.coordinators.topic_leadership import TopicLeadership
from broker.coordinators.transaction_verifier import TransactionVerifier
from broker.process.periodic import run_every
from broker.process.process import Process
from broker.process.signals import Signals
from broker.replication.replica_manager import ReplicaManager
from broker.settings.config import BrokerConfig
from broker.settings.topic_configs import TopicConfigs
from groups.transactions.coordinator import TransactionCoordinator
from groups.transactions.events import Marker
from protocol.internal_topics import TRANSACTIONS_TOPIC
from protocol.topic_partition import TopicPartition


def assemble_transactions(
    *,
    config: BrokerConfig,
    process: Process,
    signals: Signals,
    replicas: ReplicaManager,
    topic_configs: TopicConfigs,
    cache: MetadataCache,
    peers: Peers,
    producer_ids: ProducerIds,
) -> tuple[TransactionCoordinator, MarkerSender]:
    """Build both; from now on the coordinator follows leadership, and looks at the time."""
    settings = config.transactions

    def epoch_of(marker: Marker) -> int:
        partition = TopicPartition(
            TRANSACTIONS_TOPIC, coordinator.partition_of(marker.transactional_id)
        )
        return replicas.partition(partition).leader_epoch

    sender = MarkerSender(
        _leaders(config, cache),
        epoch_of,
        BrokerConnections(peers.connect_to_write, config.broker_id),
        process.spawn,
    )
    coordinator = TransactionCoordinator(
        ReplicatedLog(replicas, TRANSACTIONS_TOPIC),
        settings,
        num_partitions=lambda: cache.key_partition_count(TRANSACTIONS_TOPIC),
        take_producer_id=producer_ids.take,
        now_ms=process.now_ms,
        spawn=process.spawn,
        prepare_producer_ids=producer_ids.prepare,
        on_response=process.touch,
        on_decided=sender.send,
    )
    sender.coordinator = coordinator

    # Load and unload with leadership.
    leadership = TopicLeadership(TRANSACTIONS_TOPIC, coordinator, topic_configs.get)
    signals.leadership.subscribe(leadership.leadership_changed)
    signals.topic_settings.subscribe(leadership.config_changed)

    # Look at the time for as long as the broker lives.
    timeouts = run_every(
        settings.abort_interval_ms, "time-outs of transactions", coordinator.abort_timed_out
    )
    process.spawn(timeouts)
    expiry = run_every(
        settings.expiry_interval_ms, "expiry of transactional ids", coordinator.expire_ids
    )
    process.spawn(expiry)
    return coordinator, sender


def assemble_verifier(
    *,
    config: BrokerConfig,
    process: Process,
    replicas: ReplicaManager,
    cache: MetadataCache,
    peers: Peers,
) -> TransactionVerifier | None:
    """Build the part that asks coordinators for the leaders here; None if nothing is verified."""
    if replicas.verification is None:
        return None
    verifier = TransactionVerifier(
        _leaders(config, cache),
        lambda: cache.key_partition_count(TRANSACTIONS_TOPIC),
        BrokerConnections(peers.connect_to_write, config.broker_id),
        process.spawn,
        process.touch,
    )
    replicas.verification.ask = verifier.ask
    return verifier


def _leaders(config: BrokerConfig, cache: MetadataCache) -> Callable[[TopicPartition], int | None]:
    """Return the function that finds leaders: NO_LEADER if there is none, None without partition.

    Before the controller has sent its first metadata nothing is there.
    """

    def leader_of(partition: TopicPartition) -> int | None:
        state = cache.partition_state(partition)
        if state is not None:
            is_alive = cache.endpoint(state.leader, config.inter_broker_listener) is not None
            return state.leader if is_alive else NO_LEADER
        return None if cache.partition_count(TRANSACTIONS_TOPIC) else NO_LEADER

    return leader_of
