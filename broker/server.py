"""One broker, assembled: each wing is built here, and given exactly what it uses.

Start, in Kafka's order: ZooKeeper → cluster id → logs (recovered where needed) → the port is bound
→ registration → serving → election. So no request is served before ZooKeeper knows the broker, and
the controller's first requests, even to its own broker, come over the wire like any other. Stop is
the reverse: leadership and the controller's place go to other brokers, requests end, the logs are
closed clean, and the registration ends with the session.

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

from broker.authentication.inter_broker import own_login
from broker.authentication.logins import prepare_logins
from broker.authorization.acl_authorizer import AclAuthorizer
from broker.cluster import assembly as cluster_wing
from broker.cluster import identity
from broker.cluster.ghost_partitions import GHOST_CHECK_MS, GhostPartitions
from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.peers import Peers
from broker.coordinators import assembly as coordinators_wing
from broker.handler_table import (
    AdminHandlers,
    ControlHandlers,
    GroupHandlers,
    LogHandlers,
    ProducerHandlers,
    handler_table,
    run_ways,
    short_ways,
)
from broker.lifecycle import assembly as lifecycle
from broker.metrics import assembly as metrics_wing
from broker.metrics.counts import Counts
from broker.metrics.sources import LoopLoad, SessionChanges, Sources
from broker.network.authorization import Authorizer
from broker.network.deferred import LONG_ANSWERS, THREADS, Deferred
from broker.network.dispatch import Dispatch, Dispatcher
from broker.network.fair_line import FairLine
from broker.network.large_requests import WAITING_PART, LargeRequests
from broker.network.listener import Bind, Listener, bind_socket
from broker.network.own_requests import OwnRequests
from broker.network.purgatory import Purgatory
from broker.process.periodic import run_every
from broker.process.process import Process
from broker.process.process_limits import monotonic_ns, wall_clock_ms
from broker.process.signals import Signals
from broker.process.tasks import Tasks
from broker.quotas.assembly import follow_quotas
from broker.replication import assembly as replication_wing
from broker.replication.control_gate import ControlGate
from broker.replication.partition import Partition
from broker.settings import assembly as settings_wing
from broker.settings.config import BrokerConfig
from broker.settings.tls_contexts import TlsContexts
from broker.settings.topic_configs import TopicConfigs
from compaction.worker_pool import WorkerPool, Workers
from core_log.directory import LogDirectory
from core_log.log_work import LogWork
from core_log.storage import Directory
from protocol.api_key import ApiKey
from protocol.metrics import Metrics
from protocol.topic_partition import TopicPartition
from zk.api import ZkSession
from zk.login import login_of
from zk.session import KazooSession
from zk.znodes import STARTUP_PATHS

logger = logging.getLogger(__name__)


class BrokerStopped(Exception):
    """The broker had to stop by itself; the text says why."""


class Broker:
    """A broker process, or several in one process.

    Call `start`, then `run_until`, then always `close`. `authorizer` takes the place of the one
    that the settings ask for.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        now_ms: Callable[[], int] = wall_clock_ms,
        zk: ZkSession | None = None,
        rng: random.Random | None = None,
        open_directory: Callable[[str], Directory] = LogDirectory,
        bind: Bind = bind_socket,
        workers: Workers | None = None,
        authorizer: Authorizer | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.config = config
        self.metrics = metrics or Metrics()
        self.bootstrap = ""
        self.partitions: Mapping[TopicPartition, Partition] = {}
        """The replicas of this broker, once its logs are open."""
        self.acls: AclAuthorizer | None = None
        """The ACLs by which it decides, if the settings ask for an authorizer."""

        # The world outside, which tests replace.
        self._zk: ZkSession = zk or KazooSession(
            config.zookeeper_connect,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            connection_timeout_ms=config.zookeeper_connection_timeout_ms,
            create_chroot=True,
            login=login_of(config, keeps_nodes=config.zookeeper_set_acl),
        )
        self._open_directory = open_directory
        self._bind = bind
        self._workers: Workers = workers or WorkerPool()
        self._authorizer = authorizer

        # Parts that exist before the wings.
        self._purgatory = Purgatory()
        self._cache = MetadataCache()
        self._tasks = Tasks()
        self._disk = ThreadPoolExecutor(config.num_io_threads, "disk")
        self._conversion = ThreadPoolExecutor(THREADS, "conversion")
        self._process = Process(
            spawn=self._tasks.spawn,
            touch=self._purgatory.touch,
            now_ms=now_ms,
            monotonic_ms=self._monotonic_ms,
            rng=rng or random.Random(),
            disk=self._disk,
            work=LogWork(self._disk),
            conversion=self._conversion,
            fail=self._fail,
            metrics=self.metrics,
        )

        # The state of this process: started, ready, stopping, failed.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runner: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self._fatal: BaseException | None = None

    async def start(self) -> None:
        """Return when the broker serves.

        Raises OSError, ZkError, SettingError, LogDirectoryError, InconsistentMetaProperties or
        AlreadyRegistered if it cannot serve.
        """
        assert self._runner is None, "a broker is started once"
        self._loop = asyncio.get_running_loop()
        self._runner = asyncio.create_task(self._run(), name="broker")

        # It is ready, or it has failed.
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
        """Shut down in good order: acknowledged records are on disk, the logs are closed clean."""
        self._stopping.set()
        if self._runner is not None:
            # A start that was not finished need not end in good order.
            if not self._ready.is_set():
                self._runner.cancel()
            await asyncio.wait({self._runner})
        # Not waited for: a thread may hang in a disk that does not respond.
        self._disk.shutdown(wait=False)
        self._conversion.shutdown(wait=False, cancel_futures=True)

    def _monotonic_ms(self) -> int:
        """Return the loop's clock, which is never set back."""
        assert self._loop is not None
        return int(self._loop.time() * 1000)

    def _fail(self, error: BaseException) -> None:
        logger.critical("the broker stops: %s", error)
        self._fatal = error
        self._stopping.set()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group, contextlib.AsyncExitStack() as closing:
            self._tasks.group = group
            # Undone last: no task outlives the broker.
            closing.callback(self._tasks.cancel)
            try:
                await self._assemble(closing)
            except Exception as error:
                # `start` raises it.
                self._fatal = error
                return
            self._ready.set()
            await self._stopping.wait()

    async def _assemble(self, closing: contextlib.AsyncExitStack) -> None:
        """Build the wings in order; `closing` undoes it in reverse."""
        zk = self._zk
        process = self._process
        cache = self._cache
        signals = Signals()

        # Keys that cannot be read stop the broker before anything else.
        tls = TlsContexts(process.work.in_thread)
        await tls.start(self.config)

        # ZooKeeper, and the logs, which know their broker and cluster.
        session = SessionChanges()
        zk.add_state_listener(session.count)
        await zk.start()
        closing.push_async_callback(zk.close)
        # Kafka creates these paths at the start of each broker.
        for path in STARTUP_PATHS:
            await zk.ensure_path(path)
        cluster_id = await identity.get_or_create_cluster_id(zk)
        # What cannot let anybody in should not open its logs.
        logins = await prepare_logins(self.config, process, zk)
        topic_configs = TopicConfigs(
            zk, self.config.log, process.spawn, process.touch, signals.topic_settings
        )
        opened = await lifecycle.open_logs(
            config=self.config,
            process=process,
            zk=zk,
            cluster_id=cluster_id,
            topic_configs=topic_configs,
            open_directory=self._open_directory,
            closing=closing,
        )
        config = self.config = opened.config

        # The wings.
        peers = Peers(config, cache, tls.client_context, partial(own_login, config))
        settings = settings_wing.assemble(
            config=config,
            process=process,
            signals=signals,
            zk=zk,
            topic_configs=topic_configs,
            tls=tls,
        )
        replication = replication_wing.assemble(
            config=config,
            process=process,
            signals=signals,
            zk=zk,
            logs=opened.logs,
            topic_configs=topic_configs,
            cluster_id=cluster_id,
            connect=peers.connect_to_leader,
            purgatory=self._purgatory,
        )
        self.partitions = replication.replicas.partitions
        opened.begin_serving()
        # Closing goes in reverse: the logs are closed after all that is built from here on.
        closing.push_async_callback(self._close_logs, replication)
        cluster = cluster_wing.assemble(
            cluster_id=cluster_id, config=config, process=process, zk=zk, cache=cache
        )
        # The port is bound, but no request is served before ZooKeeper knows the broker.
        listener = Listener(
            config,
            self._purgatory,
            process.spawn,
            self._bind,
            self._disk,
            open_session=logins.open_session,
            tls=tls.listeners,
            lost=replication.sessions.end_connection,
        )
        closing.push_async_callback(listener.close)
        queued = listener.queued
        answers = FairLine(LONG_ANSWERS, 1, may_enter=queued.has_room_for)
        deferred = Deferred(process.spawn, process.touch, self._conversion, answers=answers)
        most_waiting_bytes = queued.limit // WAITING_PART
        large = LargeRequests(deferred, self._purgatory, most_waiting_bytes, queued.has_room_for)
        queued.when_room += [answers.go_on, large.go_on]
        process.metrics.watch("connections", lambda: len(listener.connections))
        process.metrics.watch("parked_requests", lambda: self._purgatory.parked)
        # An administrator may have moved some while the broker ran.
        await settings.brokers.read()
        ports = listener.bind(lifecycle.stored_endpoints(settings.brokers))
        endpoints = tuple(
            endpoint
            for endpoint in lifecycle.advertised_endpoints(settings.brokers.now, ports)
            if endpoint.listener in ports
        )
        registration = lifecycle.create_registration(config, process, zk, endpoints)
        # The gate compares the broker epoch, which only the registration knows.
        gate = ControlGate(lambda: registration.epoch)
        controller = lifecycle.create_controller(config, process, zk, registration, peers)
        cleaner = lifecycle.create_cleaner(config, process, replication, self._workers)
        # The settings are followed before the cluster counts on this broker.
        await lifecycle.follow_settings(
            process=process,
            signals=signals,
            settings=settings,
            users=logins.users,
            replication=replication,
            controller=controller,
            cleaner=cleaner,
            listener=listener,
            registration=registration,
        )
        first = registration.broker.endpoints[0]
        self.bootstrap = f"{first.host}:{first.port}"

        # No request is served before it is known who may do what.
        acls = self.acls = await lifecycle.open_authorizer(config, process, zk, closing)

        # Coordinators stand on the replicas; handlers on all of it.
        coordinators = coordinators_wing.assemble(
            config=config,
            process=process,
            signals=signals,
            zk=zk,
            cluster_id=cluster_id,
            replicas=replication.replicas,
            topic_configs=topic_configs,
            cache=cache,
            peers=peers,
            create_topic=cluster.creator.create,
            producer_ids=cluster.producer_ids,
            deferred=deferred,
        )
        log_handlers = LogHandlers.of(config, replication, cluster, deferred)
        group_handlers = GroupHandlers(config, cluster, coordinators, deferred)
        producer_handlers = ProducerHandlers(
            config, cluster, coordinators, replication.replicas, deferred
        )
        control_handlers = ControlHandlers.of(
            process, signals, settings, replication, cluster, gate
        )
        handlers = handler_table(
            log_handlers,
            group_handlers,
            producer_handlers,
            control_handlers,
            AdminHandlers.of(
                config, zk, settings, logins.users, replication, cluster, controller, deferred, acls
            ),
        )

        # What this broker would ask itself needs no connection.
        def own_requests(key: ApiKey) -> OwnRequests:
            return OwnRequests(key, handlers[key], self._purgatory, process.now_ms)

        coordinators.markers.connections.here = own_requests(ApiKey.WRITE_TXN_MARKERS)
        if coordinators.verifier is not None:
            questions = own_requests(ApiKey.DESCRIBE_TRANSACTIONS)
            coordinators.verifier.connections.here = questions

        ways = short_ways(log_handlers, group_handlers)
        requests = Dispatcher(
            handlers,
            process.now_ms,
            process.monotonic_ms,
            self._authorizer or acls,
            now_ns=monotonic_ns,
            large=large,
            broker_listeners=lambda: listener.quotas.limits.protected,
            short_ways=ways,
            run_ways=run_ways(ways),
        )
        await follow_quotas(
            config=config,
            dispatcher=requests,
            connections=listener.quotas,
            process=process,
            signals=signals,
            zk=zk,
        )
        dispatcher: Dispatch = requests

        # Figures, if they are asked for: otherwise nothing is counted.
        if config.metrics_port:
            counts = Counts.of_apis(handlers)
            replication.replicas.count_append = counts.count_append
            dispatcher = metrics_wing.measure(dispatcher, counts)
            sources = Sources(
                counts=counts,
                load=LoopLoad(),
                session=session,
                replicas=replication.replicas,
                fetch_sessions=replication.sessions,
                purgatory=self._purgatory,
                listener=listener,
                controller=controller,
                coordinator=coordinators.groups,
                transactions=coordinators.transactions,
                markers=coordinators.markers,
                cleaner=cleaner,
                cache=cache,
                logins=logins.counts,
                now_ms=process.now_ms,
            )
            server = await metrics_wing.serve(config, process, self._bind, sources)
            closing.callback(server.close)

        # From here on the cluster sees the broker.
        await registration.register()
        await lifecycle.note_first_use(process, zk, registration, opened.logs)
        await cluster.creator.start()
        closing.push_async_callback(cluster.creator.close)
        await listener.serve(dispatcher, gate.is_controller)
        await controller.start()
        # Another controller is elected before the logs are closed.
        closing.push_async_callback(controller.close)
        ghosts = GhostPartitions(zk, cache, control_handlers.delete_settings, process.touch)
        process.spawn(run_every(GHOST_CHECK_MS, "removal of deleted partitions", ghosts.remove))
        lifecycle.start_housekeeping(config, process, zk, replication, listener, tls)
        if config.cleaner.enable:
            cleaner.start()
            closing.push_async_callback(cleaner.close)
        shutdown = lifecycle.create_controlled_shutdown(config, zk, registration, peers)
        # The first to be undone: leadership moves away while everything still works.
        closing.push_async_callback(shutdown.prepare)

    async def _close_logs(self, replication: replication_wing.Replication) -> None:
        """End all requests and tasks, and close the logs."""
        self._purgatory.expire_all()
        await self._tasks.end()
        await lifecycle.close_logs(self._disk, replication)
