"""Follow leaders: for each a connection, and a loop that fetches what this broker replicates.

`leader_fetcher` decides what a loop asks and what comes of the responses; a loop sends, waits, and
changes logs. All of it runs on the event loop, except that a log is lent to a thread while it is
truncated (`log_work`); no partition changes its role while its log is away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from math import inf
from typing import Any, Protocol

import attrs

from broker.process.loop_turns import LoopTurns
from broker.replication.following_replica import (
    FIRST_DELAY_MS,
    FollowingReplica,
    epochs_request,
    offsets_request,
)
from broker.replication.leader_fetcher import (
    AppendRecords,
    FetcherConfig,
    LeaderFetcher,
    Pause,
    RestartLog,
    TruncateLog,
)
from broker.replication.partition import Partition, append_as_fetched
from broker.replication.replication_quota import ReplicationQuota
from clients.transport.connection import ConnectionFailed
from core_log.appending.replicated_run import UnexpectedAppendOffset
from core_log.log import AppendLater
from core_log.log_work import LogWork
from protocol.java_hash import abs31, java_string_hash, wrap32
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.list_offsets import ListOffsetsResponse
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse
from protocol.special_values import EARLIEST_TIME, LATEST_TIME
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

OVERDUE_MS = 1000
"""Grace after a fetch's longest wait before its connection is given up, while more is to ask."""
PARTITIONS_A_TURN = 100
"""Partitions whose part of a response is appended in one turn of the loop."""


class LeaderConnection(Protocol):
    """The part of `clients.transport.connection.Connection` that a fetcher uses."""

    @property
    def closed(self) -> bool: ...
    async def call(self, request: Any) -> Any: ...
    def abort(self, reason: str) -> None: ...


