"""The handler of each API, and the parts of the broker that it uses.

Handlers come in families. A family is a small value with the parts that its handlers use.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial

from broker.authentication.scram_users import ScramUsers
from broker.authorization.acl_authorizer import AclAuthorizer
from broker.cluster.assembly import ClusterWing
from broker.cluster.internal_topics import internal_topics
from broker.cluster.metadata_cache import MetadataCache
from broker.controller.controller import Controller
from broker.controller.topic_changes import TopicDefaults
from broker.coordinators.assembly import Coordinators
from broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    api_versions,
    controlled_shutdown,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leader_and_isr,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    short_commit,
    short_fetch,
    short_heartbeat,
    short_produce,
    stop_replica,
    sync_group,
    txn_offset_commit,
    update_metadata,
    write_txn_markers,
)
from broker.handlers.verified_produce import VerifiedProduce
from broker.network.deferred import Deferred
from broker.network.dispatch import Handler, RunWay, ShortWay
from broker.process.process import Process
from broker.process.signals import Signals
from broker.replication.assembly import Replication
from broker.replication.control_gate import ControlGate
from broker.replication.control_work import ControlWork
from broker.replication.directory_moves import DirectoryMoves
from broker.replication.fetch_sessions import FetchSessions
from broker.replication.replica_manager import ReplicaManager
from broker.replication.replication_quota import ReplicationQuota
from broker.settings.assembly import SettingsWing
from broker.settings.config import BrokerConfig
from broker.settings.topic_configs import TopicConfigs
from protocol.api_key import ApiKey
from protocol.frozen import frozen
from protocol.internal_topics import OFFSETS_TOPIC
from protocol.topic_partition import TopicPartition
from zk.api import ZkSession


@frozen
class LogHandlers:
    """The parts for requests that read and write logs."""

    config: BrokerConfig
    cluster: ClusterWing
    replicas: ReplicaManager
    sessions: FetchSessions
    leader_quota: ReplicationQuota
    deferred: Deferred

    @classmethod
    def of(
        cls,
        config: BrokerConfig,
        replication: Replication,
        cluster: ClusterWing,
        deferred: Deferred,
    ) -> LogHandlers:
        """Take the parts of this family from the wings."""
        return cls(
            config=config,
            cluster=cluster,
            replicas=replication.replicas,
            sessions=replication.sessions,
            leader_quota=replication.quotas.leader,
            deferred=deferred,
        )

    def table(self) -> dict[ApiKey, Handler]:
        """Return the handlers of this family."""
        config = self.config
        replicas = self.replicas
        cache = self.cluster.cache

        return {
            # Records.
            ApiKey.PRODUCE: self._produce(),
            ApiKey.FETCH: partial(
                fetch.handle,
                replicas,
                cache,
                self.sessions,
                config.fetch_max_bytes,
                self.deferred,
                self.leader_quota,
            ),
            ApiKey.LIST_OFFSETS: partial(
                list_offsets.handle, replicas, cache, self.deferred, config.request_timeout_ms
            ),
            # The cluster as clients see it.
            ApiKey.METADATA: partial(
                metadata.handle,
                cache,
                metadata.AllTopics(),
                self.cluster.id,
                self.cluster.automatic_topics.create,
                self.deferred,
            ),
            ApiKey.DESCRIBE_CLUSTER: partial(describe_cluster.handle, cache, self.cluster.id),
            # The ends of logs: where epochs ended, where records begin.
            ApiKey.OFFSET_FOR_LEADER_EPOCH: partial(
                offset_for_leader_epoch.handle, replicas, cache
            ),
            ApiKey.DELETE_RECORDS: partial(delete_records.handle, replicas, cache),
            ApiKey.DESCRIBE_PRODUCERS: partial(
                describe_producers.handle,
                replicas,
                cache,
                self.deferred,
                config.request_timeout_ms,
            ),
        }

    def _produce(self) -> Handler:
        """Return the handler that appends; where transactions are verified, behind that."""
        replicas = self.replicas
        handler = partial(produce.handle, replicas, self.cluster.cache, self.deferred)
        if replicas.verification is None:
            return handler
        return VerifiedProduce(handler, replicas, replicas.verification)


@frozen
class GroupHandlers:
    """The parts for requests of groups."""

    config: BrokerConfig
    cluster: ClusterWing
    coordinators: Coordinators
    deferred: Deferred

    def table(self) -> dict[ApiKey, Handler]:
        """Return the handlers of this family."""
        cache = self.cluster.cache
        groups = self.coordinators.groups
        zookeeper = self.coordinators.zookeeper_offsets

        return {
            # Members of groups.
            ApiKey.JOIN_GROUP: partial(join_group.handle, groups),
            ApiKey.SYNC_GROUP: partial(sync_group.handle, groups),
            ApiKey.HEARTBEAT: partial(heartbeat.handle, groups),
            ApiKey.LEAVE_GROUP: partial(leave_group.handle, groups),
            # Offsets of groups.
            ApiKey.OFFSET_COMMIT: partial(
                offset_commit.handle, groups, zookeeper, cache.partition_indexes
            ),
            ApiKey.OFFSET_FETCH: partial(offset_fetch.handle, groups, zookeeper),
            ApiKey.TXN_OFFSET_COMMIT: partial(
                txn_offset_commit.handle, groups, cache.partition_indexes
            ),
            # Groups themselves, and where they are.
            ApiKey.FIND_COORDINATOR: partial(
                find_coordinator.handle,
                cache,
                self.cluster.creator.create_internal,
                internal_topics(self.config.offsets, self.config.transactions),
            ),
            ApiKey.DESCRIBE_GROUPS: partial(
                describe_groups.handle, groups, self.coordinators.zookeeper_members
            ),
            ApiKey.LIST_GROUPS: partial(list_groups.handle, groups, self.deferred),
            ApiKey.DELETE_GROUPS: partial(delete_groups.handle, groups, self.deferred),
            ApiKey.OFFSET_DELETE: partial(offset_delete.handle, groups, cache.partition_indexes),
        }


@frozen
class ProducerHandlers:
    """The parts for requests of producers that number their batches, or write in transactions."""

    config: BrokerConfig
    cluster: ClusterWing
    coordinators: Coordinators
    replicas: ReplicaManager
    deferred: Deferred

    def table(self) -> dict[ApiKey, Handler]:
        """Return the handlers of this family."""
        cache = self.cluster.cache
        transactions = self.coordinators.transactions
        timeout_ms = self.config.request_timeout_ms

        return {
            ApiKey.INIT_PRODUCER_ID: partial(
                init_producer_id.handle, self.cluster.producer_ids, transactions, timeout_ms
            ),
            # Transactions.
            ApiKey.ADD_PARTITIONS_TO_TXN: partial(
                add_partitions_to_txn.handle, transactions, cache.partition_indexes, timeout_ms
            ),
            ApiKey.ADD_OFFSETS_TO_TXN: partial(
                add_offsets_to_txn.handle,
                transactions,
                self._num_offsets_partitions,
                timeout_ms,
            ),
            ApiKey.END_TXN: partial(end_txn.handle, transactions, timeout_ms),
            # Their ends, in logs and in what groups commit.
            ApiKey.WRITE_TXN_MARKERS: partial(
                write_txn_markers.handle,
                self.replicas,
                self.coordinators.groups,
                self.deferred,
                timeout_ms,
            ),
            # Those who look after them.
            ApiKey.DESCRIBE_TRANSACTIONS: partial(
                describe_transactions.handle, transactions, self.deferred, timeout_ms
            ),
            ApiKey.LIST_TRANSACTIONS: partial(
                list_transactions.handle, transactions, self.deferred, timeout_ms
            ),
        }

    def _num_offsets_partitions(self) -> int:
        """Return the number of the topic's partitions. Raises ApiError until there are any."""
        topic = internal_topics(self.config.offsets, self.config.transactions)[OFFSETS_TOPIC]
        existing = self.cluster.cache.key_partition_count(OFFSETS_TOPIC)
        # A broker with another setting may be the one that creates it (fault groups-4).
        if not existing:
            add_offsets_to_txn.begin_topic(self.cluster.creator.create_internal, topic)
        return existing or topic.partitions


