"""Which handler serves which API, and with what: the map of who touches what in a broker."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial

import attrs

from broker.cluster.automatic_topics import AutomaticTopics
from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.producer_ids import ProducerIds
from broker.cluster.topic_creation import TopicCreator
from broker.controller.controller import Controller
from broker.controller.topic_changes import TopicDefaults
from broker.coordinators.zookeeper_offsets import ZooKeeperOffsets
from broker.handlers import (
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    controlled_shutdown,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    elect_leaders,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    leader_and_isr,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    stop_replica,
    update_metadata,
)
from broker.network.deferred import Deferred
from broker.network.dispatch import Handler
from broker.replication.control_gate import ControlGate
from broker.replication.control_work import ControlWork
from broker.replication.directory_moves import DirectoryMoves
from broker.replication.fetch_sessions import FetchSessions
from broker.replication.replica_manager import ReplicaManager
from broker.replication.replication_quota import ReplicationQuota
from broker.settings.broker_configs import BrokerConfigs
from broker.settings.config import BrokerConfig
from broker.settings.config_resources import ConfigResources
from broker.settings.topic_configs import TopicConfigs
from groups.coordinator.coordinator import GroupCoordinator
from offsets.topic import OFFSETS_TOPIC, topic_properties
from protocol.api_key import ApiKey
from protocol.topic_partition import TopicPartition
from zk.api import ZkSession


@attrs.frozen
class Parts:
    """What the handlers of one broker work with."""

    config: BrokerConfig
    cluster_id: str
    zk: ZkSession
    cache: MetadataCache
    gate: ControlGate
    configs: TopicConfigs
    broker_configs: BrokerConfigs
    leader_quota: ReplicationQuota
    replicas: ReplicaManager
    controller: Controller
    creator: TopicCreator
    automatic_topics: AutomaticTopics
    coordinator: GroupCoordinator
    zookeeper_offsets: ZooKeeperOffsets
    producer_ids: ProducerIds
    deferred: Deferred
    touch: Callable[[Hashable], None]
    now_ms: Callable[[], int]
    fetch_sessions: FetchSessions
    moves: DirectoryMoves
    control: ControlWork


def handler_table(parts: Parts) -> dict[ApiKey, Handler]:
    """The handler of each API that a broker serves."""
    table = {**_of_logs_and_groups(parts), **_of_administration(parts)}
    served = api_versions.served([*table, ApiKey.API_VERSIONS])
    table[ApiKey.API_VERSIONS] = partial(api_versions.handle, served)
    return table


def _of_logs_and_groups(parts: Parts) -> dict[ApiKey, Handler]:
    """For clients that read and write, and for other brokers."""
    config, cache, gate, replicas = parts.config, parts.cache, parts.gate, parts.replicas
    configs, coordinator, zookeeper = parts.configs, parts.coordinator, parts.zookeeper_offsets
    deferred, creator = parts.deferred, parts.creator

    def deleted(partitions: list[TopicPartition]) -> None:
        for topic in {tp.topic for tp in partitions}:
            configs.forget(topic)
        coordinator.on_deleted(partitions)

    return {
        ApiKey.PRODUCE: partial(produce.handle, replicas, cache, deferred),
        ApiKey.FETCH: partial(
            fetch.handle,
            replicas,
            cache,
            parts.fetch_sessions,
            config.fetch_max_bytes,
            deferred,
            parts.leader_quota,
        ),
        ApiKey.LIST_OFFSETS: partial(
            list_offsets.handle, replicas, cache, deferred, config.request_timeout_ms
        ),
        ApiKey.METADATA: partial(
            metadata.handle,
            cache,
            metadata.AllTopics(),
            parts.cluster_id,
            parts.automatic_topics.create,
            deferred,
        ),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: partial(offset_for_leader_epoch.handle, replicas, cache),
        ApiKey.DELETE_RECORDS: partial(delete_records.handle, replicas, cache),
        ApiKey.INIT_PRODUCER_ID: partial(
            init_producer_id.handle, parts.producer_ids, config.request_timeout_ms
        ),
        ApiKey.OFFSET_COMMIT: partial(
            offset_commit.handle, coordinator, zookeeper, cache.partition_indexes
        ),
        ApiKey.OFFSET_FETCH: partial(offset_fetch.handle, coordinator, zookeeper),
        ApiKey.FIND_COORDINATOR: partial(
            find_coordinator.handle, cache, creator.create, config.offsets
        ),
        ApiKey.DESCRIBE_GROUPS: partial(describe_groups.handle, coordinator),
        ApiKey.LIST_GROUPS: partial(list_groups.handle, coordinator),
        ApiKey.DELETE_GROUPS: partial(delete_groups.handle, coordinator),
        ApiKey.OFFSET_DELETE: partial(offset_delete.handle, coordinator, cache.partition_indexes),
        ApiKey.LEADER_AND_ISR: partial(
            leader_and_isr.handle, gate, replicas, configs, parts.control
        ),
        ApiKey.STOP_REPLICA: partial(stop_replica.handle, gate, parts.control),
        ApiKey.UPDATE_METADATA: partial(update_metadata.handle, cache, gate, parts.touch, deleted),
    }


def _of_administration(parts: Parts) -> dict[ApiKey, Handler]:
    """For those who look after the cluster."""
    config, cache, configs, deferred = parts.config, parts.cache, parts.configs, parts.deferred
    controller, creator, replicas = parts.controller, parts.creator, parts.replicas
    resources = ConfigResources(parts.zk, configs, parts.broker_configs)
    defaults = TopicDefaults(
        config.num_partitions,
        config.default_replication_factor,
        config.log,
        own={OFFSETS_TOPIC: topic_properties(config.offsets)},
    )
    return {
        ApiKey.CREATE_TOPICS: partial(create_topics.handle, controller, creator, cache, defaults),
        ApiKey.DELETE_TOPICS: partial(
            delete_topics.handle, controller, cache, config.delete_topic_enable
        ),
        ApiKey.CREATE_PARTITIONS: partial(
            create_partitions.handle, controller, parts.zk, cache, deferred
        ),
        ApiKey.ELECT_LEADERS: partial(elect_leaders.handle, controller, cache, deferred),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: partial(
            alter_partition_reassignments.handle,
            controller,
            deferred,
            config.request_timeout_ms,
        ),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: partial(
            list_partition_reassignments.handle,
            controller,
            deferred,
            config.request_timeout_ms,
        ),
        ApiKey.CONTROLLED_SHUTDOWN: partial(
            controlled_shutdown.handle, controller, deferred, config.controller_socket_timeout_ms
        ),
        ApiKey.DESCRIBE_CONFIGS: partial(
            describe_configs.handle, cache, configs, parts.broker_configs
        ),
        ApiKey.ALTER_CONFIGS: partial(
            alter_configs.handle, resources, deferred, config.request_timeout_ms
        ),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: partial(
            incremental_alter_configs.handle, resources, deferred, config.request_timeout_ms
        ),
        ApiKey.ALTER_REPLICA_LOG_DIRS: partial(alter_replica_log_dirs.handle, parts.moves),
        ApiKey.DESCRIBE_LOG_DIRS: partial(describe_log_dirs.handle, replicas.logs, replicas),
    }
