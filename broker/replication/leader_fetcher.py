"""Decide what a follower asks of one leader, and what it does with each response.

A partition that begins to follow is first truncated to what its leader has too (`truncation`), then
fetched from its own log's end. A response counts only if nothing has changed since the request: the
same leader epoch, the same log end. Whatever goes wrong with a partition, expected or not, delays
that partition alone: a little the first time, up to `replica.fetch.backoff.ms`
(`replication_failures` has the classes of errors). A throttled partition that lags is not asked for
while the quota is exceeded.

Nothing here waits, reads a clock, or touches a log: `replica_fetchers` sends what a `LeaderFetcher`
asks, changes the logs as it says, and reports how that went.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from math import inf

import attrs

from broker.replication.fetch_sessions import SessionReader
from broker.replication.following_replica import FIRST_DELAY_MS, FollowingReplica
from broker.replication.replication_failures import Cause, cause_of
from broker.replication.replication_quota import ReplicationQuota
from broker.replication.truncation import Truncation, decide_truncation
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.messages.fetch import FetchRequest, FetchResponse, FetchResponsePartition
from protocol.messages.list_offsets import ListOffsetsResponse
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochResponsePartition as EpochEndOffset,
)
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


@frozen
class FetcherConfig:
    """The settings `replica.fetch.*` and `num.replica.fetchers`, in ms and bytes."""

    max_bytes: int = 1024 * 1024
    response_max_bytes: int = 10 * 1024 * 1024
    wait_max_ms: int = 500
    min_bytes: int = 1
    backoff_ms: int = 1000
    fetchers: int = 1


@frozen
class TruncateLog:
    """Truncate a partition's log to `to.offset`; unless `to.done`, ask about the epoch before."""

    replica: FollowingReplica
    to: Truncation


@frozen
class RestartLog:
    """Delete all of a partition's log; the next record gets `offset`."""

    replica: FollowingReplica
    offset: int


@frozen
class AppendRecords:
    """Append what the leader sent, then follow its high watermark and log start."""

    replica: FollowingReplica
    response: FetchResponsePartition


@frozen
class Pause:
    """Ask for nothing for so many ms, or until something changes; `inf` knows no end."""

    ms: float


