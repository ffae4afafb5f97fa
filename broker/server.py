"""One broker, assembled: every part is made here, and given exactly what it uses.

Start, in Kafka's order: ZooKeeper → cluster id → logs (recovered where needed) → the port is bound
→ registration → serving → election. So no request is served before ZooKeeper knows the broker,
and the controller's first requests, ours to ourselves included, come over the wire like any
other. Stop is the reverse, and ends with the logs closed clean.

One task runs all of it, from `start` to `close`, and every other task is its child: a child's
failure is logged and ends that child alone, except the loss of the right to be this broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import socket
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import attrs

from broker import identity
from broker.config import BrokerConfig, Endpoint
from broker.controller.controller import Controller
from broker.controller.topic_changes import TopicDefaults, check_name
from broker.deferred import Deferred
from broker.dispatch import Dispatcher, Handler
from broker.flusher import Flusher
from broker.handlers import (
    api_versions,
    create_topics,
    delete_topics,
    describe_configs,
    describe_groups,
    fetch,
    find_coordinator,
    leader_and_isr,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
    stop_replica,
    update_metadata,
)
from broker.listener import Listener
from broker.metadata_cache import INTERNAL_TOPICS, MetadataCache
from broker.offsets_log import ReplicatedOffsetsLog
from broker.periodic import every
from broker.purgatory import Purgatory
from broker.registration import AlreadyRegistered, Registration
from broker.replica_manager import ReplicaManager
from broker.topic_configs import TopicConfigs
from broker.topic_creation import TopicCreator
from broker.zookeeper_offsets import ZooKeeperOffsets
from clients.connection import Connection
from core_log.directory import LogDirectory
from core_log.log_manager import LogManager
from groups.coordinator.coordinator import GroupCoordinator
from offsets.topic import OFFSETS_TOPIC, topic_properties
from protocol.api_key import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import TopicPartition
from zk.session import KazooSession, ZkSession
from zk.znodes import STARTUP_PATHS, BrokerId
from zk.znodes import Endpoint as ZkEndpoint

logger = logging.getLogger(__name__)

HOUSEKEEPING_MS = 1000
"""How often due flushes, deletions and idle connections are looked for."""


CONVERSION_THREADS = 1
"""Converting records for old readers is all Python: a second thread would only be in the way."""

GC_THRESHOLDS = (50_000, 20, 50)
"""A request makes thousands of objects and no cycles: look for cycles seldom."""

MAX_REPLICATION_FACTOR = 1
"""Followers do not fetch yet: a topic with more replicas could never be written with acks=all."""


def wall_clock_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def own_host_name() -> str:
    """What clients can reach this machine by, where the settings do not say: its full name, or
    the loopback address on a machine whose own name leads nowhere."""
    name = socket.getfqdn()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return "127.0.0.1"
    return name


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
    ) -> None:
        self.config = config
        self.bootstrap = ""
        self._now_ms = now_ms
        self._zk: ZkSession = zk or KazooSession(
            config.zookeeper_connect,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            connection_timeout_ms=config.zookeeper_connection_timeout_ms,
        )
        self._chance = chance or random.Random()
        self._executor = ThreadPoolExecutor(config.num_io_threads, "disk")
        self._converter = ThreadPoolExecutor(CONVERSION_THREADS, "conversion")
        self._purgatory = Purgatory()
        self._cache = MetadataCache()
        self._runner: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self._fatal: BaseException | None = None
        self._group: asyncio.TaskGroup | None = None
        self._children: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Serve. Raises what keeps this broker from it: OSError, ZkError, SettingError,
        LogDirectoryError, InconsistentMetaProperties, AlreadyRegistered."""
        assert self._runner is None, "a broker is started once"
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

    # ---- the one task

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group, contextlib.AsyncExitStack() as parts:
            self._group = group
            parts.callback(self._cancel_children)
            try:
                await self._assemble(parts)
            except Exception as error:
                self._fatal = error
                return
            gc.collect()
            gc.freeze()
            gc.set_threshold(*GC_THRESHOLDS)
            self._ready.set()
            await self._stopping.wait()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        assert self._group is not None
        task = self._group.create_task(_guarded(work))
        self._children.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._children.discard(task)
            work.close()  # which has not begun, if the task was cancelled before it did

        task.add_done_callback(ended)
        return task

    def _cancel_children(self) -> None:
        for task in list(self._children):
            task.cancel()

    def _every(self, interval_ms: float, name: str, work: Callable[[], Any]) -> None:
        if interval_ms < 2**53:
            self._spawn(every(interval_ms, name, work))

    # ---- assembly, in order

    async def _assemble(self, parts: contextlib.AsyncExitStack) -> None:
        config, zk = self.config, self._zk
        await zk.start()
        parts.push_async_callback(zk.close)
        for path in STARTUP_PATHS:
            await zk.ensure_path(path)
        cluster = await identity.cluster_id(zk)

        logs = LogManager(
            [LogDirectory(path) for path in config.directories],
            config.log,
            self._now_ms,
            recovery_threads=config.num_recovery_threads_per_data_dir,
        )
        not_serving = parts.enter_context(contextlib.ExitStack())
        not_serving.callback(logs.close, clean=False)
        identity.refuse_foreign_disks(config, logs, cluster)
        await asyncio.get_running_loop().run_in_executor(self._executor, logs.load)
        broker_id = await identity.broker_id(zk, config, logs, cluster)
        self.config = config = attrs.evolve(config, broker_id=broker_id)

        configs = TopicConfigs(zk, config.log, self._spawn, self._purgatory.touch)
        flusher = Flusher(self._executor, self._spawn, self._now_ms)
        replicas = ReplicaManager(
            broker_id,
            logs,
            configs.get,
            self._purgatory.touch,
            flusher.start,
            checkpointed=logs.read_high_watermarks(),
        )
        flusher.flushed = replicas.flushed
        configs.changed = replicas.update_config
        not_serving.pop_all()
        parts.callback(self._close_logs, logs, replicas)
        await configs.start()

        handlers: dict[ApiKey, Handler] = {}
        dispatcher = Dispatcher(handlers, self._now_ms)
        listener = Listener(config, dispatcher, self._purgatory, self._spawn)
        parts.push_async_callback(listener.close)
        advertised = self._advertise(listener.bind())

        registration = Registration(
            zk,
            broker_id,
            BrokerId(
                endpoints=(ZkEndpoint(advertised.listener, advertised.host, advertised.port),),
                timestamp_ms=self._now_ms(),
            ),
            config.zookeeper_session_timeout_ms,
        )
        controller = self._controller(broker_id, registration)
        creator = TopicCreator(
            zk,
            racks=lambda: {b.id: b.rack for b in self._cache.brokers.values()},
            touch=self._purgatory.touch,
            chance=self._chance,
            max_replication_factor=MAX_REPLICATION_FACTOR,
        )
        coordinator = self._coordinator(replicas)
        handlers.update(
            self._handlers(cluster, configs, replicas, controller, creator, coordinator)
        )
        await registration.register()
        await creator.start()
        parts.push_async_callback(creator.close)
        await listener.serve()
        await controller.start()
        parts.push_async_callback(controller.close)
        self._start_housekeeping(logs, replicas, flusher, listener)

    def _advertise(self, port: int) -> Endpoint:
        told = self.config.advertised
        found = Endpoint(told.listener, told.host or own_host_name(), told.port or port)
        self.bootstrap = f"{found.host}:{found.port}"
        return found

    def _controller(self, broker_id: int, registration: Registration) -> Controller:
        async def register_again() -> None:
            try:
                await registration.register()
            except AlreadyRegistered as error:
                self._fail(error)
                raise

        async def connect(host: str, port: int) -> Connection:
            return await Connection.open(
                host,
                port,
                client_id=str(broker_id),
                request_timeout_ms=self.config.controller_socket_timeout_ms,
            )

        return Controller(
            self._zk,
            broker_id=broker_id,
            register=register_again,
            connect=connect,
            now_ms=self._now_ms,
            inter_broker_listener=self.config.endpoint.listener,
            delete_topic_enable=self.config.delete_topic_enable,
            unclean_leader_election_enable=self.config.log.unclean_leader_election_enable,
        )

    def _coordinator(self, replicas: ReplicaManager) -> GroupCoordinator:
        coordinator = GroupCoordinator(
            ReplicatedOffsetsLog(replicas),
            self.config.offsets,
            num_partitions=lambda: self._cache.partition_count(OFFSETS_TOPIC),
            now_ms=self._now_ms,
            spawn=self._spawn,
        )

        def leadership(leaders: list[TopicPartition], followers: list[TopicPartition]) -> None:
            coordinator.on_leadership(
                {tp.partition for tp in leaders if tp.topic == OFFSETS_TOPIC},
                {tp.partition for tp in followers if tp.topic == OFFSETS_TOPIC},
            )

        replicas.on_leadership(leadership)
        return coordinator

    def _handlers(
        self,
        cluster: str,
        configs: TopicConfigs,
        replicas: ReplicaManager,
        controller: Controller,
        creator: TopicCreator,
        coordinator: GroupCoordinator,
    ) -> dict[ApiKey, Handler]:
        """Who serves what, with what: the map of who touches what."""
        config, cache, touch = self.config, self._cache, self._purgatory.touch
        deferred = Deferred(self._spawn, touch, self._converter)
        zookeeper = ZooKeeperOffsets(
            self._zk, deferred, cache.partition_indexes, config.offsets.commit_timeout_ms
        )
        create = partial(self._auto_create, creator)
        defaults = TopicDefaults(
            config.num_partitions, config.default_replication_factor, config.log
        )

        def deleted(partitions: list[TopicPartition]) -> None:
            for topic in {tp.topic for tp in partitions}:
                configs.forget(topic)

        table: dict[ApiKey, Handler] = {
            ApiKey.PRODUCE: partial(produce.handle, replicas, cache, deferred),
            ApiKey.FETCH: partial(fetch.handle, replicas, cache, config.fetch_max_bytes, deferred),
            ApiKey.LIST_OFFSETS: partial(list_offsets.handle, replicas, cache),
            ApiKey.METADATA: partial(
                metadata.handle,
                cache,
                cluster,
                create if config.auto_create_topics_enable else self._internal_only(create),
            ),
            ApiKey.LEADER_AND_ISR: partial(
                leader_and_isr.handle, replicas, configs, config.request_timeout_ms
            ),
            ApiKey.STOP_REPLICA: partial(stop_replica.handle, replicas),
            ApiKey.UPDATE_METADATA: partial(
                update_metadata.handle, cache, replicas, touch, deleted
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
            ApiKey.CREATE_TOPICS: partial(
                create_topics.handle, controller, creator, cache, defaults
            ),
            ApiKey.DELETE_TOPICS: partial(
                delete_topics.handle, controller, cache, config.delete_topic_enable
            ),
            ApiKey.DESCRIBE_CONFIGS: partial(describe_configs.handle, cache, config, configs),
        }
        served = api_versions.served([*table, ApiKey.API_VERSIONS])
        table[ApiKey.API_VERSIONS] = partial(api_versions.handle, served)
        return table

    def _auto_create(self, creator: TopicCreator, name: str) -> None:
        """Begin to create a topic that somebody asked about. Raises ApiError."""
        if name in INTERNAL_TOPICS:
            if name != OFFSETS_TOPIC:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
            offsets = self.config.offsets
            creator.create(
                name,
                offsets.topic_num_partitions,
                offsets.topic_replication_factor,
                topic_properties(offsets),
            )
            return
        check_name(name, self._cache.topics())
        creator.create(name, self.config.num_partitions, self.config.default_replication_factor)

    @staticmethod
    def _internal_only(create: Callable[[str], None]) -> Callable[[str], None]:
        def create_internal(name: str) -> None:
            if name not in INTERNAL_TOPICS:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
            create(name)

        return create_internal

    # ---- from then on

    def _start_housekeeping(
        self, logs: LogManager, replicas: ReplicaManager, flusher: Flusher, listener: Listener
    ) -> None:
        config, loop = self.config, asyncio.get_running_loop()

        def flush_due() -> None:
            now_ms = self._now_ms()
            for found in replicas.partitions.values():
                if found.log.flush_due(now_ms):
                    flusher.start(found)

        def retain() -> None:
            logs.delete_old_segments(replicas.high_watermarks(), self._now_ms())

        one_at_a_time = asyncio.Lock()

        async def on_disk(work: Callable[[], None]) -> None:
            async with one_at_a_time:
                await loop.run_in_executor(self._executor, work)

        async def delete_files() -> None:
            async with one_at_a_time:
                logs.tick(self._now_ms())

        def checkpoint_high_watermarks() -> Coroutine[Any, Any, None]:
            return on_disk(partial(self._checkpoint_high_watermarks, logs, replicas))

        def checkpoint_recovery_points() -> Coroutine[Any, Any, None]:
            return on_disk(logs.checkpoint_recovery_points)

        flush_every = min(config.log_flush_scheduler_interval_ms, HOUSEKEEPING_MS)
        self._every(flush_every, "flushing", flush_due)
        self._every(HOUSEKEEPING_MS, "file deletion", delete_files)
        self._every(
            HOUSEKEEPING_MS, "closing idle connections", lambda: listener.close_idle(loop.time())
        )
        self._every(config.log_retention_check_interval_ms, "retention", retain)
        self._every(
            config.log_flush_offset_checkpoint_interval_ms,
            "recovery point checkpoint",
            checkpoint_recovery_points,
        )
        self._every(
            config.replica_high_watermark_checkpoint_interval_ms,
            "high watermark checkpoint",
            checkpoint_high_watermarks,
        )

    @staticmethod
    def _checkpoint_high_watermarks(logs: LogManager, replicas: ReplicaManager) -> None:
        if replicas.leadership_known:
            logs.checkpoint_high_watermarks(replicas.high_watermarks())

    def _close_logs(self, logs: LogManager, replicas: ReplicaManager) -> None:
        self._purgatory.expire_all()
        self._cancel_children()
        self._executor.shutdown(wait=True, cancel_futures=True)  # no fsync of a closed file
        self._checkpoint_high_watermarks(logs, replicas)
        logs.close(clean=True)

    def _fail(self, error: BaseException) -> None:
        logger.critical("the broker stops: %s", error)
        self._fatal = error
        self._stopping.set()


async def _guarded(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:
        logger.exception("a task of the broker failed")