@frozen
class ControlHandlers:
    """The parts for requests of the controller."""

    gate: ControlGate
    replicas: ReplicaManager
    control: ControlWork
    topic_configs: TopicConfigs
    cache: MetadataCache
    touch: Callable[[Hashable], None]
    partitions_deleted: Callable[[list[TopicPartition]], None]

    @classmethod
    def of(
        cls,
        process: Process,
        signals: Signals,
        settings: SettingsWing,
        replication: Replication,
        cluster: ClusterWing,
        gate: ControlGate,
    ) -> ControlHandlers:
        """Take the parts of this family from the wings."""
        return cls(
            gate=gate,
            replicas=replication.replicas,
            control=replication.control,
            topic_configs=settings.topics,
            cache=cluster.cache,
            touch=process.touch,
            partitions_deleted=signals.partitions_deleted,
        )

    def table(self) -> dict[ApiKey, Handler]:
        """Return the handlers of this family."""
        return {
            ApiKey.LEADER_AND_ISR: partial(
                leader_and_isr.handle, self.gate, self.replicas, self.topic_configs, self.control
            ),
            ApiKey.STOP_REPLICA: partial(stop_replica.handle, self.gate, self.control),
            ApiKey.UPDATE_METADATA: partial(
                update_metadata.handle,
                self.cache,
                self.gate,
                self.touch,
                self.delete_settings,
                stop_removed=self.control.stop_removed,
            ),
        }

    def delete_settings(self, partitions: list[TopicPartition]) -> None:
        """Remove the settings of deleted topics, and signal the deletion."""
        for topic in {topic_partition.topic for topic_partition in partitions}:
            # Some of its partitions may stay: it was created again, with fewer.
            if not self.cache.has_topic(topic):
                self.topic_configs.forget(topic)
        self.partitions_deleted(partitions)