@attrs.define(eq=False)
class LeaderFetcher:
    """The partitions that follow one leader, over one connection.

    A partition that is being fetched is in the session, which remembers what is asked for. All
    others of `replicas` are `_aside`: not truncated yet, delayed, throttled, or with records that
    are not on disk. A round looks at those aside and at what the leader sent, and not at partitions
    at rest.
    """

    local_id: int
    leader: int
    config: FetcherConfig
    quota: ReplicationQuota
    replicas: dict[TopicPartition, FollowingReplica] = attrs.field(factory=dict)
    _aside: dict[TopicPartition, FollowingReplica] = attrs.field(factory=dict)
    _lagging: dict[TopicPartition, FollowingReplica] = attrs.field(factory=dict)
    _session: SessionReader = attrs.field(factory=SessionReader)

    # ---- which partitions

    def add(self, replica: FollowingReplica) -> None:
        """Begin with a partition, or with a new leader epoch of it."""
        topic_partition = replica.topic_partition
        self._session.forget(topic_partition)
        self._lagging.pop(topic_partition, None)

        self.replicas[topic_partition] = replica
        self._aside[topic_partition] = replica

    def remove(self, topic_partition: TopicPartition) -> None:
        """Go on without a partition."""
        del self.replicas[topic_partition]
        self._aside.pop(topic_partition, None)
        self._lagging.pop(topic_partition, None)
        self._session.forget(topic_partition)

    def is_current(self, replica: FollowingReplica) -> bool:
        """True while the partition follows this leader in the same epoch."""
        return self.replicas.get(replica.topic_partition) is replica

    def end_session(self) -> None:
        """Name all partitions again in the next fetch: the connection is lost."""
        self._session.restart()

    # ---- truncation

    def find_untruncated(self, monotonic_ms: float) -> list[FollowingReplica]:
        """Return the partitions that must be truncated now, before they are fetched."""
        return [replica for replica in self._due(monotonic_ms) if not replica.is_truncated]

    def truncate_by_watermark(self, untruncated: Iterable[FollowingReplica]) -> list[TruncateLog]:
        """Decide where logs without a leader epoch end; the leader need not be asked."""
        return [
            TruncateLog(replica, Truncation(replica.partition.high_watermark, done=True))
            for replica in untruncated
            if not replica.has_epochs and self.is_current(replica)
        ]

    def truncate_by_epochs(
        self,
        asked: Iterable[FollowingReplica],
        response: OffsetForLeaderEpochResponse,
        monotonic_ms: float,
    ) -> list[TruncateLog]:
        """Decide where logs end by what the leader knows of the epochs that were `asked`."""
        by_name = {replica.topic_partition: replica for replica in asked}
        truncations = []

        for topic in response.topics:
            for end in topic.partitions:
                replica = by_name.get(TopicPartition(topic.topic, end.partition))
                # It follows another leader, or in another epoch, since the request.
                if replica is None or not self.is_current(replica):
                    continue
                if end.error_code != ErrorCode.NONE:
                    self._refuse(replica, end.error_code, monotonic_ms)
                    continue

                try:
                    truncations.append(TruncateLog(replica, _truncation(replica, end)))
                except Exception as error:
                    self.fail(replica, error, monotonic_ms)

        return truncations

    def note_changed(self, change: TruncateLog | RestartLog) -> None:
        """Note that a log was truncated, or restarted."""
        replica = change.replica
        replica.is_out_of_range = False
        if isinstance(change, TruncateLog):
            replica.is_truncated = change.to.done

    # ---- our log's end is not in the leader's log

    def find_out_of_range(self, monotonic_ms: float) -> list[FollowingReplica]:
        """Return the partitions whose leader must be asked where its log starts and ends."""
        return [replica for replica in self._due(monotonic_ms) if replica.is_out_of_range]

    def read_offsets(
        self,
        asked: Iterable[FollowingReplica],
        response: ListOffsetsResponse,
        monotonic_ms: float,
    ) -> dict[TopicPartition, int]:
        """Return the offsets that the leader answered; the partitions it refused are delayed."""
        by_name = {replica.topic_partition: replica for replica in asked}
        offsets = {}

        for topic in response.topics:
            for answered in topic.partitions:
                topic_partition = TopicPartition(topic.name, answered.partition_index)
                replica = by_name.get(topic_partition)
                if answered.error_code == ErrorCode.NONE:
                    offsets[topic_partition] = answered.offset
                elif replica is not None and self.is_current(replica):
                    self._refuse(replica, answered.error_code, monotonic_ms)

        return offsets

    def return_to_range(
        self,
        asked: Iterable[FollowingReplica],
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> Iterator[TruncateLog | RestartLog]:
        """Decide how each log gets back into its leader's range.

        The leader's log ends before ours (an unclean election), or it starts after ours ends (we
        were away for long), or the leader had only just become one and all is well. Decisions come
        one at a time, as partitions may go while a log is changed.
        """
        for replica in asked:
            name, log = replica.topic_partition, replica.partition.log
            if not self.is_current(replica) or name not in starts or name not in ends:
                continue

            if ends[name] < log.log_end_offset:
                logger.warning("%s: truncating to the leader's log end, %s", log, ends[name])
                yield TruncateLog(replica, Truncation(ends[name], done=True))
            elif starts[name] > log.log_end_offset:
                logger.warning("%s: restarting at the leader's log start, %s", log, starts[name])
                yield RestartLog(replica, starts[name])
            else:
                replica.is_out_of_range = False

    # ---- fetching

    def next_fetch(self, monotonic_ms: float) -> FetchRequest | Pause:
        """Return the next fetch, or for how long there is nothing to ask for."""
        is_throttling = self._set_throttled_aside()
        for replica in self._due(monotonic_ms):
            is_ready = replica.is_truncated and not replica.is_out_of_range
            if is_ready and not self._must_wait_for_quota(replica):
                self._ask_for(replica)

        if self._session.wanted:
            return self._session.request(
                FetchRequest(
                    replica_id=self.local_id,
                    max_wait_ms=self.config.wait_max_ms,
                    min_bytes=self.config.min_bytes,
                    max_bytes=self.config.response_max_bytes,
                    topics=(),
                )
            )
        # Over the quota: look again after the backoff.
        if is_throttling:
            return Pause(self.config.backoff_ms)

        # A log that is not flushed has no time: the end of its flush wakes the loop.
        flushed = (replica for replica in self._aside.values() if replica.is_flushed)
        next_retry_ms = min((replica.retry_at_ms for replica in flushed), default=inf)
        return Pause(max(next_retry_ms - monotonic_ms, 0.0))

    def read_session(self, response: FetchResponse) -> None:
        """Learn from a response what the leader remembers of this session."""
        self._session.handle_response(response)

    def take(
        self,
        topic_partition: TopicPartition,
        response: FetchResponsePartition,
        monotonic_ms: float,
    ) -> AppendRecords | None:
        """Decide what a partition's part of a fetch response is good for; None: for nothing.

        End with `go_on`, or `fail`, for the partition that is returned.
        """
        replica = self.replicas.get(topic_partition)
        if replica is None or topic_partition in self._aside:
            return None  # it follows another leader, or in another epoch, since the request

        if replica.partition.log.log_end_offset != replica.fetch_offset:
            # The log was changed since the request: the response does not fit.
            self.go_on(replica)
        elif response.error_code == ErrorCode.NONE:
            return AppendRecords(replica, response)
        elif response.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            replica.is_out_of_range = True
            self.go_on(replica)
        else:
            self._refuse(replica, response.error_code, monotonic_ms)
        return None

    def note_appended(self, append: AppendRecords) -> None:
        """Note how far the log is after an append, also after one that failed half-way."""
        replica, response = append.replica, append.response
        replica.lags = replica.partition.log.log_end_offset < response.high_watermark
        if response.records and self._is_throttled(replica):
            self.quota.record(len(response.records))

    def recover(self, replica: FollowingReplica) -> None:
        """Forget a partition's earlier trouble: what the leader sent is in its log."""
        replica.delay_ms = FIRST_DELAY_MS
        replica.trouble = ""

    def go_on(self, replica: FollowingReplica) -> None:
        """Ask for what comes next; behind the others, for when not all fits into a response."""
        if not self.is_current(replica) or replica.topic_partition in self._aside:
            return

        if not replica.lags:
            self._lagging.pop(replica.topic_partition, None)
        # The leader's bounds, or a flush, come before the next fetch.
        if replica.is_out_of_range or not replica.is_flushed:
            self._set_aside(replica)
        else:
            self._ask_for(replica)

    def refresh(self, topic_partition: TopicPartition) -> None:
        """Tell the leader with the next fetch where our log starts now."""
        if topic_partition in self._session.wanted:
            self._ask_for(self.replicas[topic_partition])

    # ---- trouble

    def fail(self, replica: FollowingReplica, error: Exception, monotonic_ms: float) -> None:
        """Delay a partition that cannot keep what the leader sent; log new trouble once."""
        trouble = str(error) or type(error).__name__
        if trouble != replica.trouble:
            unexpected = error if cause_of(error) == Cause.OURSELVES else None
            logger.error(
                "%s: cannot keep what broker %s sent: %s",
                replica.topic_partition,
                self.leader,
                trouble,
                exc_info=unexpected,
            )
        self._delay(replica, trouble, monotonic_ms)

    def _refuse(self, replica: FollowingReplica, code: int, monotonic_ms: float) -> None:
        name = ErrorCode.of(code).name
        logger.debug("%s: broker %s refuses: %s", replica.topic_partition, self.leader, name)
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            # The controller is about to name a later epoch.
            replica.delay_ms = self.config.backoff_ms
        self._delay(replica, name, monotonic_ms)

    def _delay(self, replica: FollowingReplica, trouble: str, monotonic_ms: float) -> None:
        self._set_aside(replica)
        replica.trouble = trouble
        replica.retry_at_ms = monotonic_ms + replica.delay_ms
        replica.delay_ms = min(replica.delay_ms * 2, self.config.backoff_ms)

    # ---- what is asked for

    def _due(self, monotonic_ms: float) -> list[FollowingReplica]:
        """Return the partitions aside that may be asked for; delay those whose log has failed."""
        due = []
        for replica in list(self._aside.values()):
            if replica.retry_at_ms > monotonic_ms or not replica.is_flushed:
                continue

            # A failed log is looked at again: it may take writes later.
            failure = replica.partition.log.failure
            if failure is None:
                due.append(replica)
            else:
                self._delay(replica, failure, monotonic_ms)
        return due

    def _ask_for(self, replica: FollowingReplica) -> None:
        topic_partition = replica.topic_partition
        replica.fetch_offset = replica.partition.log.log_end_offset
        self._session.want(topic_partition, replica.fetch_from_end(self.config.max_bytes))

        self._aside.pop(topic_partition, None)
        if replica.lags:
            self._lagging[topic_partition] = replica

    def _set_aside(self, replica: FollowingReplica) -> None:
        if not self.is_current(replica):
            return

        topic_partition = replica.topic_partition
        self._session.forget(topic_partition)
        self._lagging.pop(topic_partition, None)
        self._aside[topic_partition] = replica

    # ---- the quota

    def _set_throttled_aside(self) -> bool:
        """Stop asking for what must wait for the quota; return whether anything must."""
        if not self.quota.is_exceeded:
            return False

        # Only those that lag: others would fall out of the ISR (KAFKA-4313).
        for replica in list(self._lagging.values()):
            if self._must_wait_for_quota(replica):
                self._set_aside(replica)
        return any(self._must_wait_for_quota(replica) for replica in self._aside.values())

    def _is_throttled(self, replica: FollowingReplica) -> bool:
        listed = replica.partition.log.config.follower_throttled
        return self.quota.covers(replica.topic_partition.partition, listed)

    def _must_wait_for_quota(self, replica: FollowingReplica) -> bool:
        return replica.lags and self._is_throttled(replica) and self.quota.is_exceeded


def _truncation(replica: FollowingReplica, end: EpochEndOffset) -> Truncation:
    log = replica.partition.log
    return decide_truncation(
        end.leader_epoch,
        end.end_offset,
        log.leader_epochs,
        log.log_end_offset,
        replica.partition.high_watermark,
    )