@attrs.define(eq=False)
class ReplicaFetchers:
    """Fetch for every partition that is to `follow`.

    `connect(leader)` returns a connection to a broker, or raises ConnectionFailed; `appended` is
    called with each partition whose log has grown.
    """

    local_id: int
    config: FetcherConfig
    connect: Callable[[int], Awaitable[LeaderConnection]]
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    now_ms: Callable[[], int]
    quota: ReplicationQuota
    work: LogWork
    appended: Callable[[Partition], None] = lambda partition: None
    _loops: dict[tuple[int, int], _FetchLoop] = attrs.field(factory=dict)
    _loop_of: dict[TopicPartition, _FetchLoop] = attrs.field(factory=dict)

    def follow(self, partitions: Iterable[Partition]) -> None:
        """Fetch for these partitions from the leaders they have now, after truncation."""
        for partition in partitions:
            topic_partition = partition.topic_partition
            loop = self._choose_loop(partition.leader, topic_partition)
            self._loop_of[topic_partition] = loop
            # In the ISR it would hold up all writers if it waited for a quota
            # (fault strangers-38, was: True).
            lags = self.local_id not in partition.isr
            loop.add(FollowingReplica(partition, partition.leader_epoch, lags=lags))

    def _choose_loop(self, leader: int, topic_partition: TopicPartition) -> _FetchLoop:
        number = _spread(topic_partition) % self.config.fetchers
        loop = self._loops.get((leader, number))
        if loop is None:
            fetcher = LeaderFetcher(self.local_id, leader, self.config, self.quota)
            loop = self._loops[leader, number] = _FetchLoop(self, fetcher)
            self.spawn(loop.run())
        return loop

    def stop(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching for these partitions."""
        for topic_partition in partitions:
            loop = self._loop_of.pop(topic_partition, None)
            if loop is not None:
                loop.fetcher.remove(topic_partition)

    def failures(self) -> dict[TopicPartition, str]:
        """Return the partitions that could not be fetched when that was last tried, and why."""
        troubles = {}
        for topic_partition, loop in self._loop_of.items():
            trouble = loop.fetcher.replicas[topic_partition].trouble
            if trouble:
                troubles[topic_partition] = trouble
        return troubles

    def note_flush(self, partition: Partition) -> None:
        """Call this when what was fetched has reached the disk."""
        loop = self._loop_of.get(partition.topic_partition)
        if loop is not None:
            loop.wake()

    def note_start_moved(self, partition: Partition) -> None:
        """Tell the leader that the partition's log starts at another offset."""
        loop = self._loop_of.get(partition.topic_partition)
        if loop is not None:
            loop.fetcher.refresh(partition.topic_partition)


@attrs.define(eq=False)
class _FetchLoop:
    """The loop that follows one leader."""

    owner: ReplicaFetchers
    fetcher: LeaderFetcher
    _connection: LeaderConnection | None = None
    _changed: asyncio.Event = attrs.field(factory=asyncio.Event)
    _is_asking: bool = False
    _overdue: asyncio.TimerHandle | None = None
    _failures: int = 0

    def add(self, replica: FollowingReplica) -> None:
        """Begin with a partition, in the round after the present one."""
        self.fetcher.add(replica)
        self.wake()

        # The leader ends a waiting fetch when there is a new partition to ask for. A leader that
        # stays silent is given up.
        if self._is_asking and self._overdue is None:
            grace_ms = self.owner.config.wait_max_ms + OVERDUE_MS
            loop = asyncio.get_running_loop()
            self._overdue = loop.call_later(grace_ms / 1000, self._give_up)

    def wake(self) -> None:
        """Look again at what is to be done."""
        self._changed.set()

    # ---- the loop, and its connection

    async def run(self) -> None:
        """Fetch for as long as the broker runs."""
        try:
            while True:
                self._changed.clear()
                if not self.fetcher.replicas:
                    # Nothing to follow: keep no connection.
                    self._disconnect()
                    await self._changed.wait()
                    continue

                try:
                    await self._round()
                    self._failures = 0
                except ConnectionFailed as failure:
                    await self._pause_after(failure)
                except Exception:
                    # No failure ends the loop: its other partitions go on.
                    logger.exception("fetching from broker %s failed", self.fetcher.leader)
                    self._disconnect()
                    await self._pause(self.owner.config.backoff_ms)
        finally:
            self._disconnect()

    async def _pause_after(self, failure: ConnectionFailed) -> None:
        self._disconnect()
        level = logging.DEBUG if self._failures else logging.WARNING
        logger.log(level, "cannot fetch from broker %s: %s", self.fetcher.leader, failure)

        delay_ms = min(FIRST_DELAY_MS * 2**self._failures, self.owner.config.backoff_ms)
        # The bound keeps the power of two small.
        self._failures = min(self._failures + 1, 16)
        await self._pause(delay_ms)

    async def _pause(self, pause_ms: float) -> None:
        """Wait so long, or until something changes."""
        try:
            async with asyncio.timeout(None if pause_ms == inf else pause_ms / 1000):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _connect(self) -> LeaderConnection:
        if self._connection is None or self._connection.closed:
            # The last response may be lost, and with it the count of the session's requests.
            self.fetcher.end_session()
            self._connection = await self.owner.connect(self.fetcher.leader)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.abort("fetching ends")
        self._connection = None
        self.fetcher.end_session()

    async def _ask(self, connection: LeaderConnection, request: Any) -> Any:
        self._is_asking = True
        try:
            return await connection.call(request)
        finally:
            self._is_asking = False
            if self._overdue is not None:
                self._overdue.cancel()
                self._overdue = None

    def _give_up(self) -> None:
        """Abort a request that nobody answers: a leader whose machine lost its power says nothing,
        and its connection stays open for as long as nobody looks."""
        if self._connection is not None:
            self._connection.abort("no response, and there is more to ask for")

    # ---- a round: truncate what must be truncated, then fetch

    async def _round(self) -> None:
        connection = await self._connect()
        fetcher = self.fetcher

        if untruncated := fetcher.find_untruncated(_monotonic_ms()):
            await self._truncate(connection, untruncated)
        if out_of_range := fetcher.find_out_of_range(_monotonic_ms()):
            await self._return_to_range(connection, out_of_range)

        request = fetcher.next_fetch(_monotonic_ms())
        if isinstance(request, Pause):
            await self._pause(request.ms)
        else:
            await self._fetch(connection, request)

    async def _truncate(
        self, connection: LeaderConnection, untruncated: list[FollowingReplica]
    ) -> None:
        fetcher = self.fetcher
        await self._truncate_logs(fetcher.truncate_by_watermark(untruncated))

        # Logs of old formats name no epochs.
        asked = [replica for replica in untruncated if replica.has_epochs]
        if asked:
            request = epochs_request(fetcher.local_id, asked)
            response: OffsetForLeaderEpochResponse = await self._ask(connection, request)
            truncations = fetcher.truncate_by_epochs(asked, response, _monotonic_ms())
            await self._truncate_logs(truncations)

    async def _return_to_range(
        self, connection: LeaderConnection, asked: list[FollowingReplica]
    ) -> None:
        ends = await self._list_offsets(connection, asked, LATEST_TIME)
        starts = await self._list_offsets(connection, asked, EARLIEST_TIME)
        for change in self.fetcher.return_to_range(asked, starts, ends):
            await self._change_log(change)

    async def _list_offsets(
        self, connection: LeaderConnection, asked: list[FollowingReplica], timestamp: int
    ) -> dict[TopicPartition, int]:
        request = offsets_request(self.fetcher.local_id, asked, timestamp)
        response: ListOffsetsResponse = await self._ask(connection, request)
        return self.fetcher.read_offsets(asked, response, _monotonic_ms())

    async def _fetch(self, connection: LeaderConnection, request: FetchRequest) -> None:
        response: FetchResponse = await self._ask(connection, request)
        self.fetcher.read_session(response)

        # In the leader's order, one partition at a time.
        turns = LoopTurns(PARTITIONS_A_TURN)
        for topic in response.responses:
            for part in topic.partitions:
                # 10,000 with news would be one turn of 0.5 s (fault strangers-21).
                await turns.take()
                topic_partition = TopicPartition(topic.topic, part.partition_index)
                append = self.fetcher.take(topic_partition, part, _monotonic_ms())
                if append is not None:
                    await self._append(append)

    # ---- logs change

    async def _truncate_logs(self, truncations: list[TruncateLog]) -> None:
        """Truncate logs, as many at once as the disk has threads."""
        # Lower all recovery points before a checkpoint is written.
        for truncation in truncations:
            truncation.replica.partition.log.lower_recovery_point(truncation.to.offset)
        await asyncio.gather(*map(self._change_log, truncations))

    async def _change_log(self, change: TruncateLog | RestartLog) -> None:
        try:
            if isinstance(change, TruncateLog):
                has_changed = await self._truncate_log(change)
            else:
                has_changed = await self._restart_log(change)
            if has_changed:
                self.fetcher.note_changed(change)
        except Exception as error:
            # A failure delays this partition alone.
            self.fetcher.fail(change.replica, error, _monotonic_ms())

    async def _lend(self, replica: FollowingReplica, work: Callable[[], object]) -> bool:
        """Lend the replica's log for `work`, and return whether it was lent.

        It is not if the replica leads, or follows another leader, when the log's turn has come.
        """
        is_wanted = partial(self.fetcher.is_current, replica)
        return await self.owner.work.lend_if(replica.partition.log, work, is_wanted)

    async def _truncate_log(self, change: TruncateLog) -> bool:
        """Truncate a log, and return whether it was. Raises ApiError KAFKA_STORAGE_ERROR."""
        partition = change.replica.partition
        log, offset = partition.log, change.to.offset
        if offset >= log.log_end_offset:
            # Epochs that wrote nothing go, from memory alone.
            log.truncate_to(offset)
        else:
            logger.info(
                "%s: truncating the log from %s to %s, high watermark %s, leader %s epoch %s",
                partition.topic_partition,
                log.log_end_offset,
                offset,
                partition.high_watermark,
                self.fetcher.leader,
                change.replica.leader_epoch,
            )
            if not await self._lend(change.replica, partial(log.truncate_to, offset)):
                return False
        partition.note_truncation()
        return True

    async def _restart_log(self, change: RestartLog) -> bool:
        """Delete all of a log, which goes on at another offset, and return whether it was.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        log = change.replica.partition.log
        restart = partial(log.truncate_fully_and_start_at, change.offset)
        if not await self._lend(change.replica, restart):
            return False
        change.replica.partition.note_new_start()
        return True

    async def _append(self, append: AppendRecords) -> None:
        fetcher, replica = self.fetcher, append.replica
        partition, response = replica.partition, append.response
        try:
            try:
                if response.records:
                    records = memoryview(response.records)
                    if not await self._append_records(replica, records):
                        return
                # After the append: the watermark goes no further than the log.
                partition.follow_watermarks(response.high_watermark, response.log_start_offset)
                fetcher.recover(replica)
            finally:
                # A part may be in the log even if the rest was refused.
                fetcher.note_appended(append)
                if partition.log.log_end_offset != replica.fetch_offset:
                    self.owner.appended(partition)
        except Exception as error:
            fetcher.fail(replica, error, _monotonic_ms())

        fetcher.go_on(replica)

    async def _append_records(self, replica: FollowingReplica, records: memoryview) -> bool:
        """Append what the leader sent, after a flush where a segment has to be synced first.

        Return whether all of it is appended. The partition may follow another leader, and be
        truncated, while a flush runs: then the rest is of no use. Raises CorruptRecord,
        UnexpectedAppendOffset, and ApiError KAFKA_STORAGE_ERROR.
        """
        log = replica.partition.log
        now_ms = self.owner.now_ms()
        try:
            while records:
                try:
                    log.append_follower(records, now_ms=now_ms, may_sync=False)
                    break
                except AppendLater as later:
                    # The log takes nothing before a flush. The records that are left follow it.
                    records = later.rest
                    await self.owner.work.flush(log)
                    if not self.fetcher.is_current(replica):
                        return False
        except UnexpectedAppendOffset:
            if log.log_start_offset < log.log_end_offset:
                raise
            # An empty log takes whatever offset its leader's log starts at.
            append = partial(append_as_fetched, log, records, now_ms)
            return await self._lend(replica, append)
        return True


def _monotonic_ms() -> float:
    return asyncio.get_running_loop().time() * 1000


def _spread(topic_partition: TopicPartition) -> int:
    """Return the number by which Kafka spreads partitions over `num.replica.fetchers`."""
    topic, partition = topic_partition
    return abs31(wrap32(31 * java_string_hash(topic) + partition))
