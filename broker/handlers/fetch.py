"""Fetch: ranges of log files, at once or when `min_bytes` of them are there.

Partitions are read in the order asked; the first one with data gives at least one batch whatever
the limits (KIP-74). A consumer reads up to the high watermark; one of committed data up to the last
stable offset, with the names of the transactions that were aborted (KIP-98). A follower reads to
the log's end, and what it asks for tells the leader how far it is; one that is throttled and not
in sync gets nothing while the quota is exceeded. Sessions: `fetch_sessions`.

Versions 0-3 read older formats, and what is kept in a newer one is converted for them
(`down_conversion`); 0-2 take no byte more than they ask for, though it cut the first message.
"""

from __future__ import annotations

from collections.abc import Hashable
from concurrent.futures import Executor
from typing import Any

import attrs

from broker.cluster.metadata_cache import MetadataCache
from broker.network.deferred import Deferred
from broker.network.dispatch import Outcome
from broker.network.down_conversion import (
    AT_ONCE_BYTES,
    CONVERSION_TIMEOUT_MS,
    Conversion,
    convert_for_old_reader,
)
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from broker.replication.fetch_sessions import FetchContext, FetchSessions, Part, group_by_topic
from broker.replication.partition import Partition
from broker.replication.partition_waits import END, WATERMARK
from broker.replication.replica_manager import ReplicaManager
from broker.replication.replication_quota import ReplicationQuota
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchResponse,
    FetchResponseAbortedTransaction,
    FetchResponsePartition,
    error_response,
    partition_error,
)
from protocol.records.compression import CompressionUnavailable
from protocol.records.convert import NoOlderForm
from protocol.records.corrupt_record import CorruptRecord
from protocol.topic_partition import TopicPartition

FIRST_VERSION_OF_ZSTD = 10
FIRST_VERSION_OF_FORMAT_2 = 4
FIRST_VERSION_OF_FORMAT_1 = 2
FIRST_VERSION_OF_SOFT_LIMITS = 3
READ_COMMITTED = 1
_EMPTY = b""


@attrs.frozen
class _OldReader:
    """What versions 0-3 are to be spared: formats above `magic`, more bytes than they asked for."""

    magic: int
    hard_limits: bool
    deferred: Deferred


@attrs.frozen
class _Reader:
    """What reading a request needs, kept while it waits."""

    replicas: ReplicaManager
    cache: MetadataCache
    request: FetchRequest
    context: FetchContext
    max_bytes: int
    zstd_allowed: bool
    old: _OldReader | None
    quota: ReplicationQuota

    @property
    def is_follower(self) -> bool:
        """Whether a broker asks, for its own replicas."""
        return self.request.replica_id >= 0

    @property
    def stable_only(self) -> bool:
        """Whether a consumer reads what transactions have committed (KIP-98)."""
        return self.request.isolation_level == READ_COMMITTED and not self.is_follower

    def end_of(self, partition: Partition) -> int:
        """How far it may read."""
        if self.is_follower:
            return partition.log.log_end_offset
        return partition.last_stable_offset if self.stable_only else partition.high_watermark

    def aborted(
        self, partition: Partition, offset: int
    ) -> list[FetchResponseAbortedTransaction] | None:
        """The transactions whose data it must leave out. Raises ApiError."""
        if not self.stable_only:
            return None
        found = partition.log.aborted_transactions(offset, partition.last_stable_offset)
        return [
            FetchResponseAbortedTransaction(
                producer_id=each.producer_id, first_offset=each.first_offset
            )
            for each in found
        ]

    def has_more(self, part: Part) -> bool:
        """Whether a partition is to be looked at with the next request, though nothing moves in
        it: there is an error, or more to read, or a follower's fetch may still change something."""
        tp, answer = part
        partition = self.replicas.partitions.get(tp)
        if answer.error_code != ErrorCode.NONE or partition is None or self.context.session is None:
            return True
        known = self.context.session.partitions.get(tp)
        if known is None or known.request.fetch_offset < self.end_of(partition):
            return True
        return self.is_follower and not partition.needs_nothing_from(self.request.replica_id)

    def is_throttled(self, partition: Partition) -> bool:
        """Whether what a follower reads of this partition counts towards the quota."""
        if not self.is_follower:
            return False
        listed = partition.log.config.leader_throttled
        return self.quota.covers(partition.topic_partition.partition, listed)

    def is_held_back(self, partition: Partition) -> bool:
        """Whether this follower is to get nothing of it now."""
        return (
            self.is_throttled(partition)
            and self.request.replica_id not in partition.isr
            and self.quota.is_exceeded
        )


def handle(
    replicas: ReplicaManager,
    cache: MetadataCache,
    sessions: FetchSessions,
    most_bytes: int,
    deferred: Deferred,
    quota: ReplicationQuota,
    request: FetchRequest,
    context: RequestContext,
) -> Outcome:
    """Read, or wait up to `max_wait_ms`. `most_bytes` is the broker's fetch.max.bytes."""
    try:
        fetch = sessions.open(request, context.monotonic_ms)
    except ApiError as error:
        return FetchResponse(error_code=error.code, responses=[])
    version = context.api_version
    reader = _Reader(
        replicas,
        cache,
        request,
        fetch,
        min(request.max_bytes, most_bytes),
        version >= FIRST_VERSION_OF_ZSTD,
        None if version >= FIRST_VERSION_OF_FORMAT_2 else _old_reader(version, deferred),
        quota,
    )
    if reader.is_follower:
        session = None if fetch.session is None else fetch.session.fetches
        replicas.follower_progress.note_follower_fetch(
            request.replica_id, fetch.requested, context.monotonic_ms, session
        )
    if request.max_wait_ms <= 0 or _enough(reader):
        return _answer(reader)

    def try_complete(expired: bool) -> Outcome | None:
        return _answer(reader) if expired or _enough(reader) else None

    return Wait(
        keys=_waits_under(reader), timeout_ms=request.max_wait_ms, try_complete=try_complete
    )