@frozen
class AdminHandlers:
    """The parts for requests of administrators."""

    config: BrokerConfig
    zk: ZkSession
    settings: SettingsWing
    users: ScramUsers | None
    cluster: ClusterWing
    replicas: ReplicaManager
    moves: DirectoryMoves
    controller: Controller
    deferred: Deferred
    acls: AclAuthorizer | None

    @classmethod
    def of(
        cls,
        config: BrokerConfig,
        zk: ZkSession,
        settings: SettingsWing,
        users: ScramUsers | None,
        replication: Replication,
        cluster: ClusterWing,
        controller: Controller,
        deferred: Deferred,
        acls: AclAuthorizer | None,
    ) -> AdminHandlers:
        """Take the parts of this family from the wings."""
        return cls(
            config=config,
            zk=zk,
            settings=settings,
            users=users,
            cluster=cluster,
            replicas=replication.replicas,
            moves=replication.moves,
            controller=controller,
            deferred=deferred,
            acls=acls,
        )

    def table(self) -> dict[ApiKey, Handler]:
        """Return the handlers of this family."""
        config = self.config
        controller = self.controller
        deferred = self.deferred
        cache = self.cluster.cache
        creator = self.cluster.creator
        topics = self.settings.topics
        brokers = self.settings.brokers
        resources = self.settings.resources
        timeout_ms = config.request_timeout_ms

        # Coordinators' topics have settings of their own, also if an administrator creates them.
        defaults = TopicDefaults(
            config.num_partitions,
            config.default_replication_factor,
            config.log,
            own={
                name: topic.properties
                for name, topic in internal_topics(config.offsets, config.transactions).items()
            },
        )

        return {
            # Topics.
            ApiKey.CREATE_TOPICS: partial(
                create_topics.handle, controller, creator, cache, defaults, brokers, deferred
            ),
            ApiKey.DELETE_TOPICS: partial(
                delete_topics.handle, controller, cache, config.delete_topic_enable
            ),
            ApiKey.CREATE_PARTITIONS: partial(
                create_partitions.handle, controller, self.zk, cache, deferred, timeout_ms
            ),
            # Quotas.
            ApiKey.DESCRIBE_CLIENT_QUOTAS: partial(
                describe_client_quotas.handle, self.zk, deferred, timeout_ms
            ),
            ApiKey.ALTER_CLIENT_QUOTAS: partial(
                alter_client_quotas.handle, self.zk, deferred, timeout_ms
            ),
            # Leaders and replicas.
            ApiKey.ELECT_LEADERS: partial(
                elect_leaders.handle, controller, cache, deferred, timeout_ms
            ),
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: partial(
                alter_partition_reassignments.handle, controller, deferred, timeout_ms
            ),
            ApiKey.LIST_PARTITION_REASSIGNMENTS: partial(
                list_partition_reassignments.handle, controller, deferred, timeout_ms
            ),
            ApiKey.CONTROLLED_SHUTDOWN: partial(
                controlled_shutdown.handle,
                controller,
                deferred,
                config.controller_socket_timeout_ms,
            ),
            # Settings.
            ApiKey.DESCRIBE_CONFIGS: partial(describe_configs.handle, cache, topics, brokers),
            ApiKey.ALTER_CONFIGS: partial(alter_configs.handle, resources, deferred, timeout_ms),
            ApiKey.INCREMENTAL_ALTER_CONFIGS: partial(
                incremental_alter_configs.handle, resources, deferred, timeout_ms
            ),
            # Users.
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: partial(
                describe_user_scram_credentials.handle, self.zk, deferred, timeout_ms
            ),
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS: partial(
                alter_user_scram_credentials.handle,
                controller,
                self.zk,
                self.users,
                deferred,
                timeout_ms,
            ),
            # ACLs.
            ApiKey.DESCRIBE_ACLS: partial(describe_acls.handle, self.acls, deferred, timeout_ms),
            ApiKey.CREATE_ACLS: partial(create_acls.handle, self.acls, deferred, timeout_ms),
            ApiKey.DELETE_ACLS: partial(delete_acls.handle, self.acls, deferred, timeout_ms),
            # Directories.
            ApiKey.ALTER_REPLICA_LOG_DIRS: partial(
                alter_replica_log_dirs.handle, self.moves, deferred, timeout_ms
            ),
            ApiKey.DESCRIBE_LOG_DIRS: partial(
                describe_log_dirs.handle, self.replicas.logs, self.replicas
            ),
        }


