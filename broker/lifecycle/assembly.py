"""Steps of a broker's start and stop: open its logs, register it, start its parts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import attrs

from broker.authentication.scram_users import ScramUsers
from broker.authorization.acl_authorizer import AclAuthorizer
from broker.cluster import identity
from broker.cluster.log_failures import LogFailures
from broker.cluster.peers import Peers
from broker.cluster.registration import AlreadyRegistered, Registration
from broker.controller.controller import Controller
from broker.lifecycle.config_effects import ConfigEffects
from broker.lifecycle.controlled_shutdown import ControlledShutdown, ShutdownConfig
from broker.lifecycle.housekeeping import Housekeeping
from broker.lifecycle.listener_changes import ListenerChanges
from broker.network.addresses import own_host_name
from broker.network.listener import Listener
from broker.process.periodic import run_every
from broker.process.process import Process
from broker.process.signals import Signals
from broker.process.zk_retry import retry_until_connected
from broker.replication.assembly import Replication
from broker.replication.stray_logs import STRAY_CHECK_MS
from broker.settings.assembly import SettingsWing
from broker.settings.broker_configs import BrokerConfigs
from broker.settings.config import BrokerConfig
from broker.settings.tls_contexts import TlsContexts
from broker.settings.topic_configs import NO_SETTINGS, TopicConfigs, read_all_topic_settings
from compaction.cleaner import Cleaner
from compaction.worker_pool import Workers
from core_log.config import LogConfig
from core_log.first_use import FirstUse
from core_log.log_manager import LogManager
from core_log.storage import Directory
from protocol.frozen import frozen
from zk.api import ZkSession
from zk.login import login_of
from zk.session import KazooSession
from zk.znodes import BrokerId, ClusterId, Endpoint


@frozen
class OpenedLogs:
    """Open logs, and the config with the id of their broker.

    Until `begin_serving` is called, a broker that stops closes the logs without a clean shutdown.
    The caller closes them clean from then on.
    """

    logs: LogManager
    config: BrokerConfig
    begin_serving: Callable[[], object]


async def open_logs(
    *,
    config: BrokerConfig,
    process: Process,
    zk: ZkSession,
    cluster_id: str,
    topic_configs: TopicConfigs,
    open_directory: Callable[[str], Directory],
    closing: contextlib.AsyncExitStack,
) -> OpenedLogs:
    """Open the logs, recover them where needed, and find out their broker's id.

    Recovery must know the settings of topics and brokers: a log may have been compacted.
    """
    directories: list[Directory] = []
    unopened: dict[str, OSError] = {}
    for path in config.directories:
        try:
            directories.append(open_directory(path))
        except OSError as error:
            # A disk that is away keeps no broker from starting (fault broker-2).
            unopened[path] = error
    logs = LogManager(
        directories,
        config.log,
        process.monotonic_ms,
        recovery_threads=config.num_recovery_threads_per_data_dir,
        closing_threads=config.num_io_threads,
        unopened=unopened,
    )

    # Recover them, with the settings that are stored in ZooKeeper.
    not_serving = closing.enter_context(contextlib.ExitStack())
    not_serving.callback(logs.close, clean=False)

    # Whose disks these are comes before anything is changed on them.
    known_id = identity.check_disks(config, logs, cluster_id)
    log_config = await _stored_log_config(config, process, zk, known_id)
    logs.defaults = log_config
    topic_configs.set_defaults(log_config)
    topic_settings = await read_all_topic_settings(zk)
    log_configs = {topic: settings.over(log_config) for topic, settings in topic_settings.items()}

    # In a thread: recovery may take minutes, and the session must live.
    await asyncio.get_running_loop().run_in_executor(process.disk, logs.load, log_configs)

    # From now on the settings of these topics are known, and the broker's id.
    topics = {topic_partition.topic for topic_partition in logs.logs}
    topic_configs.load({topic: topic_settings.get(topic, NO_SETTINGS) for topic in topics})
    broker_id = await identity.assign_broker_id(zk, config, logs, cluster_id)
    return OpenedLogs(logs, attrs.evolve(config, broker_id=broker_id), not_serving.pop_all)


async def _stored_log_config(
    config: BrokerConfig, process: Process, zk: ZkSession, broker_id: int
) -> LogConfig:
    """Return the config of logs without settings of their own."""
    configs = BrokerConfigs(zk, attrs.evolve(config, broker_id=broker_id), process.spawn)
    await configs.read()
    return configs.now.log


async def close_logs(disk: ThreadPoolExecutor, replication: Replication) -> None:
    """Close the logs clean, after all requests and tasks have ended.

    The loop runs while they are flushed: the ZooKeeper session lives, and requests of it get a
    response.
    """
    # Before the first LeaderAndIsr nothing is known of most logs: the file stays as it is.
    replicas = replication.replicas
    watermarks = replicas.watermarks_to_checkpoint() if replicas.is_leadership_known else None

    def close() -> None:
        disk.shutdown(wait=True, cancel_futures=True)  # no fsync of a closed file
        if watermarks is not None:
            replication.logs.checkpoint_high_watermarks(watermarks)
        replication.logs.close(clean=True)

    # A thread of its own, because those of `disk` end in it.
    with ThreadPoolExecutor(1, "closing") as thread:
        await asyncio.get_running_loop().run_in_executor(thread, close)


def stored_endpoints(brokers: BrokerConfigs) -> list[Endpoint]:
    """Return the listeners of the file that the stored settings leave as they are."""
    # What was moved or shut while the broker ran must not be in its way
    # (fault strangers-135, was: [*brokers.static.endpoints]).
    return [endpoint for endpoint in brokers.static.endpoints if endpoint in brokers.now.endpoints]


def advertised_endpoints(config: BrokerConfig, ports: Mapping[str, int]) -> tuple[Endpoint, ...]:
    """Return the addresses to register for a broker that listens on these ports."""
    # Port 0 is replaced by the free port that the system chose.
    return tuple(
        attrs.evolve(
            endpoint,
            host=endpoint.host or own_host_name(),
            port=endpoint.port or ports.get(endpoint.listener, 0),
        )
        for endpoint in config.advertised
    )


def create_registration(
    config: BrokerConfig, process: Process, zk: ZkSession, endpoints: tuple[Endpoint, ...]
) -> Registration:
    """Build the registration of this broker in ZooKeeper."""
    node = BrokerId(endpoints=endpoints, timestamp_ms=process.now_ms(), rack=config.broker_rack)
    return Registration(zk, config.broker_id, node, config.zookeeper_session_timeout_ms)


def create_controlled_shutdown(
    config: BrokerConfig, zk: ZkSession, registration: Registration, peers: Peers
) -> ControlledShutdown:
    """Return what moves leaders away from this broker before it stops."""
    return ControlledShutdown(
        zk,
        config.broker_id,
        lambda: registration.epoch,
        config.inter_broker_listener,
        peers.connect_to_controller,
        ShutdownConfig(
            config.controlled_shutdown_enable,
            config.controlled_shutdown_max_retries,
            config.controlled_shutdown_retry_backoff_ms,
        ),
    )


def create_controller(
    config: BrokerConfig,
    process: Process,
    zk: ZkSession,
    registration: Registration,
    peers: Peers,
) -> Controller:
    """Build this broker's controller, which stands for election."""

    async def register_again() -> None:
        try:
            await registration.register()
        except AlreadyRegistered as error:
            # Another broker took the id or the address: this one must not go on.
            process.fail(error)
            raise

    return Controller(
        zk,
        broker_id=config.broker_id,
        register=register_again,
        connect=peers.connect_to_control,
        now_ms=process.now_ms,
        inter_broker_listener=config.inter_broker_listener,
        controller_listener=config.controller_listener,
        delete_topic_enable=config.delete_topic_enable,
        unclean_leader_election_enable=config.log.unclean_leader_election_enable,
        rebalance=config.leader_rebalance,
    )


