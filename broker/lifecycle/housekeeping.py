"""What a broker does again and again for as long as it runs: flush, retain, checkpoint, look."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import attrs

from broker.cluster.log_failures import LogFailures
from broker.lifecycle.periodic import run_every
from broker.network.listener import Listener
from broker.replication.flusher import Flusher
from broker.replication.isr_writer import NOTIFY_INTERVAL_MS, IsrWriter
from broker.replication.partition import Partition
from broker.replication.replica_manager import ReplicaManager
from broker.replication.replication_failures import told_of
from broker.settings.config import BrokerConfig
from core_log.log_dir import LogDir
from core_log.log_manager import LogDirectoryError, LogManager
from core_log.log_work import LogWork
from protocol.errors import ApiError

logger = logging.getLogger(__name__)

LOGS_A_TURN = 100
"""Logs that retention looks at in one turn of the loop."""
OFTEN_MS = 1000
"""How often due flushes, deletions and idle connections are looked for."""
PRODUCER_EXPIRATION_CHECK_MS = 600_000
"""How often producers are looked for that have been silent too long."""
ROOM_MS = 3000
"""How often room is looked for on disks that are full."""
STARTS_MS = 60_000
"""How often replicas that are idle tell each other where their logs begin."""
TROUBLE_MS = 60_000
"""How often it is said which replicas cannot follow their leaders."""
NEVER_MS = 2**53


@attrs.define(eq=False)
class Housekeeping:
    """`spawn` runs a task of the broker, `work` has the threads for the disk, `fail` ends the
    broker. `on_disk` is held while checkpoints are written."""

    config: BrokerConfig
    logs: LogManager
    replicas: ReplicaManager
    flusher: Flusher
    isr_writer: IsrWriter
    log_failures: LogFailures
    listener: Listener
    work: LogWork
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    now_ms: Callable[[], int]
    monotonic_ms: Callable[[], int]
    fail: Callable[[BaseException], None]
    on_disk: asyncio.Lock

    def start(self) -> None:
        """Begin, each with its own interval."""
        config = self.config
        duties: list[tuple[float, str, Callable[[], Any]]] = [
            (min(config.log_flush_scheduler_interval_ms, OFTEN_MS), "flushing", self._flush),
            (OFTEN_MS, "file deletion", self._delete_files),
            (OFTEN_MS, "closing idle connections", self._close_idle),
            (config.log_retention_check_interval_ms, "retention", self._retain),
            (PRODUCER_EXPIRATION_CHECK_MS, "expiry of producers", self._expire_producers),
            (
                config.log_flush_offset_checkpoint_interval_ms,
                "recovery point checkpoint",
                partial(self._in_thread, self.logs.checkpoint_recovery_points),
            ),
            (
                config.replica_high_watermark_checkpoint_interval_ms,
                "high watermark checkpoint",
                partial(self._in_thread, self.checkpoint_high_watermarks),
            ),
            (config.replica_lag_time_max_ms / 2, "check of in-sync replicas", self._check_isr),
            (OFTEN_MS, "looking after failed disks", self._probe_suspects),
            (ROOM_MS, "looking for room", self._look_for_room),
            (OFTEN_MS, "telling of failed logs", self._report_failures),
            (STARTS_MS, "telling of log starts", self.replicas.tell_of_starts),
            (TROUBLE_MS, "telling of replicas that cannot follow", self._tell_of_trouble),
            (NOTIFY_INTERVAL_MS, "telling of in-sync replicas", self.isr_writer.notify),
        ]
        for interval_ms, name, work in duties:
            if interval_ms < NEVER_MS:
                self.spawn(run_every(interval_ms, name, work))

    def checkpoint_high_watermarks(self) -> None:
        """Write them, once it is known which partitions this broker has."""
        if self.replicas.leadership_known:
            self.logs.checkpoint_high_watermarks(self.replicas.watermarks_to_checkpoint())

    async def _in_thread(self, work: Callable[[], None]) -> None:
        async with self.on_disk:
            await self.work.in_thread(work)

    def _flush(self) -> None:
        monotonic_ms = self.monotonic_ms()
        for found in self.replicas.partitions.values():
            if found.log.is_flush_due(monotonic_ms):
                self.flusher.start(found)

    async def _delete_files(self) -> None:
        await self._in_thread(self.logs.begin_tick(self.monotonic_ms()).run)

    def _close_idle(self) -> None:
        self.listener.close_idle(asyncio.get_running_loop().time())
        self.listener.share_memory()

    async def _retain(self) -> None:
        """Apply retention to the logs that are not the cleaner's, some of them a turn."""
        for number, partition in enumerate(list(self.replicas.partitions.values()), start=1):
            log = partition.log
            is_cleaners = self.config.cleaner.enable and log.config.compacts
            is_kept = log.guard.failure is not None or self.work.is_turn_taken(log)
            if not (is_cleaners or is_kept):
                await self._retain_log(partition)
            if number % LOGS_A_TURN == 0:
                await asyncio.sleep(0)

    async def _retain_log(self, partition: Partition) -> None:
        """Let go of old segments; a failure has been logged, and the log takes no more."""
        with contextlib.suppress(ApiError):
            await self.work.retain(partition.log, partition.high_watermark, self.now_ms())

    def _expire_producers(self) -> None:
        self.logs.expire_producers(self.now_ms(), self.config.transactional_id_expiration_ms)

    async def _probe_suspects(self) -> None:
        for log_dir in self.logs.suspect_dirs():
            try:
                await self._in_thread(log_dir.probe)
                log_dir.clear_suspicion()
            except OSError as error:
                self._take_offline(log_dir, error)

    def _take_offline(self, log_dir: LogDir, error: OSError) -> None:
        self.logs.take_offline(log_dir, error)
        if not self.logs.by_directory():
            self.fail(LogDirectoryError(f"no log directory is left: {self.logs.offline_dirs}"))

    async def _look_for_room(self) -> None:
        """Have what lacked room go on where there is some."""
        for log_dir in self.logs.full_dirs():
            log_dir.report_full()
            try:
                await self._in_thread(log_dir.probe_room)
                log_dir.resume_writes()
                self.log_failures.note_room()
            except OSError as error:
                log_dir.note_error(error)

    async def _report_failures(self) -> None:
        await self.log_failures.report(list(self.replicas.partitions.values()))

    def _tell_of_trouble(self) -> None:
        troubled = self.replicas.followers.troubled()
        if troubled:
            logger.warning("%s", told_of(troubled))

    def _check_isr(self) -> None:
        self.replicas.in_sync.check(self.monotonic_ms())