def _waits_under(reader: _Reader) -> tuple[Hashable, ...]:
    """A session is woken by what moves in its partitions, another request waits for each."""
    context = reader.context
    if context.session is not None:
        return (context.session,)
    what = END if reader.is_follower else WATERMARK
    return tuple((what, tp) for tp, _ in context.requested)


def _answer(reader: _Reader) -> Outcome:
    parts = _read(reader)
    if reader.old is None:
        return reader.context.build_response(parts, reader.has_more)
    return _readable(reader.request, reader.old, parts)


def _enough(reader: _Reader) -> bool:
    """Whether to answer now: enough bytes, nothing asked, or something to say at once."""
    wanted, found = reader.request.min_bytes, 0
    if wanted <= 0 or reader.context.is_due:
        return True
    for tp, p in reader.context.requested:
        try:
            partition = reader.replicas.partition(tp)
            partition.require_leader(p.current_leader_epoch)
        except ApiError:
            return True
        log = partition.log
        if not log.log_start_offset <= p.fetch_offset <= log.log_end_offset:
            return True
        end = reader.end_of(partition)
        if p.fetch_offset >= end or reader.is_held_back(partition):
            continue
        most = p.partition_max_bytes
        try:
            found += min(log.bytes_between(p.fetch_offset, end, most), most)
        except ApiError:
            return True
        if found >= wanted:
            return True
    return False


def _read(reader: _Reader) -> list[Part]:
    left, first = reader.max_bytes, True
    parts = []
    for tp, p in reader.context.requested:
        part = _read_partition(reader, tp, p, left, first)
        size = getattr(part.records, "size", 0)
        first = first and not size
        left = max(0, left - size)
        parts.append((tp, part))
    return parts


def _may_have(reader: _Reader, tp: TopicPartition, size: int) -> bool:
    """Whether the quota lets the reader have so many bytes of it; then they are spent."""
    partition = reader.replicas.partition(tp)
    if not reader.is_throttled(partition):
        return True
    if reader.is_held_back(partition):
        return False
    reader.quota.record(size)
    return True


def _read_partition(
    reader: _Reader, tp: TopicPartition, p: FetchRequestPartition, left: int, first: bool
) -> FetchResponsePartition:
    replicas, old = reader.replicas, reader.old
    try:
        if reader.cache.partition_state(tp) is None and tp not in replicas.partitions:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(tp))
        found = replicas.read(
            tp,
            p.fetch_offset,
            min(p.partition_max_bytes, left),
            min_one=first or (old is not None and old.hard_limits),
            current_leader_epoch=p.current_leader_epoch,
            replica_id=reader.request.replica_id,
            stable_only=reader.stable_only,
        )
        partition = replicas.partition(tp)
        aborted = reader.aborted(partition, p.fetch_offset)
        if not reader.zstd_allowed and replicas.log(tp).config.compression_type == "zstd":
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"{tp} is kept in zstd")
        data = found.range
        if data is not None and not _may_have(reader, tp, data.size):
            data = None
        records: Any = _EMPTY if data is None else data
        if old is not None and data is not None:
            records = convert_for_old_reader(
                data,
                replicas.log(tp).config,
                magic=old.magic,
                fetch_offset=p.fetch_offset,
                limit=min(p.partition_max_bytes, left),
                hard=old.hard_limits,
            )
    except ApiError as error:
        return partition_error(p.partition, error.code)
    return FetchResponsePartition(
        partition_index=p.partition,
        error_code=ErrorCode.NONE,
        high_watermark=found.high_watermark,
        last_stable_offset=found.last_stable_offset,
        log_start_offset=found.log_start_offset,
        aborted_transactions=aborted,
        records=records,
    )


# ---- versions 0-3


def _old_reader(version: int, deferred: Deferred) -> _OldReader:
    magic = 1 if version >= FIRST_VERSION_OF_FORMAT_1 else 0
    return _OldReader(magic, version < FIRST_VERSION_OF_SOFT_LIMITS, deferred)


def _readable(request: FetchRequest, old: _OldReader, parts: list[Part]) -> Outcome:
    """The response, after what must be converted in it is, or has begun to be."""
    conversions = [part.records for _, part in parts if isinstance(part.records, Conversion)]
    if not conversions:
        return FetchResponse(responses=group_by_topic(parts))

    def convert() -> FetchResponse:
        converted = [(tp, _converted(part, old.deferred.executor)) for tp, part in parts]
        return FetchResponse(responses=group_by_topic(converted))

    size = sum(conversion.source.size for conversion in conversions)
    if size <= AT_ONCE_BYTES and all(conversion.at_once for conversion in conversions):
        return convert()
    return old.deferred.respond_from_thread(
        convert,
        CONVERSION_TIMEOUT_MS,
        lambda: error_response(request, ErrorCode.REQUEST_TIMED_OUT),
        lambda response: response,
    )


def _converted(p: FetchResponsePartition, executor: Executor) -> FetchResponsePartition:
    if not isinstance(p.records, Conversion):
        return p
    try:
        records = p.records.begin(executor)
    except (NoOlderForm, CompressionUnavailable):
        return partition_error(p.partition_index, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    except CorruptRecord:
        return partition_error(p.partition_index, ErrorCode.CORRUPT_MESSAGE)
    return FetchResponsePartition(
        partition_index=p.partition_index,
        error_code=ErrorCode.NONE,
        high_watermark=p.high_watermark,
        records=records,
    )
