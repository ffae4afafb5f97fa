"""Followers: for each leader a connection and a loop that fetches what this broker replicates.

A partition that begins to follow is first cut to what its leader has too (`truncation`), then
fetched from its own log's end. An answer is taken only if nothing has changed since it was asked
for: the same leader epoch, the same end of the log. What goes wrong with one partition, be it
unexpected, delays that one alone, a little the first time and up to `replica.fetch.backoff.ms`
(`replication_failures`). What is throttled and lags is not asked for while the quota is exceeded.

Everything but the waiting for the network is plain code on the event loop, except that a log is
lent to a thread to be truncated (`log_work`); no partition changes its role while its log is away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from math import inf
from typing import Any, Protocol

import attrs

from broker.replication.fetch_sessions import SessionReader
from broker.replication.following import (
    FIRST_DELAY_SECONDS,
    Following,
    epochs_request,
    offsets_request,
)
from broker.replication.partition import Partition, append_as_fetched
from broker.replication.replication_failures import Cause, cause_of
from broker.replication.replication_quota import ReplicationQuota
from broker.replication.truncation import Truncation, truncation
from clients.transport.connection import ConnectionFailed
from core_log.appending.replicated_run import UnexpectedAppendOffset
from core_log.log import AppendLater
from core_log.log_work import LogWork
from protocol.errors import ErrorCode
from protocol.java_hash import abs31, java_string_hash, wrap32
from protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    FetchResponsePartition,
)
from protocol.messages.list_offsets import (
    ListOffsetsResponse,
)
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochResponse,
)
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochResponsePartition as EpochEndOffset,
)
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

OVERDUE_SECONDS = 1.0
"""How much longer than a fetch may wait an answer may take when there is more to ask for."""

LATEST_TIME = -1
EARLIEST_TIME = -2


class LeaderConnection(Protocol):
    """What a fetcher uses of `clients.transport.connection.Connection`."""

    @property
    def closed(self) -> bool: ...
    async def call(self, request: Any) -> Any: ...
    def abort(self, reason: str) -> None: ...


@attrs.frozen
class FetcherConfig:
    """The settings `replica.fetch.*` and `num.replica.fetchers`, in ms and bytes."""

    max_bytes: int = 1024 * 1024
    response_max_bytes: int = 10 * 1024 * 1024
    wait_max_ms: int = 500
    min_bytes: int = 1
    backoff_ms: int = 1000
    fetchers: int = 1


@attrs.define(eq=False)
class ReplicaFetchers:
    """Fetches for every partition that is to `follow`.

    `connect(leader)` gives a connection to a broker, or raises ConnectionFailed; `appended` hears
    of each partition whose log has grown.
    """

    local_id: int
    config: FetcherConfig
    connect: Callable[[int], Awaitable[LeaderConnection]]
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    now_ms: Callable[[], int]
    quota: ReplicationQuota
    work: LogWork
    appended: Callable[[Partition], None] = lambda partition: None
    _fetchers: dict[tuple[int, int], _Fetcher] = attrs.field(factory=dict)
    _fetcher_of: dict[TopicPartition, _Fetcher] = attrs.field(factory=dict)

    def follow(self, partitions: Iterable[Partition]) -> None:
        """Fetch for these from the leaders they have now, after truncation."""
        for partition in partitions:
            tp = partition.topic_partition
            key = (partition.leader, _number(tp) % self.config.fetchers)
            fetcher = self._fetchers.get(key)
            if fetcher is None:
                fetcher = self._fetchers[key] = _Fetcher(self, partition.leader)
                self.spawn(fetcher.run())
            self._fetcher_of[tp] = fetcher
            fetcher.add(Following(partition, partition.leader_epoch))

    def stop(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch for these no more."""
        for tp in partitions:
            fetcher = self._fetcher_of.pop(tp, None)
            if fetcher is not None:
                fetcher.remove(tp)

    def troubled(self) -> dict[TopicPartition, str]:
        """The partitions that could not be fetched when that was last tried, and why."""
        return {
            tp: fetcher.following[tp].trouble
            for tp, fetcher in self._fetcher_of.items()
            if fetcher.following[tp].trouble
        }

    def flushed(self, partition: Partition) -> None:
        """What was fetched has reached the disk."""
        fetcher = self._fetcher_of.get(partition.topic_partition)
        if fetcher is not None:
            fetcher.wake()

    def start_moved(self, partition: Partition) -> None:
        """The log begins at another offset: its leader is to be told."""
        tp = partition.topic_partition
        fetcher = self._fetcher_of.get(tp)
        if fetcher is not None:
            fetcher.refresh(tp)


