"""Moves replicas between the log directories of this broker, while they are used (KIP-113).

A move goes piece by piece: a piece of the current log is named on the event loop, and read and
appended to the future log in a thread, where a slow disk stops nobody. Into each directory one
replica is moved at a time, and all together no faster than
`replica.alter.log.dirs.io.max.bytes.per.second`. When little is left, and what is there is on disk,
the current log is held: it is read, and nothing is appended to it, while a thread appends the rest
to the future log and gives that one its place. Whoever reads a file range goes on with the file it
names.

A move lives as long as its future log: it is given up by giving up that one, and begins again, with
what is there, whenever a LeaderAndIsr names a partition that has one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

import attrs

from broker.replication.future_replica import FutureReplica
from broker.replication.partition import Partition
from broker.replication.replica_manager import ReplicaManager
from broker.replication.replication_quota import ReplicationQuota
from core_log.appending.replicated_run import UnexpectedAppendOffset
from core_log.log import Log
from core_log.log_work import LogWork
from protocol.errors import ApiError, ErrorCode
from protocol.records.corrupt_record import CorruptRecord
from protocol.topic_partition import TopicPartition

PIECE_BYTES = 128 * 1024
"""What is copied at once, unless one batch is larger."""
LAST_BYTES = 256 * 1024
"""Most that is appended while the current log is held."""
PAUSE_SECONDS = 0.1
"""Before it is looked again whether the quota allows for more."""
RETRY_SECONDS = 1.0
"""Before a replica that could not be copied is tried again."""

EXPECTED = (ApiError, CorruptRecord, OSError, UnexpectedAppendOffset)

logger = logging.getLogger(__name__)


@attrs.define(eq=False)
class DirectoryMoves:
    """All moves of a broker. `spawn` runs a task; who writes checkpoints holds `on_disk`."""

    replicas: ReplicaManager
    quota: ReplicationQuota
    work: LogWork
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    now_ms: Callable[[], int]
    on_disk: asyncio.Lock
    _lanes: dict[str, dict[TopicPartition, FutureReplica]] = attrs.field(factory=dict)

    def move(self, tp: TopicPartition, path: str) -> None:
        """Begin to move a replica to a directory, be it another one than before; to the one it is
        in, to stay there. Raises ApiError.

        REPLICA_NOT_AVAILABLE for one that is not here; the directory is remembered for it.
        """
        logs, partition = self.replicas.logs, self.replicas.partitions.get(tp)
        if partition is not None:  # a full disk is a reason to move
            partition.log.guard.check_failure()
        if partition is not None and partition.log.is_held:
            raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{tp} is about to be elsewhere")
        logs.set_target_directory(tp, os.path.realpath(path))  # which is how log.dirs are known
        if partition is None:
            raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, str(tp))
        future = logs.futures.create(tp, partition.log.config, partition.log.monotonic_ms)
        if future is not None:
            logger.info("%s is to be moved to %s", partition.log, path)
            self._begin(partition, future)

    def resume(
        self, leaders: Iterable[TopicPartition], followers: Iterable[TopicPartition]
    ) -> None:
        """Go on with the moves of these partitions. A listener of leadership."""
        for tp in (*leaders, *followers):
            partition, future = self.replicas.partitions.get(tp), self.replicas.logs.futures.get(tp)
            if partition is not None and future is not None:
                self._begin(partition, future)

    def _begin(self, partition: Partition, future: Log) -> None:
        tp = partition.topic_partition
        path = self.replicas.logs.futures.path_of(tp)
        assert path is not None
        future.write_back = self.replicas.write_back
        lane = self._lanes.get(path)
        if lane is None:
            lane = self._lanes[path] = {}
            self.spawn(self._run(path))
        if tp not in lane or not self._is_current(lane[tp]):
            lane[tp] = FutureReplica(partition, future)

    def _is_current(self, move: FutureReplica) -> bool:
        tp = move.topic_partition
        return (
            self.replicas.logs.futures.get(tp) is move.log
            and self.replicas.partitions.get(tp) is move.partition
        )

    # ---- one directory's moves

    async def _run(self, path: str) -> None:
        lane = self._lanes[path]
        try:
            while lane:
                tp, move = next(iter(lane.items()))
                try:
                    await self._copy(move)
                except Exception as error:
                    await self._failed(move, path, error)
                if lane.get(tp) is move:
                    del lane[tp]
                    if self._is_current(move):
                        lane[tp] = move  # after the others
        finally:
            del self._lanes[path]

    async def _failed(self, move: FutureReplica, path: str, error: Exception) -> None:
        """Give the move up if its directory failed it; else it is tried again."""
        if move.trouble != str(error):  # once, not with each trial
            move.trouble = str(error)
            unexpected = None if isinstance(error, EXPECTED) else error
            logger.error(
                "%s cannot be moved to %s: %s", move.partition.log, path, error, exc_info=unexpected
            )
        if move.log.failure is not None and self._is_current(move):
            rename = self.replicas.logs.futures.begin_deletion(move.topic_partition)
            with contextlib.suppress(ApiError):  # what is left there is found at the next start
                await self._in_thread(rename)
        else:
            await asyncio.sleep(RETRY_SECONDS)

    async def _copy(self, move: FutureReplica) -> None:
        """Copy until the replica is moved, or not to be moved any more."""
        while self._is_current(move):
            move.log.update_config(move.partition.log.config)
            if move.needs_cut:
                await self.work.lend(move.log, move.align)
                continue
            move.align()
            if self.quota.is_exceeded:
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            piece = move.next_piece(min(PIECE_BYTES, max(self.quota.limit, 1)))
            if piece is None:
                if await self._finish(move):
                    return
                continue
            now_ms = self.now_ms()
            try:
                await self._in_thread(move.append, piece, now_ms)
            except UnexpectedAppendOffset:
                if move.is_aligned:
                    await self.work.lend(move.log, partial(move.append_first, piece, now_ms))
            except CorruptRecord:
                if move.is_aligned:
                    raise
            self.quota.record(piece.size)
            if move.log.is_flush_due(move.log.monotonic_ms()):
                await self._flush(move.log)

    async def _finish(self, move: FutureReplica) -> bool:
        """Have the future log take the current one's place; whether it came to that."""
        tp, futures = move.topic_partition, self.replicas.logs.futures
        await self._flush(move.log)
        async with self.on_disk:
            watermarks = self.replicas.watermarks_to_checkpoint()
            await self._in_thread(futures.checkpoint, tp, watermarks)
            current = move.partition.log
            async with self.work.turn(current):
                if not self._is_current(move):
                    return True
                current.guard.check_failure()
                current.is_held = True
                try:
                    if not await self._caught_up(move):
                        return False
                    promotion = futures.begin_promotion(tp)
                    await self.work.run_to_end(promotion.run)
                    move.partition.log = futures.end_promotion(promotion)
                finally:
                    current.is_held = False
        self.replicas.replicated(move.partition)
        return True

    async def _caught_up(self, move: FutureReplica) -> bool:
        """Append the rest, if it is little, and nothing is to be cut; whether it came to that."""
        if move.needs_cut or not move.lacks_less(LAST_BYTES):
            return False
        move.align()
        now_ms = self.now_ms()
        while (piece := move.next_piece(LAST_BYTES)) is not None:
            await self.work.lend(move.log, partial(move.append_first, piece, now_ms))
        return True

    async def _flush(self, log: Log) -> None:
        await self.work.flush(log)

    async def _in_thread(self, work: Callable[..., None], *arguments: Any) -> None:
        await self.work.in_thread(partial(work, *arguments))