def short_ways(log: LogHandlers, groups: GroupHandlers) -> dict[int, ShortWay]:
    """Return the short ways of the APIs that have one."""
    cache = log.cluster.cache
    return {
        ApiKey.PRODUCE: short_produce.ShortProduce(log.replicas, cache),
        ApiKey.OFFSET_COMMIT: short_commit.ShortCommit(
            groups.coordinators.groups, cache.partition_indexes
        ),
        ApiKey.FETCH: short_fetch.ShortFetch(
            log.replicas, cache, log.sessions, log.config.fetch_max_bytes, log.leader_quota
        ),
        ApiKey.HEARTBEAT: short_heartbeat.ShortHeartbeat(groups.coordinators.groups),
    }


def run_ways(short_ways: Mapping[int, ShortWay]) -> dict[int, RunWay]:
    """Return the ways of the short ones that serve several requests at once."""
    produce, commit = short_ways[ApiKey.PRODUCE], short_ways[ApiKey.OFFSET_COMMIT]
    assert isinstance(produce, short_produce.ShortProduce)
    assert isinstance(commit, short_commit.ShortCommit)
    return {ApiKey.PRODUCE: produce.serve_run, ApiKey.OFFSET_COMMIT: commit.serve_run}


Family = LogHandlers | GroupHandlers | ProducerHandlers | ControlHandlers | AdminHandlers


def handler_table(*families: Family) -> dict[ApiKey, Handler]:
    """Return the handler of each API that a broker serves."""
    table: dict[ApiKey, Handler] = {}
    for family in families:
        table.update(family.table())

    # Logins, where there is none to be done: the session of a listener takes all others.
    table[ApiKey.SASL_HANDSHAKE] = sasl_handshake.handle
    table[ApiKey.SASL_AUTHENTICATE] = sasl_authenticate.handle

    # ApiVersions lists all the others, and itself.
    served = api_versions.ServedVersions.of([*table, ApiKey.API_VERSIONS])
    table[ApiKey.API_VERSIONS] = partial(api_versions.handle, served)
    return table