@attrs.define(eq=False)
class _Fetcher:
    """The loop for one leader.

    A partition that is fetched is in the session, which keeps what is asked for; all others of
    `following` are `_aside`: not truncated yet, delayed, throttled, or with records that are not on
    disk. A round looks at those aside and at what the leader gave, and not at partitions at rest.
    """

    owner: ReplicaFetchers
    leader: int
    following: dict[TopicPartition, Following] = attrs.field(factory=dict)
    _aside: dict[TopicPartition, Following] = attrs.field(factory=dict)
    _lagging: dict[TopicPartition, Following] = attrs.field(factory=dict)
    _session: SessionReader = attrs.field(factory=SessionReader)
    _connection: LeaderConnection | None = None
    _changed: asyncio.Event = attrs.field(factory=asyncio.Event)
    _is_asking: bool = False
    _overdue: asyncio.TimerHandle | None = None
    _failures: int = 0

    def add(self, following: Following) -> None:
        """Begin with a partition, in the round after the one that is under way."""
        tp = following.partition.topic_partition
        self.following[tp] = self._aside[tp] = following
        self.wake()
        if self._is_asking and self._overdue is None:
            longest = self.owner.config.wait_max_ms / 1000 + OVERDUE_SECONDS
            self._overdue = asyncio.get_running_loop().call_later(longest, self._give_up)

    def _give_up(self) -> None:
        """The leader may be another than the one that was asked: a machine that lost its power
        says nothing, and its connection is open for as long as nobody looks."""
        if self._connection is not None:
            self._connection.abort("no answer, and there is more to ask for")

    async def _ask(self, connection: LeaderConnection, request: Any) -> Any:
        self._is_asking = True
        try:
            return await connection.call(request)
        finally:
            self._is_asking = False
            if self._overdue is not None:
                self._overdue.cancel()
                self._overdue = None

    def remove(self, tp: TopicPartition) -> None:
        """Go on without a partition."""
        del self.following[tp]
        self._aside.pop(tp, None)
        self._lagging.pop(tp, None)
        self._session.forget(tp)

    def refresh(self, tp: TopicPartition) -> None:
        """Say with the next fetch where the log begins now."""
        if tp in self._session.wanted:
            self._ask_for(self.following[tp])

    def wake(self) -> None:
        """Look again at what is to be done."""
        self._changed.set()

    async def run(self) -> None:
        """Fetch for as long as the broker runs."""
        try:
            while True:
                self._changed.clear()
                if not self.following:
                    self._disconnect()
                    await self._changed.wait()
                    continue
                try:
                    await self._round()
                    self._failures = 0
                except ConnectionFailed as failure:
                    await self._lost(failure)
                except Exception:
                    logger.exception("fetching from broker %s failed", self.leader)
                    self._disconnect()
                    await self._pause(self.owner.config.backoff_ms / 1000)
        finally:
            self._disconnect()

    async def _lost(self, failure: ConnectionFailed) -> None:
        self._disconnect()
        level = logging.DEBUG if self._failures else logging.WARNING
        logger.log(level, "broker %s cannot be fetched from: %s", self.leader, failure)
        delay = min(FIRST_DELAY_SECONDS * 2**self._failures, self.owner.config.backoff_ms / 1000)
        self._failures = min(self._failures + 1, 16)
        await self._pause(delay)

    async def _pause(self, seconds: float) -> None:
        """Wait, or until something changes."""
        try:
            async with asyncio.timeout(None if seconds == inf else seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.abort("fetching ends")
        self._connection = None
        self._session.restart()

    # ---- a round: cut what must be cut, then fetch

    async def _round(self) -> None:
        if self._connection is None or self._connection.closed:
            self._session.restart()
            self._connection = await self.owner.connect(self.leader)
        connection = self._connection

        if due := [each for each in self._due() if not each.truncated]:
            await self._truncate(connection, due)
        if due := [each for each in self._due() if each.out_of_range]:
            await self._find_range(connection, due)

        is_throttling = self._set_aside_throttled()
        for each in self._due():
            if each.truncated and not each.out_of_range and not self._is_held_back(each):
                self._ask_for(each)

        if self._session.wanted:
            await self._fetch(connection)
        elif is_throttling:
            await self._pause(self.owner.config.backoff_ms / 1000)
        else:
            settled = (each for each in self._aside.values() if each.is_settled)
            next_time = min((each.not_before for each in settled), default=inf)
            await self._pause(max(next_time - asyncio.get_running_loop().time(), 0))

    def _due(self) -> list[Following]:
        """Of those aside, which nothing keeps from being asked for."""
        now = asyncio.get_running_loop().time()
        return [
            each
            for each in list(self._aside.values())
            if each.not_before <= now and each.is_settled and self._has_log(each)
        ]

    def _ask_for(self, each: Following) -> None:
        tp = each.partition.topic_partition
        each.asked_offset = each.partition.log.log_end_offset
        self._session.want(tp, each.asked(self.owner.config.max_bytes))
        self._aside.pop(tp, None)
        if each.lags:
            self._lagging[tp] = each

    def _set_aside(self, each: Following) -> None:
        tp = each.partition.topic_partition
        if not self._is_current(each):
            return
        self._session.forget(tp)
        self._lagging.pop(tp, None)
        self._aside[tp] = each

    def _set_aside_throttled(self) -> bool:
        """Ask for nothing that is held back; whether anything is."""
        if not self.owner.quota.is_exceeded:
            return False
        for each in list(self._lagging.values()):
            if self._is_held_back(each):
                self._set_aside(each)
        return any(self._is_held_back(each) for each in self._aside.values())

    def _is_throttled(self, each: Following) -> bool:
        listed = each.partition.log.config.follower_throttled
        return self.owner.quota.covers(each.partition.topic_partition.partition, listed)

    def _is_held_back(self, each: Following) -> bool:
        return each.lags and self._is_throttled(each) and self.owner.quota.is_exceeded

    def _is_current(self, each: Following) -> bool:
        return self.following.get(each.partition.topic_partition) is each

    def _delay(self, each: Following, trouble: str) -> None:
        self._set_aside(each)
        each.trouble = trouble
        each.not_before = asyncio.get_running_loop().time() + each.delay
        each.delay = min(each.delay * 2, self.owner.config.backoff_ms / 1000)

    def _refused(self, each: Following, code: int) -> None:
        """The leader does not answer for this partition."""
        tp, name = each.partition.topic_partition, ErrorCode.of(code).name
        logger.debug("%s: broker %s: %s", tp, self.leader, name)
        if code == ErrorCode.FENCED_LEADER_EPOCH:  # the controller is about to tell of a later one
            each.delay = self.owner.config.backoff_ms / 1000
        self._delay(each, name)

    def _failed(self, each: Following, error: Exception) -> None:
        """What the leader sent cannot be kept; people are told once, not with each trial."""
        tp, trouble = each.partition.topic_partition, str(error) or type(error).__name__
        if trouble != each.trouble:
            unexpected = error if cause_of(error) == Cause.OURSELVES else None
            logger.error("%s: from broker %s: %s", tp, self.leader, trouble, exc_info=unexpected)
        self._delay(each, trouble)

    def _has_log(self, each: Following) -> bool:
        """Whether its log takes writes; one that failed is looked at again after a delay."""
        failure = each.partition.log.failure
        if failure is not None:
            self._delay(each, failure)
        return failure is None

    # ---- truncation

    async def _truncate(self, connection: LeaderConnection, due: list[Following]) -> None:
        asked: list[Following] = []
        cuts: list[tuple[Following, Truncation]] = []
        for each in due:
            partition = each.partition
            if partition.log.leader_epochs.latest_epoch >= 0:
                asked.append(each)
            elif self._is_current(each):
                cuts.append((each, Truncation(partition.high_watermark, True)))
        await self._cut_all(cuts)
        if not asked:
            return
        response: OffsetForLeaderEpochResponse = await self._ask(
            connection, epochs_request(self.owner.local_id, asked)
        )
        by_partition = {each.partition.topic_partition: each for each in asked}
        cuts = []
        for topic in response.topics:
            for p in topic.partitions:
                following = by_partition.get(TopicPartition(topic.topic, p.partition))
                if following is None or not self._is_current(following):
                    continue
                if p.error_code != ErrorCode.NONE:
                    self._refused(following, p.error_code)
                    continue
                try:
                    cuts.append((following, _truncation(following, p)))
                except Exception as error:
                    self._failed(following, error)
        await self._cut_all(cuts)

    async def _cut_all(self, cuts: list[tuple[Following, Truncation]]) -> None:
        """Cut logs, each to its own end, as many at once as the disk has threads."""
        # Lower all recovery points before a checkpoint is written.
        for each, to in cuts:
            each.partition.log.lower_recovery_point(to.offset)
        await asyncio.gather(*(self._cut(each, to) for each, to in cuts))

    async def _cut(self, each: Following, to: Truncation) -> None:
        partition = each.partition
        if to.offset < partition.log.log_end_offset:
            logger.info(
                "%s: cutting the log from %s to %s, high watermark %s, leader %s epoch %s",
                partition.topic_partition,
                partition.log.log_end_offset,
                to.offset,
                partition.high_watermark,
                self.leader,
                each.leader_epoch,
            )
        try:
            await self._truncate_log(partition, to.offset)
            each.truncated = to.done
        except Exception as error:
            self._failed(each, error)

    async def _truncate_log(self, partition: Partition, offset: int) -> None:
        """End a log at `offset`. Raises ApiError KAFKA_STORAGE_ERROR."""
        log = partition.log
        if offset >= log.log_end_offset:
            log.truncate_to(offset)  # of epochs that wrote nothing, in memory
        else:
            await self.owner.work.lend(log, partial(log.truncate_to, offset))
        partition.note_truncation()

    async def _begin_anew(self, partition: Partition, offset: int) -> None:
        """Drop a log; the next one begins at `offset`. Raises ApiError KAFKA_STORAGE_ERROR."""
        log = partition.log
        await self.owner.work.lend(log, partial(log.truncate_fully_and_start_at, offset))
        partition.note_new_start()

    # ---- fetching

    async def _fetch(self, connection: LeaderConnection) -> None:
        config = self.owner.config
        template = FetchRequest(
            replica_id=self.owner.local_id,
            max_wait_ms=config.wait_max_ms,
            min_bytes=config.min_bytes,
            max_bytes=config.response_max_bytes,
            topics=(),
        )
        response: FetchResponse = await self._ask(connection, self._session.request(template))
        self._session.handle_response(response)
        for topic in response.responses:
            for p in topic.partitions:
                tp = TopicPartition(topic.topic, p.partition_index)
                each = self.following.get(tp)
                if each is None or tp in self._aside:
                    continue  # another one than was asked for
                try:
                    await self._take(each, p)
                except Exception as error:
                    self._failed(each, error)
                if self._is_current(each) and tp not in self._aside:
                    self._go_on(each)

    async def _take(self, each: Following, p: FetchResponsePartition) -> None:
        partition, offset = each.partition, each.asked_offset
        if partition.log.log_end_offset != offset:
            return
        if p.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            each.out_of_range = True
        elif p.error_code != ErrorCode.NONE:
            self._refused(each, p.error_code)
        else:
            now_ms, records = self.owner.now_ms(), memoryview(p.records or b"")
            try:
                if records:
                    await self._append(partition, records, now_ms)
                partition.follow_watermarks(p.high_watermark, p.log_start_offset)
                each.delay, each.trouble = FIRST_DELAY_SECONDS, ""
            except Exception as error:  # what was whole before it is appended
                self._failed(each, error)
            each.lags = partition.log.log_end_offset < p.high_watermark
            if records and self._is_throttled(each):
                self.owner.quota.record(len(records))
            if partition.log.log_end_offset != offset:
                self.owner.appended(partition)

    async def _append(self, partition: Partition, records: memoryview, now_ms: int) -> None:
        """Append what the leader gave, after a flush where a segment has to be synced first.

        Raises CorruptRecord, UnexpectedAppendOffset, and ApiError KAFKA_STORAGE_ERROR.
        """
        log = partition.log
        try:
            while records:
                try:
                    log.append_follower(records, now_ms=now_ms, may_sync=False)
                    break
                except AppendLater as later:
                    records = later.rest
                    await self.owner.work.flush(log)
        except UnexpectedAppendOffset:
            if log.log_start_offset < log.log_end_offset:
                raise
            await self.owner.work.lend(log, partial(append_as_fetched, log, records, now_ms))

    def _go_on(self, each: Following) -> None:
        """Ask for what comes next; behind the others, where not all fits into an answer."""
        if not each.lags:
            self._lagging.pop(each.partition.topic_partition, None)
        if each.out_of_range or not each.is_settled:
            self._set_aside(each)
        else:
            self._ask_for(each)

    # ---- out of range

    async def _find_range(self, connection: LeaderConnection, due: list[Following]) -> None:
        """Our log's end is not in the leader's log: it ends before (an unclean election), or
        begins after (we were away for long), or the leader has only just become one."""
        ends = await self._list_offsets(connection, due, LATEST_TIME)
        starts = await self._list_offsets(connection, due, EARLIEST_TIME)
        for each in due:
            tp, log = each.partition.topic_partition, each.partition.log
            if not self._is_current(each) or tp not in ends or tp not in starts:
                continue
            end, start = ends[tp], starts[tp]
            try:
                if end < log.log_end_offset:
                    logger.warning("%s: cut to the leader's end, %s", log, end)
                    await self._truncate_log(each.partition, end)
                elif start > log.log_end_offset:
                    logger.warning("%s: begun anew at the leader's start, %s", log, start)
                    await self._begin_anew(each.partition, start)
                each.out_of_range = False
            except Exception as error:
                self._failed(each, error)

    async def _list_offsets(
        self, connection: LeaderConnection, due: list[Following], timestamp: int
    ) -> dict[TopicPartition, int]:
        response: ListOffsetsResponse = await self._ask(
            connection, offsets_request(self.owner.local_id, due, timestamp)
        )
        found = {}
        by_partition = {each.partition.topic_partition: each for each in due}
        for topic in response.topics:
            for p in topic.partitions:
                tp = TopicPartition(topic.name, p.partition_index)
                if p.error_code == ErrorCode.NONE:
                    found[tp] = p.offset
                elif tp in by_partition and self._is_current(by_partition[tp]):
                    self._refused(by_partition[tp], p.error_code)
        return found


def _number(tp: TopicPartition) -> int:
    """Kafka's, which spreads partitions over `num.replica.fetchers`."""
    return abs31(wrap32(31 * java_string_hash(tp.topic) + tp.partition))


def _truncation(each: Following, p: EpochEndOffset) -> Truncation:
    log = each.partition.log
    return truncation(
        p.leader_epoch,
        p.end_offset,
        log.leader_epochs,
        log.log_end_offset,
        each.partition.high_watermark,
    )