def create_cleaner(
    config: BrokerConfig, process: Process, replication: Replication, workers: Workers
) -> Cleaner:
    """Build the cleaner of compacted logs."""
    return Cleaner(
        replication.logs,
        replication.replicas.high_watermark_if_here,
        workers,
        config.cleaner,
        process.spawn,
        process.now_ms,
        process.work,
    )


async def follow_settings(
    *,
    process: Process,
    signals: Signals,
    settings: SettingsWing,
    users: ScramUsers | None,
    replication: Replication,
    controller: Controller,
    cleaner: Cleaner,
    listener: Listener,
    registration: Registration,
) -> None:
    """Put stored settings into effect now, and each change of them from now on."""
    bound = {endpoint.listener: endpoint for endpoint in stored_endpoints(settings.brokers)}
    listener_changes = ListenerChanges(
        listener, settings.tls, registration, advertised_endpoints, process.work.in_thread, bound
    )
    effects = ConfigEffects(
        settings.topics,
        settings.brokers,
        users,
        replication.replicas,
        replication.quotas,
        controller,
        cleaner,
        listener,
        listener_changes,
        settings.tls,
        process.spawn,
    )
    effects.subscribe(signals)
    await effects.start(settings.changes)


async def open_authorizer(
    config: BrokerConfig, process: Process, zk: ZkSession, closing: contextlib.AsyncExitStack
) -> AclAuthorizer | None:
    """Load the ACLs, if the settings ask for an authorizer. Raises ZkError and ZnodeError."""
    policy = config.authorization_policy
    if policy is None:
        return None

    # ACLs may be in a ZooKeeper of their own.
    if config.authorizer_zookeeper_url is not None:
        zk = KazooSession(
            config.authorizer_zookeeper_url,
            session_timeout_ms=config.authorizer_zookeeper_session_timeout_ms
            or config.zookeeper_session_timeout_ms,
            connection_timeout_ms=config.authorizer_zookeeper_connection_timeout_ms
            or config.zookeeper_connection_timeout_ms,
            create_chroot=True,
            login=login_of(config, keeps_nodes=config.zookeeper_set_acl),
        )
        await zk.start()
        closing.push_async_callback(zk.close)

    authorizer = AclAuthorizer(zk, policy, process.spawn, process.rng)
    await authorizer.start()
    return authorizer


async def note_first_use(
    process: Process, zk: ZkSession, registration: Registration, logs: LogManager
) -> None:
    """Note in new log directories that they are in use from this registration on."""
    node = await retry_until_connected(zk, lambda: zk.exists(ClusterId.path()))
    if node is not None:
        first_use = FirstUse(registration.epoch, node.czxid, node.ctime_ms)
        await process.work.in_thread(partial(logs.note_first_use, first_use))


def start_housekeeping(
    config: BrokerConfig,
    process: Process,
    zk: ZkSession,
    replication: Replication,
    listener: Listener,
    tls: TlsContexts,
) -> None:
    """Start the periodic work."""
    strays = run_every(STRAY_CHECK_MS, "report of stray logs", replication.strays.report)
    process.spawn(strays)
    Housekeeping(
        config,
        replication.logs,
        replication.replicas,
        replication.set_aside,
        replication.flusher,
        replication.isr_writer,
        LogFailures(zk, config.broker_id),
        listener,
        tls,
        process.work,
        process.spawn,
        process.now_ms,
        process.monotonic_ms,
        process.fail,
        replication.checkpoint_lock,
    ).start()
