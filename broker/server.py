"""One broker, assembled: every part is made here, and given exactly what it uses.

Start, in Kafka's order: ZooKeeper → cluster id → logs (recovered where needed) → the port is bound
→ registration → serving → election. So no request is served before ZooKeeper knows the broker,
and the controller's first requests, ours to ourselves included, come over the wire like any
other. Stop is the reverse: leaders and the controller's place are given to other brokers, nobody is
served any more, the logs are closed clean, and with the session ends the registration.

One task runs all of it, from `start` to `close`, and every other task is its child (`tasks`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import attrs

from broker.cluster import identity
from broker.cluster.automatic_topics import AutomaticTopics
from broker.cluster.log_failures import LogFailures
from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.peers import Peers
from broker.cluster.producer_ids import ProducerIds
from broker.cluster.registration import AlreadyRegistered, Registration
from broker.cluster.topic_creation import TopicCreator
from broker.controller.controller import Controller
from broker.coordinators.replicated_log import ReplicatedLog
from broker.coordinators.topic_leadership import TopicLeadership
from broker.coordinators.zookeeper_offsets import ZooKeeperOffsets
from broker.handler_table import Parts, handler_table
from broker.lifecycle.config_effects import ConfigEffects
from broker.lifecycle.housekeeping import Housekeeping
from broker.lifecycle.periodic import run_every
from broker.lifecycle.process_limits import own_host_name, wall_clock_ms
from broker.lifecycle.tasks import Tasks
from broker.network.deferred import Deferred
from broker.network.dispatch import Dispatcher, Handler
from broker.network.endpoints import Endpoint
from broker.network.listener import Bind, Listener, bound_socket
from broker.network.purgatory import Purgatory
from broker.replication.control_gate import ControlGate
from broker.replication.control_work import ControlWork
from broker.replication.directory_moves import DirectoryMoves
from broker.replication.fetch_sessions import MAX_EPOCH, FetchSessions
from broker.replication.flusher import Flusher
from broker.replication.isr_writer import IsrWriter
from broker.replication.partition_waits import PartitionWaits
from broker.replication.replica_fetchers import ReplicaFetchers
from broker.replication.replica_manager import ReplicaManager
from broker.replication.replication_quota import ReplicationQuotas
from broker.settings.broker_configs import BrokerConfigs
from broker.settings.config import BrokerConfig
from broker.settings.config_changes import ConfigChanges
from broker.settings.topic_configs import NO_SETTINGS, TopicConfigs, read_all_topic_settings
from compaction.cleaner import Cleaner
from compaction.worker_pool import WorkerPool, Workers
from core_log.config import LogConfig
from core_log.directory import LogDirectory
from core_log.log_manager import LogManager
from core_log.log_work import LogWork
from core_log.storage import Directory
from groups.coordinator.coordinator import GroupCoordinator
from offsets.records import offset_value_version
from offsets.topic import OFFSETS_TOPIC
from protocol.api_key import ApiKey
from zk.api import ZkSession
from zk.session import KazooSession
from zk.znodes import STARTUP_PATHS, BrokerId
from zk.znodes import Endpoint as ZkEndpoint

logger = logging.getLogger(__name__)

CONVERSION_THREADS = 2
"""For batches that take long to check, and records for old readers: of the one, a codec works
beside Python; of the other all is Python, and a third thread would only be in the way."""


class BrokerStopped(Exception):
    """The broker has had to stop by itself; the text says why."""


class Broker:
    """A broker's life: `start`, then `run_until` told to stop, then always `close`."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        now_ms: Callable[[], int] = wall_clock_ms,
        zk: ZkSession | None = None,
        chance: random.Random | None = None,
        open_directory: Callable[[str], Directory] = LogDirectory,
        bind: Bind = bound_socket,
        workers: Workers | None = None,
    ) -> None:
        self.config = config
        self.bootstrap = ""
        self._now_ms = now_ms
        self._zk: ZkSession = zk or KazooSession(
            config.zookeeper_connect,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            connection_timeout_ms=config.zookeeper_connection_timeout_ms,
            create_chroot=True,
        )
        self._chance = chance or random.Random()
        self._open_directory = open_directory
        self._bind = bind
        self._workers: Workers = workers or WorkerPool()
        self._executor = ThreadPoolExecutor(config.num_io_threads, "disk")
        self._converter = ThreadPoolExecutor(CONVERSION_THREADS, "conversion")
        self._not_serving = contextlib.ExitStack()  # gives up logs that nobody served
        self._purgatory = Purgatory()
        session_id = partial(self._chance.randint, 1, MAX_EPOCH)
        self._fetch_sessions = FetchSessions(config.fetch_session_slots, session_id)
        self._cache = MetadataCache()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runner: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self._fatal: BaseException | None = None
        self._tasks = Tasks()

    async def start(self) -> None:
        """Serve. Raises what keeps this broker from it: OSError, ZkError, SettingError,
        LogDirectoryError, InconsistentMetaProperties, AlreadyRegistered."""
        assert self._runner is None, "a broker is started once"
        self._loop = asyncio.get_running_loop()
        self._runner = asyncio.create_task(self._run(), name="broker")
        ready = asyncio.ensure_future(self._ready.wait())
        await asyncio.wait({ready, self._runner}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if self._fatal is not None:
            raise self._fatal

    async def run_until(self, stop: asyncio.Event) -> None:
        """Return when `stop` is set. Raises BrokerStopped when the broker had to stop itself."""
        assert self._runner is not None
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait({stopped, self._runner}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if self._fatal is not None:
            raise BrokerStopped(str(self._fatal)) from self._fatal

    async def close(self) -> None:
        """Shut down in good order: what was acknowledged is on disk, the logs are closed clean."""
        self._stopping.set()
        if self._runner is not None:
            if not self._ready.is_set():
                self._runner.cancel()
            await asyncio.wait({self._runner})
        self._executor.shutdown(wait=False)
        self._converter.shutdown(wait=False, cancel_futures=True)

    def _monotonic_ms(self) -> int:
        """The clock for intervals, which nobody sets: the loop's own. `now_ms` is the wall clock,
        for records and what is shown of them."""
        assert self._loop is not None
        return int(self._loop.time() * 1000)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group, contextlib.AsyncExitStack() as parts:
            self._tasks.group = group
            parts.callback(self._tasks.cancel)
            try:
                await self._assemble(parts)
            except Exception as error:
                self._fatal = error
                return
            self._ready.set()
            await self._stopping.wait()

    # ---- assembly, in order

    async def _assemble(self, parts: contextlib.AsyncExitStack) -> None:
        zk = self._zk
        await zk.start()
        parts.push_async_callback(zk.close)
        for path in STARTUP_PATHS:
            await zk.ensure_path(path)
        cluster = await identity.get_or_create_cluster_id(zk)
        touch, spawn, now_ms = self._purgatory.touch, self._tasks.spawn, self._now_ms
        monotonic_ms = self._monotonic_ms
        configs = TopicConfigs(zk, self.config.log, spawn, touch)
        logs = await self._load_logs(parts, cluster, configs)
        config = self.config
        peers = Peers(config, self._cache, zk, spawn, now_ms)

        broker_configs = BrokerConfigs(zk, config, spawn)
        quotas = ReplicationQuotas.measured(
            config.broker_id,
            monotonic_ms,
            between=config.replication_quota_windows,
            within=config.alter_log_dirs_quota_windows,
        )
        work = LogWork(self._executor)
        flusher = Flusher(work, spawn, monotonic_ms)
        isr_writer = IsrWriter(zk, spawn, monotonic_ms)
        fetchers = peers.create_fetchers(quotas.follower, work)
        replicas = self._replicas(logs, configs, flusher, isr_writer, fetchers)
        on_disk = asyncio.Lock()
        moves = DirectoryMoves(replicas, quotas.directories, work, spawn, now_ms, on_disk)
        replicas.on_leadership(moves.resume)
        self._not_serving.pop_all()
        parts.push_async_callback(self._close_logs, logs, replicas)

        handlers: dict[ApiKey, Handler] = {}
        dispatcher = Dispatcher(handlers, now_ms, monotonic_ms)
        gate = ControlGate(lambda: registration.epoch, config.inter_broker_listener)
        listener = Listener(
            config,
            dispatcher,
            self._purgatory,
            spawn,
            self._bind,
            gate.is_controller,
            self._executor,
        )
        parts.push_async_callback(listener.close)
        registration = self._registration(listener.bind())
        controller = self._controller(registration, peers)
        cleaner = Cleaner(
            logs,
            replicas.high_watermark_if_here,
            self._workers,
            config.cleaner,
            spawn,
            now_ms,
            work,
        )
        effects = ConfigEffects(
            configs, broker_configs, replicas, quotas, controller, cleaner, spawn
        )
        await effects.start(ConfigChanges(zk, spawn))
        handled = self._handled(
            cluster, gate, configs, broker_configs, quotas, replicas, work, moves, controller
        )
        handlers.update(handler_table(handled))
        await registration.register()
        await handled.creator.start()
        parts.push_async_callback(handled.creator.close)
        await listener.serve()
        await controller.start()
        parts.push_async_callback(controller.close)
        self._housekeeping(logs, replicas, flusher, isr_writer, listener, work, on_disk).start()
        if config.cleaner.enable:
            cleaner.start()
            parts.push_async_callback(cleaner.close)
        parts.push_async_callback(peers.controlled_shutdown(registration).prepare)

    def _handled(
        self,
        cluster: str,
        gate: ControlGate,
        configs: TopicConfigs,
        broker_configs: BrokerConfigs,
        quotas: ReplicationQuotas,
        replicas: ReplicaManager,
        work: LogWork,
        moves: DirectoryMoves,
        controller: Controller,
    ) -> Parts:
        """What the handlers work with: these, and what nobody else needs."""
        config, zk, touch, spawn = self.config, self._zk, self._purgatory.touch, self._tasks.spawn
        creator = TopicCreator(zk, racks=self._cache.racks, touch=touch, rng=self._chance)
        deferred = Deferred(spawn, touch, self._converter)
        partitions = self._cache.partition_indexes
        return Parts(
            config,
            cluster,
            zk,
            self._cache,
            gate,
            configs,
            broker_configs,
            quotas.leader,
            replicas,
            controller,
            creator,
            AutomaticTopics(creator, self._cache, config),
            self._coordinator(replicas, configs),
            ZooKeeperOffsets(zk, deferred, partitions, config.offsets.commit_timeout_ms),
            ProducerIds(zk, config.broker_id, spawn, touch),
            deferred,
            touch,
            self._now_ms,
            self._fetch_sessions,
            moves,
            ControlWork(
                replicas, spawn, touch, work, self._monotonic_ms, config.request_timeout_ms
            ),
        )

    def _housekeeping(
        self,
        logs: LogManager,
        replicas: ReplicaManager,
        flusher: Flusher,
        isr_writer: IsrWriter,
        listener: Listener,
        work: LogWork,
        on_disk: asyncio.Lock,
    ) -> Housekeeping:
        return Housekeeping(
            self.config,
            logs,
            replicas,
            flusher,
            isr_writer,
            LogFailures(self._zk, self.config.broker_id),
            listener,
            work,
            self._tasks.spawn,
            self._now_ms,
            self._monotonic_ms,
            self._fail,
            on_disk,
        )

    async def _load_logs(
        self, parts: contextlib.AsyncExitStack, cluster: str, configs: TopicConfigs
    ) -> LogManager:
        """Open the logs, and become the broker that they are of."""
        config = self.config
        logs = LogManager(
            [self._open_directory(path) for path in config.directories],
            config.log,
            self._monotonic_ms,
            recovery_threads=config.num_recovery_threads_per_data_dir,
            closing_threads=config.num_io_threads,
        )
        parts.enter_context(self._not_serving)
        self._not_serving.callback(logs.close, clean=False)
        known_id = identity.check_disks(config, logs, cluster)
        log_config = await self._stored_log_config(known_id)
        logs.defaults = log_config
        configs.set_defaults(log_config)
        topics = await read_all_topic_settings(self._zk)
        log_configs = {topic: settings.over(log_config) for topic, settings in topics.items()}
        await asyncio.get_running_loop().run_in_executor(self._executor, logs.load, log_configs)
        here = {topic_partition.topic for topic_partition in logs.logs}
        configs.load({topic: topics.get(topic, NO_SETTINGS) for topic in here})
        broker_id = await identity.assign_broker_id(self._zk, config, logs, cluster)
        self.config = attrs.evolve(config, broker_id=broker_id)
        return logs

    async def _stored_log_config(self, broker_id: int) -> LogConfig:
        """What logs without settings of their own are held to: recovery has to know, as much as of
        a topic's own, whether they may have been compacted."""
        configs = BrokerConfigs(
            self._zk, attrs.evolve(self.config, broker_id=broker_id), self._tasks.spawn
        )
        await configs.read()
        return configs.now.log

    def _replicas(
        self,
        logs: LogManager,
        configs: TopicConfigs,
        flusher: Flusher,
        isr_writer: IsrWriter,
        fetchers: ReplicaFetchers,
    ) -> ReplicaManager:
        replicas = ReplicaManager(
            self.config.broker_id,
            logs,
            configs.get,
            PartitionWaits(self._purgatory, self._fetch_sessions),
            flusher.start,
            fetchers,
            isr_writer.write,
            self._monotonic_ms,
            self.config.replica_lag_time_max_ms,
            checkpointed=logs.read_high_watermarks(),
        )
        replicas.write_back = fetchers.work.write_back
        fetchers.appended = replicas.replicated
        isr_writer.owner = replicas.in_sync
        flusher.flushed = replicas.flushed
        return replicas

    def _registration(self, ports: Mapping[str, int]) -> Registration:
        """What others are told of this broker, listening on these ports."""
        told = [
            Endpoint(each.listener, each.host or own_host_name(), each.port or ports[each.listener])
            for each in self.config.advertised
        ]
        self.bootstrap = f"{told[0].host}:{told[0].port}"
        return Registration(
            self._zk,
            self.config.broker_id,
            BrokerId(
                endpoints=tuple(ZkEndpoint(each.listener, each.host, each.port) for each in told),
                timestamp_ms=self._now_ms(),
                rack=self.config.broker_rack,
            ),
            self.config.zookeeper_session_timeout_ms,
        )

    def _controller(self, registration: Registration, peers: Peers) -> Controller:
        async def register_again() -> None:
            try:
                await registration.register()
            except AlreadyRegistered as error:
                self._fail(error)
                raise

        return Controller(
            self._zk,
            broker_id=self.config.broker_id,
            register=register_again,
            connect=peers.connect,
            now_ms=self._now_ms,
            inter_broker_listener=self.config.inter_broker_listener,
            delete_topic_enable=self.config.delete_topic_enable,
            unclean_leader_election_enable=self.config.log.unclean_leader_election_enable,
            rebalance=self.config.leader_rebalance,
        )

    def _coordinator(self, replicas: ReplicaManager, configs: TopicConfigs) -> GroupCoordinator:
        coordinator = GroupCoordinator(
            ReplicatedLog(replicas, OFFSETS_TOPIC),
            self.config.offsets,
            num_partitions=lambda: self._cache.partition_count(OFFSETS_TOPIC),
            now_ms=self._now_ms,
            spawn=self._tasks.spawn,
            value_version=offset_value_version(self.config.inter_broker_protocol_version),
            on_response=self._purgatory.touch,
        )

        leadership = TopicLeadership(OFFSETS_TOPIC, coordinator, configs.get)

        def changed(topic: str, config: LogConfig) -> None:
            replicas.update_config(topic, config)
            leadership.config_changed(topic, config)

        replicas.on_leadership(leadership.taken)
        configs.changed = changed
        interval_ms = self.config.offsets.retention_check_interval_ms
        self._tasks.spawn(
            run_every(interval_ms, "expiry of committed offsets", coordinator.expire_offsets)
        )
        return coordinator

    async def _close_logs(self, logs: LogManager, replicas: ReplicaManager) -> None:
        """Nobody comes to a log any more. The loop goes on while they are flushed: the session
        with ZooKeeper lives, and what others ask of it is answered."""
        self._purgatory.expire_all()
        await self._tasks.end()
        known = replicas.leadership_known
        watermarks = replicas.watermarks_to_checkpoint() if known else None

        def close() -> None:
            self._executor.shutdown(wait=True, cancel_futures=True)  # no fsync of a closed file
            if watermarks is not None:
                logs.checkpoint_high_watermarks(watermarks)
            logs.close(clean=True)

        with ThreadPoolExecutor(1, "closing") as thread:
            await asyncio.get_running_loop().run_in_executor(thread, close)

    def _fail(self, error: BaseException) -> None:
        logger.critical("the broker stops: %s", error)
        self._fatal = error
        self._stopping.set()
