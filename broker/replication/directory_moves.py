"""Move replicas between the log directories of this broker, while they are in use (KIP-113).

A replica is copied piece by piece. The event loop chooses a piece of the current log; a thread
reads it and appends it to the future log, so that a slow disk stops nothing else. Into each
directory one replica is copied at a time, and all copies together stay within
`replica.alter.log.dirs.io.max.bytes.per.second`. When the future log is flushed and little is left,
the current log is *held*: it is read, but nothing is appended to it. Meanwhile a thread copies the
rest and puts the future log in the place of the current one. A response that is being sent keeps
the file of its range.

A move exists as long as its future log. Deleting the future log gives up the move. Each
LeaderAndIsr for a partition with a future log resumes its move.
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
"""Bytes that are copied at once, unless one batch is larger."""
LAST_BYTES = 256 * 1024
"""Most bytes that are copied while the current log is held."""
PAUSE_S = 0.1
"""Pause before the quota is checked again."""
RETRY_S = 1.0
"""Pause before a replica is tried again whose copying failed."""
MOST_PATH_BYTES = 4096
"""Linux opens no longer path."""

EXPECTED = (ApiError, CorruptRecord, OSError, UnexpectedAppendOffset)

logger = logging.getLogger(__name__)


def real_path(path: str) -> str:
    """Return the path by which the log manager knows a directory; that of none is shortened."""
    # A null byte is in the name of none.
    if len(path) > MOST_PATH_BYTES or "\0" in path:
        return path[:100]
    return os.path.realpath(path)


@attrs.define(eq=False)
class DirectoryMoves:
    """All moves of a broker.

    `spawn` starts a task of the broker. `checkpoint_lock` is held while checkpoints are written.
    """

    replicas: ReplicaManager
    quota: ReplicationQuota
    work: LogWork
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    now_ms: Callable[[], int]
    checkpoint_lock: asyncio.Lock
    _queues: dict[str, dict[TopicPartition, FutureReplica]] = attrs.field(factory=dict)
    """By directory: the replicas to be moved there, the first one now."""

    def move(self, tp: TopicPartition, path: str) -> None:
        """Start to move a replica to a directory by its real path; the one it is in ends a move.

        Raises ApiError, REPLICA_NOT_AVAILABLE for a replica that is not here. Its directory is kept
        for when it is created.
        """
        logs = self.replicas.logs
        partition = self.replicas.partitions.get(tp)

        # A failed log cannot be moved. A full disk is no failure but a reason to move.
        if partition is not None:
            partition.log.guard.check_failure()
        if partition is not None and partition.log.is_held:
            raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{tp}: a move is about to end")

        logs.set_target_directory(tp, path)
        if partition is None:
            raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, str(tp))

        future = logs.futures.create(tp, partition.log.config, partition.log.monotonic_ms)
        if future is not None:
            logger.info("%s is to be moved to %s", partition.log, path)
            self._begin(partition, future)

    def resume(
        self, leaders: Iterable[TopicPartition], followers: Iterable[TopicPartition]
    ) -> None:
        """Resume the moves of these partitions. Subscribed to the leadership signal."""
        for tp in (*leaders, *followers):
            partition = self.replicas.partitions.get(tp)
            future = self.replicas.logs.futures.get(tp)
            if partition is not None and future is not None:
                self._begin(partition, future)

    def _begin(self, partition: Partition, future: Log) -> None:
        tp = partition.topic_partition
        path = self.replicas.logs.futures.path_of(tp)
        assert path is not None
        future.write_back = self.replicas.write_back

        # One task per directory, for as long as replicas are to be moved there.
        queue = self._queues.get(path)
        if queue is None:
            queue = self._queues[path] = {}
            self.spawn(self._run(path))
        if tp not in queue or not self._is_current(queue[tp]):
            queue[tp] = FutureReplica(partition, future)

    def _is_current(self, move: FutureReplica) -> bool:
        """Return whether a move was not given up, and its partition not replaced."""
        tp = move.topic_partition
        return (
            self.replicas.logs.futures.get(tp) is move.log
            and self.replicas.partitions.get(tp) is move.partition
        )

    # ---- one directory's moves

    async def _run(self, path: str) -> None:
        """Move the replicas of a queue one after the other, until it is empty."""
        queue = self._queues[path]
        try:
            while queue:
                tp, move = next(iter(queue.items()))
                try:
                    await self._copy(move)
                except Exception as error:
                    await self._handle_failure(move, path, error)

                # A move that is not done goes behind the others.
                if queue.get(tp) is move:
                    del queue[tp]
                    if self._is_current(move):
                        queue[tp] = move
        finally:
            del self._queues[path]

    async def _handle_failure(self, move: FutureReplica, path: str, error: Exception) -> None:
        """Give up a move if its future log failed; pause before it is tried again otherwise."""
        # Log a failure once, and not with each attempt.
        if move.trouble != str(error):
            move.trouble = str(error)
            unexpected = None if isinstance(error, EXPECTED) else error
            logger.error(
                "%s cannot be moved to %s: %s", move.partition.log, path, error, exc_info=unexpected
            )

        if move.log.failure is not None and self._is_current(move):
            rename = self.replicas.logs.futures.begin_deletion(move.topic_partition)
            with contextlib.suppress(ApiError):  # the next start deletes what is left
                await self._in_thread(rename)
        else:
            await asyncio.sleep(RETRY_S)

    async def _copy(self, move: FutureReplica) -> None:
        """Copy until the replica is moved or the move is given up."""
        while self._is_current(move):
            move.log.update_config(move.partition.log.config)

            # Follow truncations of the current log.
            if move.needs_truncation:
                await self.work.lend(move.log, move.align)
                continue
            move.align()

            if self.quota.is_exceeded:
                await asyncio.sleep(PAUSE_S)
                continue

            piece = move.read_next_piece(min(PIECE_BYTES, max(self.quota.limit, 1)))
            if piece is None:
                if await self._finish(move):
                    return
                continue

            # Copy a piece. An error means nothing if the current log was truncated meanwhile.
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
        """Put the future log in the place of the current one.

        Return whether the move is over; False if there is more to copy first.
        """
        tp = move.topic_partition
        futures = self.replicas.logs.futures
        await self._flush(move.log)

        async with self.checkpoint_lock:
            # The checkpoints of the new directory have the partition before its log does.
            watermarks = self.replicas.watermarks_to_checkpoint()
            await self._in_thread(futures.checkpoint, tp, watermarks)

            # Hold the current log, and swap the two.
            current = move.partition.log
            async with self.work.turn(current):
                if not self._is_current(move):
                    return True
                current.guard.check_failure()
                current.is_held = True
                try:
                    if not await self._catch_up(move):
                        return False
                    promotion = futures.begin_promotion(tp)
                    await self.work.run_to_end(promotion.run)
                    move.partition.log = futures.end_promotion(promotion)
                finally:
                    current.is_held = False

        # The partition has another log: waiting requests look at it.
        self.replicas.replicated(move.partition)
        return True

    async def _catch_up(self, move: FutureReplica) -> bool:
        """Copy the rest; return False if it is too much, or there is something to truncate."""
        if move.needs_truncation or not move.lacks_less_than(LAST_BYTES):
            return False

        move.align()
        now_ms = self.now_ms()
        while (piece := move.read_next_piece(LAST_BYTES)) is not None:
            await self.work.lend(move.log, partial(move.append_first, piece, now_ms))
        return True

    async def _flush(self, log: Log) -> None:
        await self.work.flush(log)

    async def _in_thread(self, work: Callable[..., None], *arguments: Any) -> None:
        await self.work.in_thread(partial(work, *arguments))
