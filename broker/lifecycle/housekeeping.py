"""The periodic work of a broker: flush, retain, write checkpoints, check disks and replicas."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import attrs

from broker.cluster.log_failures import LogFailures
from broker.network.listener import Listener
from broker.process.freed_memory import (
    FIRST_PAUSE_MS,
    FreedMemory,
    give_back,
    resident_bytes,
)
from broker.process.loop_turns import LoopTurns
from broker.process.periodic import run_every
from broker.replication.flusher import Flusher
from broker.replication.isr_writer import NOTIFY_INTERVAL_MS, IsrWriter
from broker.replication.partition import Partition
from broker.replication.replica_manager import ReplicaManager
from broker.replication.replication_failures import describe_failures
from broker.replication.set_aside_logs import SetAsideLogs
from broker.settings.config import BrokerConfig
from broker.settings.tls_contexts import TlsContexts
from core_log.log_dir import LogDir
from core_log.log_manager import LogDirectoryError, LogManager
from core_log.log_work import LogWork
from protocol.errors import ApiError

logger = logging.getLogger(__name__)

PRODUCERS_PER_TURN = 5_000
"""Producers that are looked at for their expiry in one turn of the loop."""
LOGS_PER_TURN = 100
"""The logs that retention checks in one turn of the loop."""
TICK_MS = 1000
"""The interval of due flushes, file deletions, idle connections and failed disks."""
PRODUCER_EXPIRATION_CHECK_MS = 600_000
"""How often producers expire that have been silent too long."""
ROOM_CHECK_MS = 3000
"""How often full disks are checked for room."""
LOG_STARTS_MS = 60_000
"""How often idle replicas tell each other where their logs begin."""
TROUBLE_LOG_MS = 60_000
"""How often the log names the replicas that cannot follow their leaders."""
SET_ASIDE_CHECK_MS = 3_600_000
"""How often logs of earlier topics are removed that were set aside long ago."""
CERTIFICATES_MS = 10_000
"""How often the files of certificates and keys are looked at."""
NEVER_MS = 2**53
"""An interval from here on is none: the work is never done."""


@attrs.define(eq=False)
class Housekeeping:
    """The periodic work of one broker.

    `spawn` runs a task of the broker, `work` has the threads for the disk, `fail` stops the broker.
    `checkpoint_lock` is held while checkpoints are written.
    """

    config: BrokerConfig
    logs: LogManager
    replicas: ReplicaManager
    set_aside: SetAsideLogs
    flusher: Flusher
    isr_writer: IsrWriter
    log_failures: LogFailures
    listener: Listener
    tls: TlsContexts
    work: LogWork
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    now_ms: Callable[[], int]
    monotonic_ms: Callable[[], int]
    fail: Callable[[BaseException], None]
    checkpoint_lock: asyncio.Lock

    def start(self) -> None:
        """Start each kind of work, with its own interval."""
        config = self.config
        duties: list[tuple[float, str, Callable[[], Any]]] = [
            # Every second.
            (min(config.log_flush_scheduler_interval_ms, TICK_MS), "flushing", self._flush),
            (TICK_MS, "file deletion", self._delete_files),
            (TICK_MS, "closing idle connections", self._close_idle),
            # Retention and expiry.
            (config.log_retention_check_interval_ms, "retention", self._retain),
            (SET_ASIDE_CHECK_MS, "removal of logs of earlier topics", self.set_aside.remove_due),
            (PRODUCER_EXPIRATION_CHECK_MS, "expiry of producers", self._expire_producers),
            # Checkpoints: where recovery begins, and what may be read after a start.
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
            # Half of it, as in Kafka: a silent follower is out after 1.5 times this at most.
            (config.replica_lag_time_max_ms / 2, "check of in-sync replicas", self._check_isr),
            # Disks.
            (TICK_MS, "check of failed disks", self._probe_suspects),
            (ROOM_CHECK_MS, "check of full disks", self._look_for_room),
            (TICK_MS, "report of failed logs", self._report_failures),
            # Reports.
            (LOG_STARTS_MS, "report of log starts", self.replicas.announce_log_starts),
            (TROUBLE_LOG_MS, "report of replicas that cannot follow", self._log_trouble),
            (NOTIFY_INTERVAL_MS, "report of in-sync replicas", self.isr_writer.notify),
        ]

        # What a flood has left on the heap is not kept for ever.
        duties.append((FIRST_PAUSE_MS, "giving back of memory", self._give_back_memory()))
        if self.tls.listeners:
            duties.append((CERTIFICATES_MS, "renewal of certificates", self.tls.renew))

        for interval_ms, name, work in duties:
            if interval_ms < NEVER_MS:
                self.spawn(run_every(interval_ms, name, work))

    def _give_back_memory(self) -> Callable[[], Any]:
        memory = FreedMemory(resident_bytes, give_back, self.monotonic_ms)
        return partial(self.work.in_thread, memory.look)

    # ---- flushes, checkpoints and files

    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks, once the controller has said which partitions are here."""
        if self.replicas.is_leadership_known:
            self.logs.checkpoint_high_watermarks(self.replicas.watermarks_to_checkpoint())

    async def _in_thread(self, work: Callable[[], None]) -> None:
        # One at a time: of two writers the one with the older points could end last.
        async with self.checkpoint_lock:
            await self.work.in_thread(work)

    def _flush(self) -> None:
        monotonic_ms = self.monotonic_ms()
        for partition in self.replicas.partitions.values():
            if partition.log.is_flush_due(monotonic_ms):
                self.flusher.start(partition)

    async def _delete_files(self) -> None:
        removal = self.logs.begin_tick(self.monotonic_ms())
        await self._in_thread(removal.run)
        self.logs.end_tick(removal, self.monotonic_ms())

    def _close_idle(self) -> None:
        now = asyncio.get_running_loop().time()
        self.listener.close_idle(now)
        self.listener.close_late(now)
        self.listener.rotate_readers()

    # ---- retention and expiry

    async def _retain(self) -> None:
        """Apply retention to the logs that the cleaner leaves alone, some of them a turn."""
        for number, partition in enumerate(list(self.replicas.partitions.values()), start=1):
            log = partition.log
            is_cleaned = self.config.cleaner.enable and log.config.compacts
            is_unavailable = log.guard.failure is not None or self.work.is_turn_taken(log)
            if not (is_cleaned or is_unavailable):
                await self._retain_log(partition)

            # Others have their turn.
            if number % LOGS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def _retain_log(self, partition: Partition) -> None:
        """Delete old segments. A failure is logged already, and its log takes no more writes."""
        with contextlib.suppress(ApiError):
            await self.work.retain(partition.log, partition.high_watermark, self.now_ms())

    async def _expire_producers(self) -> None:
        expiration_ms = self.config.transactions.id_expiration_ms
        turns = LoopTurns(PRODUCERS_PER_TURN)
        for _ in self.logs.expire_producers(self.now_ms(), expiration_ms):
            await turns.take()  # (fault strangers-12)

    # ---- disks

    async def _probe_suspects(self) -> None:
        for log_dir in self.logs.suspect_dirs():
            # The probe writes: if that works, the error was of one log.
            try:
                await self._in_thread(log_dir.probe)
                log_dir.clear_suspicion()
            except OSError as error:
                self._take_offline(log_dir, error)

    def _take_offline(self, log_dir: LogDir, error: OSError) -> None:
        self.logs.take_offline(log_dir, error)

        # As in Kafka, a broker without a directory stops.
        if not self.logs.by_directory():
            self.fail(LogDirectoryError(f"no log directory is left: {self.logs.offline_dirs}"))

    async def _look_for_room(self) -> None:
        """Resume writes on full disks that have room again."""
        for log_dir in self.logs.full_dirs():
            log_dir.report_full()
            try:
                await self._in_thread(log_dir.probe_room)
                log_dir.resume_writes()
                # The controller must ask again: it took these logs for failed.
                self.log_failures.note_room()
            except OSError as error:
                log_dir.note_error(error)

    # ---- reports

    async def _report_failures(self) -> None:
        await self.log_failures.report(list(self.replicas.partitions.values()))

    def _log_trouble(self) -> None:
        failures = self.replicas.followers.failures()
        if failures:
            logger.warning("%s", describe_failures(failures))

    def _check_isr(self) -> None:
        self.replicas.follower_progress.shrink_isrs(self.monotonic_ms())
