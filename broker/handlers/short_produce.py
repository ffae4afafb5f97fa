"""Serve the usual produce request in one pass, from its bytes to the bytes of its response.

Usual is: a few partitions of topics of users, acks 1 or -1, no transactional id, batches that are
not compressed and take little to check. A message object, a context and a response object for each
of them take longer than the append. Whatever else comes is left to `produce.handle` before anything
is changed, errors too; an error behind an append is left to `produce.go_on`. The rules are the same
functions that these use: what may be appended is decided by `ReplicaManager.append`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from struct import Struct
from struct import error as StructError

import attrs

from broker.cluster.metadata_cache import MetadataCache
from broker.handlers.produce import (
    FIRST_VERSION_OF_FORMAT_2,
    FIRST_VERSION_OF_ZSTD,
    PARTITIONS_A_TURN,
    go_on,
)
from broker.handlers.short_header import read_short_header
from broker.network.dispatch import Handler
from broker.replication.partition import Partition
from broker.replication.replica_manager import ReplicaManager
from core_log.appending.appended import LogAppendInfo
from core_log.appending.validator import LITTLE_REWRITTEN_BYTES, effort_of, is_compressed
from core_log.log import AppendLater
from protocol.errors import ApiError
from protocol.internal_topics import INTERNAL_TOPICS
from protocol.topic_partition import TopicPartition

LAST_VERSION = 7
FIRST_VERSION_OF_LOG_START = 5
MAX_PARTITIONS = PARTITIONS_A_TURN - 1
MAX_PLACES = 10_000
"""Partitions whose bytes are remembered; a request of one that is not is looked at in full."""

# Request: length of the transactional id, acks, timeout, number of topics.
_BODY = Struct(">hhii")
_LENGTH = Struct(">h")
_COUNT = Struct(">i")
# Number of partitions, index of the first one.
_PARTITION = Struct(">ii")
_SIZE = Struct(">i")
_INDEX_BYTES = 4
_NOT_GIVEN = -1

# Response: size, correlation id, number of topics; index, error, base offset, time of the append,
# start of the log; throttle time.
_START = Struct(">iii")
_APPENDED = Struct(">4shqq")
_APPENDED_WITH_LOG_START = Struct(">4shqqq")
_NO_THROTTLE = bytes(4)


_Part = tuple[bytes, bytes, Partition, memoryview]
"""One partition of a request: the name of its topic with the number of partitions that follow, and
its index, as requests and responses have them; the partition; its records."""


@attrs.define(eq=False)
class ShortProduce:
    """The short way of Produce; see `broker.network.dispatch.ShortWay`."""

    replicas: ReplicaManager
    cache: MetadataCache
    _places: dict[bytes, TopicPartition] = attrs.field(factory=dict, init=False)
    """By the first two of a part."""

    def __call__(self, frame: memoryview, now_ms: int) -> bytes | Handler | None:
        """Append and return the response, or None for a request that is not usual."""
        try:
            version, correlation_id, pos = read_short_header(frame)
            if not FIRST_VERSION_OF_FORMAT_2 <= version <= LAST_VERSION:
                return None
            transactional, acks, _, topics = _BODY.unpack_from(frame, pos)
            if transactional != _NOT_GIVEN or (acks != 1 and acks != -1):
                return None
            parts = self._read(frame, pos + _BODY.size, topics)
        except (StructError, ValueError):
            return None
        if not parts:
            return None

        # What is refused has not been appended: the general way finds the same, and says so.
        done: list[LogAppendInfo] = []
        is_waiting = False
        for _, _, partition, records in parts:
            try:
                appended = self.replicas.append_to(
                    partition,
                    records,
                    all_in_sync=acks == -1,
                    zstd_allowed=version >= FIRST_VERSION_OF_ZSTD,
                    now_ms=now_ms,
                )
            except (ApiError, AppendLater):
                return partial(go_on, self.replicas, self.cache, done) if done else None

            # What is not replicated or flushed yet is waited for.
            done.append(appended)
            reached = partition.high_watermark if acks == -1 else partition.log.durable_end_offset
            if reached <= appended.last_offset or (acks == -1 and not partition.is_enough_in_sync):
                is_waiting = True

        if is_waiting:
            return partial(go_on, self.replicas, self.cache, done)
        return _response(version, correlation_id, topics, parts, done)

    def _read(self, frame: memoryview, pos: int, topics: int) -> list[_Part] | None:
        """Read the parts, from the first topic's name on; return None if one is not usual."""
        parts: list[_Part] = []
        names: set[bytes] = set()
        size_of_all = 0
        for _ in range(topics):
            (name_length,) = _LENGTH.unpack_from(frame, pos)
            count_at = pos + _LENGTH.size + name_length
            (count,) = _COUNT.unpack_from(frame, count_at)
            if name_length < 0 or count < 1:
                return None
            topic = bytes(frame[pos : count_at + _COUNT.size])
            pos = count_at + _COUNT.size

            # A topic that is named twice has one place in the response.
            if topics > 1:
                names.add(topic[: -_COUNT.size])

            # Each partition has one batch, and is here.
            for _ in range(count):
                (size,) = _SIZE.unpack_from(frame, pos + _INDEX_BYTES)
                index = bytes(frame[pos : pos + _INDEX_BYTES])
                records_at = pos + _INDEX_BYTES + _SIZE.size
                pos = records_at + size
                records = frame[records_at:pos]
                if size < 0 or len(records) != size or is_compressed(records):
                    return None
                size_of_all += size

                place = topic + index
                topic_partition = self._places.get(place) or self._learn(place)
                if topic_partition is None or self.cache.partition_state(topic_partition) is None:
                    return None
                partition = self.replicas.partitions.get(topic_partition)
                if partition is None or len(parts) == MAX_PARTITIONS:
                    return None
                parts.append((topic, index, partition, records))

        if pos != len(frame) or (topics > 1 and len(names) < topics):
            return None
        return parts if size_of_all <= LITTLE_REWRITTEN_BYTES or _is_little(parts) else None

    def _learn(self, place: bytes) -> TopicPartition | None:
        """Read the bytes of a place; return None if it is not one of a usual request."""
        _, index = _PARTITION.unpack_from(place, len(place) - _PARTITION.size)
        try:
            name = str(place[_LENGTH.size : -_PARTITION.size], "utf-8")
        except UnicodeDecodeError:
            return None

        topic_partition = TopicPartition(name, index)
        if name in INTERNAL_TOPICS or topic_partition not in self.replicas.partitions:
            return None

        # Topics come and go: their places need not be kept for ever.
        if len(self._places) >= MAX_PLACES:
            self._places.clear()
        self._places[place] = topic_partition
        return topic_partition


def _is_little(parts: Sequence[_Part]) -> bool:
    """Return whether large records are a single batch that needs no thread, and only one turn."""
    _, _, partition, records = parts[0]
    effort = effort_of(records, partition.log.config)
    return len(parts) == 1 and effort.is_little and not effort.rewritten_bytes


def _response(
    version: int,
    correlation_id: int,
    topics: int,
    parts: Sequence[_Part],
    done: Sequence[LogAppendInfo],
) -> bytes:
    """Say where all parts are appended."""
    has_log_start = version >= FIRST_VERSION_OF_LOG_START
    written: list[bytes] = []
    topic_before = b""
    for (topic, index, _, _), appended in zip(parts, done, strict=True):
        # The partitions of a topic stand one after another.
        if topic is not topic_before:
            written.append(topic)
            topic_before = topic

        base_offset, _, append_time_ms, log_start_offset = appended
        written.append(
            _APPENDED_WITH_LOG_START.pack(index, 0, base_offset, append_time_ms, log_start_offset)
            if has_log_start
            else _APPENDED.pack(index, 0, base_offset, append_time_ms)
        )
    written.append(_NO_THROTTLE)

    body = b"".join(written)
    return _START.pack(_START.size - _SIZE.size + len(body), correlation_id, topics) + body
