"""Build the wing: groups, transactions, and offsets that old clients keep in ZooKeeper."""

from __future__ import annotations

from functools import partial

from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.peers import Peers
from broker.cluster.producer_ids import ProducerIds
from broker.coordinators.broker_connection import BrokerConnections
from broker.coordinators.deleted_topics import find_deleted
from broker.coordinators.earlier_topics import MARK_MS, EarlierTopics
from broker.coordinators.group_event_writer import CreateTopic, GroupEventWriter
from broker.coordinators.marker_sender import MarkerSender
from broker.coordinators.replicated_log import ReplicatedLog
from broker.coordinators.topic_leadership import TopicLeadership
from broker.coordinators.transaction_verifier import TransactionVerifier
from broker.coordinators.transactions import assemble_transactions, assemble_verifier
from broker.coordinators.zookeeper_members import ZooKeeperMembers
from broker.coordinators.zookeeper_offsets import ZooKeeperOffsets
from broker.network.deferred import Deferred
from broker.process.periodic import run_every
from broker.process.process import Process
from broker.process.signals import Signals
from broker.replication.replica_manager import ReplicaManager
from broker.settings.config import BrokerConfig
from broker.settings.topic_configs import TopicConfigs
from groups.coordinator.coordinator import GroupCoordinator
from groups.transactions.coordinator import TransactionCoordinator
from offsets.records import has_instance_ids, value_versions
from protocol.frozen import frozen
from protocol.internal_topics import EVENTS_TOPIC, OFFSETS_TOPIC
from zk.api import ZkSession


@frozen
class Coordinators:
    """The parts of the wing that handlers and figures use.

    `verifier` is None unless `transaction.partition.verification.enable`.
    """

    groups: GroupCoordinator
    transactions: TransactionCoordinator
    markers: MarkerSender
    verifier: TransactionVerifier | None
    zookeeper_offsets: ZooKeeperOffsets
    zookeeper_members: ZooKeeperMembers


def assemble(
    *,
    config: BrokerConfig,
    process: Process,
    signals: Signals,
    zk: ZkSession,
    cluster_id: str,
    replicas: ReplicaManager,
    topic_configs: TopicConfigs,
    cache: MetadataCache,
    peers: Peers,
    create_topic: CreateTopic,
    producer_ids: ProducerIds,
    deferred: Deferred,
) -> Coordinators:
    """Build the wing; from now on it follows leadership and settings."""
    protocol_version = config.inter_broker_protocol_version

    # Each rebalance is written down, beside the coordinator's own work.
    events = GroupEventWriter(
        config,
        cache,
        create_topic,
        BrokerConnections(peers.connect_to_write),
        lambda: topic_configs.get(EVENTS_TOPIC).max_message_bytes,
        process.now_ms,
        process.metrics,
    )
    process.spawn(events.run())

    # Offsets are of topics, which may be deleted and created again under their names.
    earlier_topics = EarlierTopics(
        zk,
        cluster_id,
        replicas,
        process.work,
        process.spawn,
        process.now_ms,
        config.zookeeper_session_timeout_ms,
    )

    # One coordinator for all partitions of __consumer_offsets that are led here.
    groups = GroupCoordinator(
        ReplicatedLog(replicas, OFFSETS_TOPIC),
        config.offsets,
        num_partitions=lambda: cache.key_partition_count(OFFSETS_TOPIC),
        now_ms=process.now_ms,
        spawn=process.spawn,
        value_versions=value_versions(protocol_version),
        group_config=config.groups,
        serves_static_members=has_instance_ids(protocol_version),
        on_response=process.touch,
        on_rebalanced=events.add,
        # Markers of transactions wait for the groups of their partition.
        on_served=replicas.waits.wake_all,
        find_deleted=partial(find_deleted, zk, cache.has_topic),
        load_stages=earlier_topics.load_stages,
    )

    # Load and unload with leadership; watch the topic's settings and the deletion of partitions.
    leadership = TopicLeadership(OFFSETS_TOPIC, groups, topic_configs.get)
    signals.leadership.subscribe(leadership.leadership_changed)
    signals.topic_settings.subscribe(leadership.config_changed)
    signals.partitions_deleted.subscribe(groups.on_deleted)

    signals.leadership.subscribe(lambda _, followers: earlier_topics.follow(groups, followers))
    look = partial(earlier_topics.look, groups)
    process.spawn(run_every(MARK_MS, "marks of the topics that offsets are of", look))

    # Expire offsets for as long as the broker lives.
    interval_ms = config.offsets.retention_check_interval_ms
    process.spawn(run_every(interval_ms, "expiry of committed offsets", groups.expire_offsets))

    transactions, markers = assemble_transactions(
        config=config,
        process=process,
        signals=signals,
        replicas=replicas,
        topic_configs=topic_configs,
        cache=cache,
        peers=peers,
        producer_ids=producer_ids,
    )
    verifier = assemble_verifier(
        config=config, process=process, replicas=replicas, cache=cache, peers=peers
    )

    # OffsetCommit and OffsetFetch v0 go to ZooKeeper, past the coordinator.
    zookeeper_offsets = ZooKeeperOffsets(
        zk, deferred, cache.partition_indexes, config.offsets.commit_timeout_ms
    )
    zookeeper_members = ZooKeeperMembers(zk, deferred, config.offsets.commit_timeout_ms)
    return Coordinators(
        groups=groups,
        transactions=transactions,
        markers=markers,
        verifier=verifier,
        zookeeper_offsets=zookeeper_offsets,
        zookeeper_members=zookeeper_members,
    )
