"""Serve the usual fetch of a consumer in one pass, from its bytes to those around the file ranges.

Usual is: records at once, of at most MAX_PARTITIONS partitions, all or only committed ones, without
a session or as the next request of one. Message objects, a context and response objects take longer
than finding the bytes. Whatever else comes is left to `fetch.handle` before anything is changed, or
to `fetch.go_on`, which waits, and reports errors. The rules are the functions that these use:
`ReplicaManager.read`, and those of the session.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

import attrs

from broker.cluster.metadata_cache import MetadataCache
from broker.handlers.fetch import FIRST_VERSION_OF_FORMAT_2, FIRST_VERSION_OF_ZSTD, go_on
from broker.handlers.short_header import read_compact_text, read_short_header, skip_no_tags
from broker.network.authorization import Sender
from broker.network.dispatch import FetchedParts, Handler
from broker.replication.fetch_sessions import (
    FINAL_EPOCH,
    NO_SESSION,
    FetchContext,
    FetchSession,
    FetchSessions,
    RequestedPartition,
)
from broker.replication.replica_manager import CONSUMER, FetchedRange, ReplicaManager
from broker.replication.replication_quota import ReplicationQuota
from core_log.segments.transaction_index import AbortedTransaction
from core_log.storage import FileRange
from protocol.acls import Operation, ResourceType
from protocol.errors import ApiError
from protocol.messages.fetch import FetchRequestPartition
from protocol.primitives import uvarint
from protocol.special_values import READ_COMMITTED
from protocol.topic_partition import TopicPartition

LAST_VERSION = 12
FIRST_VERSION_OF_LOG_START = 5
FIRST_VERSION_OF_SESSIONS = 7
FIRST_VERSION_OF_LEADER_EPOCHS = 9
FIRST_VERSION_OF_RACKS = 11
FIRST_FLEXIBLE_VERSION = 12
MAX_PARTITIONS = 16

# Request: replica id, longest wait, least bytes, most bytes, isolation level; session id, session
# epoch.
_LIMITS = Struct(">iiiib")
_SESSION = Struct(">ii")
_LENGTH = Struct(">h")
_COUNT = Struct(">i")
# Partition, leader epoch, offset, start of the log, most bytes; older versions have less of it.
_ASKED = Struct(">iiqqi")
_ASKED_WITHOUT_EPOCH = Struct(">iqqi")
_ASKED_WITHOUT_LOG_START = Struct(">iqi")
# Flexible: partition, leader epoch, offset, last fetched epoch, start of the log, most bytes.
_ASKED_FLEXIBLE = Struct(">iiqiqi")

# Response: size, correlation id, throttle time; error, session id.
_START = Struct(">iii")
_START_OF_SESSION = Struct(">hi")
# Flexible: size, correlation id, tagged fields of the header, throttle time, error, session id.
_FLEXIBLE_START = Struct(">iibihi")
# Partition, error, high watermark, last stable offset, start of the log, number of aborted
# transactions, preferred replica, bytes of records; older versions have less of it.
_FETCHED = Struct(">ihqqqiii")
_FETCHED_WITHOUT_REPLICA = Struct(">ihqqqii")
_FETCHED_WITHOUT_LOG_START = Struct(">ihqqii")
# The first of these fields, then the aborted transactions, and what comes behind them.
_BOUNDS = Struct(">ihqqq")
_BOUNDS_WITHOUT_LOG_START = Struct(">ihqq")
_ABORTED = Struct(">qq")
_BEHIND_ABORTED = Struct(">ii")
# Flexible: without the bytes of records, and with a byte for the aborted transactions.
_FLEXIBLE_FETCHED = Struct(">ihqqqbi")
_COMPACT_NONE_LISTED = 0
_NO_TAGS = b"\0"
_SIZE_BYTES = 4
_NONE_LISTED = -1
_NO_REPLICA = -1

Fetched = tuple[TopicPartition, FetchedRange]


class _Asked(NamedTuple):
    """A usual request, read."""

    version: int
    correlation_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    stable_only: bool
    session_id: int
    session_epoch: int
    named: list[RequestedPartition]


@attrs.define(eq=False)
class ShortFetch:
    """The short way of Fetch; see `broker.network.dispatch.ShortWay`."""

    replicas: ReplicaManager
    cache: MetadataCache
    sessions: FetchSessions
    fetch_max_bytes: int
    quota: ReplicationQuota

    def __call__(
        self, frame: memoryview, now_ms: int, sender: Sender | None
    ) -> FetchedParts | Handler | None:
        """Return the response, or None for a request that is not usual."""
        asked = _read_request(frame)
        if asked is None:
            return None

        # Whoever may not read all that is named is told so by the general way.
        named = asked.named
        readable = None
        if sender is not None:
            readable = sender.permissions(Operation.READ, ResourceType.TOPIC)
            if not all(readable.allows(topic_partition.topic) for topic_partition, _ in named):
                return None

        # Without a session the request names what to read; it must not end one.
        session = None
        if asked.session_epoch == FINAL_EPOCH:
            if asked.session_id != NO_SESSION or not named:
                return None

        # A session knows what to read; new partitions are not usual.
        else:
            session = self.sessions.find(asked.session_id, asked.session_epoch)
            if session is None or session.is_follower:
                return None
            if len(session.marked) + len(named) > MAX_PARTITIONS:
                return None
            if any(topic_partition not in session.partitions for topic_partition, _ in named):
                return None
            if readable is not None and not session.is_readable(readable):
                return None
            # From here on the request is the session's, whoever responds.
            self.sessions.go_on(session, named, self.replicas.monotonic_ms())

        response = self._respond_if_enough(asked, session)
        if response is not None:
            return response
        return partial(
            go_on,
            self.replicas,
            self.cache,
            self.fetch_max_bytes,
            self.quota,
            FetchContext(named) if session is None else FetchContext((), session, incremental=True),
            partial(self._respond_if_enough, asked, session),
        )

    def _respond_if_enough(
        self, asked: _Asked, session: FetchSession | None
    ) -> FetchedParts | None:
        """Return the response if there is enough to send now, and no error to report."""
        if session is None:
            fetched = self._read(asked, asked.named)
            return None if fetched is None else _write_response(asked, NO_SESSION, fetched)

        fetched = self._read(asked, session.requested)
        if fetched is None:
            return None
        return _write_response(asked, session.id, self._news(asked, session, fetched))

    def _read(self, asked: _Asked, requested: list[RequestedPartition]) -> list[Fetched] | None:
        """Read; return None if there is an error to report, or too little to respond with now."""
        left = min(asked.max_bytes, self.fetch_max_bytes)
        readable = 0
        is_first = True
        fetched = []

        for topic_partition, partition in requested:
            try:
                result = self.replicas.read(
                    topic_partition,
                    partition.fetch_offset,
                    min(partition.partition_max_bytes, left),
                    min_one=is_first,
                    current_leader_epoch=partition.current_leader_epoch,
                    last_fetched_epoch=partition.last_fetched_epoch,
                    stable_only=asked.stable_only,
                )
            except ApiError:
                return None
            # A reader that must truncate is not usual.
            if result.diverging_epoch is not None:
                return None
            if asked.version < FIRST_VERSION_OF_ZSTD:
                log = self.replicas.partitions[topic_partition].log
                if log.config.compression_type == "zstd":
                    return None

            # Only the first records may exceed the limits; they are not counted beyond them.
            size = 0 if result.range is None else result.range.size
            if size:
                is_first = False
                left = max(0, left - size)
                readable += min(size, partition.partition_max_bytes)
            fetched.append((topic_partition, result))

        is_enough = readable >= asked.min_bytes or asked.min_bytes <= 0
        return fetched if is_enough or asked.max_wait_ms <= 0 else None

    def _news(self, asked: _Asked, session: FetchSession, fetched: list[Fetched]) -> list[Fetched]:
        """Note what a session gets; return the partitions with news for its reader."""

        def end_of(topic_partition: TopicPartition) -> int:
            partition = self.replicas.partitions[topic_partition]
            return partition.last_stable_offset if asked.stable_only else partition.high_watermark

        return [
            (topic_partition, result)
            for topic_partition, result in fetched
            if session.note(
                topic_partition,
                result.high_watermark,
                result.log_start_offset,
                has_records=result.range is not None,
                has_more=session.asks_below(topic_partition, end_of(topic_partition)),
            )
        ]


def _read_request(frame: memoryview) -> _Asked | None:
    """Read a request; return None if it is not usual, or cannot be read."""
    try:
        version, correlation_id, pos = read_short_header(frame)
        if not FIRST_VERSION_OF_FORMAT_2 <= version <= LAST_VERSION:
            return None
        is_flexible = version >= FIRST_FLEXIBLE_VERSION
        if is_flexible:
            pos = skip_no_tags(frame, pos)

        # Read the fixed fields.
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation = _LIMITS.unpack_from(frame, pos)
        if replica_id != CONSUMER:
            return None
        pos += _LIMITS.size
        session_id, session_epoch = NO_SESSION, FINAL_EPOCH
        if version >= FIRST_VERSION_OF_SESSIONS:
            session_id, session_epoch = _SESSION.unpack_from(frame, pos)
            pos += _SESSION.size

        read_rest = _read_flexible_rest if is_flexible else _read_rest
        named, pos = read_rest(frame, pos, version)
    except (StructError, ValueError, IndexError):
        return None

    if pos != len(frame) or len(named) > MAX_PARTITIONS:
        return None
    # The general way sees to what is named again (fault strangers-10).
    if len(named) > 1 and len(dict(named)) < len(named):
        return None
    return _Asked(
        version,
        correlation_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation == READ_COMMITTED,
        session_id,
        session_epoch,
        named,
    )


def _read_rest(frame: memoryview, pos: int, version: int) -> tuple[list[RequestedPartition], int]:
    """Read the partitions, and what is after them; return the partitions and the position.

    Raises ValueError for what is not usual.
    """
    # Read the partitions.
    (topics,) = _COUNT.unpack_from(frame, pos)
    pos += _COUNT.size
    if not 0 <= topics <= MAX_PARTITIONS:
        raise ValueError("many topics")
    named: list[RequestedPartition] = []
    for _ in range(topics):
        (length,) = _LENGTH.unpack_from(frame, pos)
        if length < 0:
            raise ValueError("a topic that is null")
        pos += _LENGTH.size
        name = str(frame[pos : pos + length], "utf-8")
        pos += length
        (count,) = _COUNT.unpack_from(frame, pos)
        pos += _COUNT.size
        if not 0 <= count <= MAX_PARTITIONS:
            raise ValueError("many partitions")
        for _ in range(count):
            partition, pos = _read_partition(frame, pos, version)
            named.append((TopicPartition(name, partition.partition), partition))

    # Nothing is removed from the session.
    if version >= FIRST_VERSION_OF_SESSIONS:
        if _COUNT.unpack_from(frame, pos) != (0,):
            raise ValueError("partitions to remove")
        pos += _COUNT.size
    if version >= FIRST_VERSION_OF_RACKS:
        (length,) = _LENGTH.unpack_from(frame, pos)
        pos += _LENGTH.size
        str(frame[pos : pos + length], "utf-8")
        if length < 0:
            raise ValueError("a rack that is null")
        pos += length
    return named, pos


def _read_flexible_rest(
    frame: memoryview, pos: int, version: int
) -> tuple[list[RequestedPartition], int]:
    """Do the same in a flexible version."""
    # Compact counts are stored plus one; a usual one takes one byte.
    topics = frame[pos] - 1
    pos += 1
    if not 0 <= topics <= MAX_PARTITIONS:
        raise ValueError("many topics")
    named: list[RequestedPartition] = []
    for _ in range(topics):
        name, pos = read_compact_text(frame, pos)
        count = frame[pos] - 1
        pos += 1
        if not 0 <= count <= MAX_PARTITIONS:
            raise ValueError("many partitions")
        for _ in range(count):
            index, leader_epoch, offset, last_fetched_epoch, log_start_offset, max_bytes = (
                _ASKED_FLEXIBLE.unpack_from(frame, pos)
            )
            pos = skip_no_tags(frame, pos + _ASKED_FLEXIBLE.size)
            partition = FetchRequestPartition(
                partition=index,
                current_leader_epoch=leader_epoch,
                fetch_offset=offset,
                last_fetched_epoch=last_fetched_epoch,
                log_start_offset=log_start_offset,
                partition_max_bytes=max_bytes,
            )
            named.append((TopicPartition(name, index), partition))
        pos = skip_no_tags(frame, pos)

    # Nothing is removed from the session.
    if frame[pos] != 1:
        raise ValueError("partitions to remove")
    _, pos = read_compact_text(frame, pos + 1)
    return named, skip_no_tags(frame, pos)


def _read_partition(frame: memoryview, pos: int, version: int) -> tuple[FetchRequestPartition, int]:
    """Read what is asked of a partition; return it and the position after it."""
    leader_epoch = log_start_offset = -1
    if version >= FIRST_VERSION_OF_LEADER_EPOCHS:
        layout = _ASKED
        index, leader_epoch, offset, log_start_offset, max_bytes = layout.unpack_from(frame, pos)
    elif version >= FIRST_VERSION_OF_LOG_START:
        layout = _ASKED_WITHOUT_EPOCH
        index, offset, log_start_offset, max_bytes = layout.unpack_from(frame, pos)
    else:
        layout = _ASKED_WITHOUT_LOG_START
        index, offset, max_bytes = layout.unpack_from(frame, pos)

    partition = FetchRequestPartition(
        partition=index,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        log_start_offset=log_start_offset,
        partition_max_bytes=max_bytes,
    )
    return partition, pos + layout.size


def _write_response(asked: _Asked, session_id: int, fetched: list[Fetched]) -> FetchedParts:
    """Write the response around the ranges of files."""
    version = asked.version
    is_flexible = version >= FIRST_FLEXIBLE_VERSION
    end = _NO_TAGS if is_flexible else b""
    parts: list[bytes | FileRange] = []
    sizes: list[tuple[str, int]] = []
    head = bytearray()
    size = topics = 0

    for topic, of_topic in groupby(fetched, key=lambda entry: entry[0].topic):
        group = list(of_topic)
        topics += 1
        name = topic.encode()
        if is_flexible:
            head += uvarint(len(name) + 1) + name + uvarint(len(group) + 1)
        else:
            head += _LENGTH.pack(len(name)) + name + _COUNT.pack(len(group))

        for (_, index), result in group:
            records = result.range
            records_size = 0 if records is None else records.size
            sizes.append((topic, records_size))
            head += _write_partition(version, index, result, records_size)
            if records is not None:
                parts += [bytes(head), records]
                size += len(head) + records_size
                head.clear()
            head += end
        head += end
    head += end

    # What is behind the last range, and the beginning, which has the size of all.
    if head or not parts:
        parts.append(bytes(head))
        size += len(head)
    first = parts[0]
    assert isinstance(first, bytes), "every range has bytes before it"
    parts[0] = _write_start(asked, session_id, topics, size) + first
    return FetchedParts(parts, sizes)


def _write_start(asked: _Asked, session_id: int, topics: int, size: int) -> bytes:
    """Write what comes before the topics, which take `size` bytes."""
    if asked.version >= FIRST_FLEXIBLE_VERSION:
        count = uvarint(topics + 1)
        size += _FLEXIBLE_START.size - _SIZE_BYTES + len(count)
        return _FLEXIBLE_START.pack(size, asked.correlation_id, 0, 0, 0, session_id) + count

    start = _COUNT.pack(topics)
    if asked.version >= FIRST_VERSION_OF_SESSIONS:
        start = _START_OF_SESSION.pack(0, session_id) + start
    size += _START.size - _SIZE_BYTES + len(start)
    return _START.pack(size, asked.correlation_id, 0) + start


def _write_partition(version: int, index: int, result: FetchedRange, size: int) -> bytes:
    if result.aborted is not None:
        return _write_committed(version, index, result, result.aborted, size)
    bounds = result.high_watermark, result.last_stable_offset
    if version >= FIRST_FLEXIBLE_VERSION:
        fields = *bounds, result.log_start_offset, _COMPACT_NONE_LISTED, _NO_REPLICA
        return _FLEXIBLE_FETCHED.pack(index, 0, *fields) + uvarint(size + 1)
    if version >= FIRST_VERSION_OF_RACKS:
        return _FETCHED.pack(
            index, 0, *bounds, result.log_start_offset, _NONE_LISTED, _NO_REPLICA, size
        )
    if version >= FIRST_VERSION_OF_LOG_START:
        return _FETCHED_WITHOUT_REPLICA.pack(
            index, 0, *bounds, result.log_start_offset, _NONE_LISTED, size
        )
    return _FETCHED_WITHOUT_LOG_START.pack(index, 0, *bounds, _NONE_LISTED, size)


def _write_committed(
    version: int,
    index: int,
    result: FetchedRange,
    aborted: Sequence[AbortedTransaction],
    size: int,
) -> bytes:
    """Do the same for a reader of committed data: the aborted transactions are listed."""
    bounds = result.high_watermark, result.last_stable_offset
    if version >= FIRST_VERSION_OF_LOG_START:
        start = _BOUNDS.pack(index, 0, *bounds, result.log_start_offset)
    else:
        start = _BOUNDS_WITHOUT_LOG_START.pack(index, 0, *bounds)

    listed = [_ABORTED.pack(producer_id, first) for producer_id, first, _, _ in aborted]
    if version >= FIRST_FLEXIBLE_VERSION:
        entries = b"".join(entry + _NO_TAGS for entry in listed)
        behind = _COUNT.pack(_NO_REPLICA) + uvarint(size + 1)
        return start + uvarint(len(listed) + 1) + entries + behind

    start += _COUNT.pack(len(listed)) + b"".join(listed)
    if version >= FIRST_VERSION_OF_RACKS:
        return start + _BEHIND_ABORTED.pack(_NO_REPLICA, size)
    return start + _COUNT.pack(size)
