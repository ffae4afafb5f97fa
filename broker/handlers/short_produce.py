"""Serve the usual produce request in one pass, from its bytes to the bytes of its response.

Usual is: one partition of a topic of users, acks 1 or -1, no transactional id, one batch that is
not compressed and takes little to check. A message object, a context and a response object for each
of them take longer than the append. Whatever else comes is left to `produce.handle` before anything
is changed, errors too. The rules are the same functions that it uses: what may be appended is
decided by `ReplicaManager.append`.
"""

from __future__ import annotations

from functools import partial
from struct import Struct
from struct import error as StructError

import attrs

from broker.cluster.metadata_cache import MetadataCache
from broker.handlers.produce import (
    FIRST_VERSION_OF_FORMAT_2,
    FIRST_VERSION_OF_ZSTD,
    respond_to_one,
)
from broker.handlers.short_header import read_short_header
from broker.network.dispatch import Rest
from broker.replication.replica_manager import ReplicaManager
from core_log.appending.validator import LITTLE_REWRITTEN_BYTES, effort_of, is_compressed
from core_log.log import AppendLater
from protocol.errors import ApiError
from protocol.internal_topics import INTERNAL_TOPICS
from protocol.topic_partition import TopicPartition

LAST_VERSION = 7
FIRST_VERSION_OF_LOG_START = 5
MAX_PLACES = 10_000
"""Partitions whose bytes are remembered; a request of one that is not is looked at in full."""

# Request: length of the transactional id, acks, timeout, number of topics, length of the first
# one's name.
_BODY = Struct(">hhiih")
# Number of partitions, index of the first one.
_PARTITION = Struct(">ii")
_SIZE = Struct(">i")
_ONE_TOPIC = 1
_ONE_PARTITION = 1
_NAME_LENGTH_BYTES = 2

# Response: size, correlation id, number of topics; error, base offset, time of the append, start of
# the log, throttle time.
_START = Struct(">iii")
_END = Struct(">hqqi")
_END_WITH_LOG_START = Struct(">hqqqi")


@attrs.define(eq=False)
class ShortProduce:
    """The short way of Produce; see `broker.network.dispatch.ShortWay`."""

    replicas: ReplicaManager
    cache: MetadataCache
    _places: dict[bytes, TopicPartition] = attrs.field(factory=dict, init=False)
    """The name of a topic and the index of a partition, as requests and responses write them."""

    def __call__(self, frame: memoryview, now_ms: int) -> bytes | Rest | None:
        """Append and return the response, or None for a request that is not usual."""
        # Read the fixed fields.
        try:
            version, correlation_id, pos = read_short_header(frame)
            if not FIRST_VERSION_OF_FORMAT_2 <= version <= LAST_VERSION:
                return None
            transactional, acks, _, topics, name_length = _BODY.unpack_from(frame, pos)
            if transactional != -1 or topics != _ONE_TOPIC or name_length < 0:
                return None
            if acks != 1 and acks != -1:
                return None

            place_at = pos + _BODY.size - _NAME_LENGTH_BYTES
            size_at = pos + _BODY.size + name_length + _PARTITION.size
            (size,) = _SIZE.unpack_from(frame, size_at)
        except (StructError, ValueError):
            return None

        # The rest must be one batch, of a partition that is here.
        records = frame[size_at + _SIZE.size :]
        if size != len(records) or is_compressed(records):
            return None
        place = bytes(frame[place_at:size_at])
        topic_partition = self._places.get(place) or self._learn(place)
        if topic_partition is None or self.cache.partition_state(topic_partition) is None:
            return None
        partition = self.replicas.partitions.get(topic_partition)
        if partition is None:
            return None

        # A larger one may take a thread, or several turns of the loop.
        log = partition.log
        if size > LITTLE_REWRITTEN_BYTES:
            effort = effort_of(records, log.config)
            if effort.rewritten_bytes or not effort.is_little:
                return None

        # What is refused has not been appended: the general way finds the same, and says so.
        try:
            appended = self.replicas.append(
                topic_partition,
                records,
                all_in_sync=acks == -1,
                zstd_allowed=version >= FIRST_VERSION_OF_ZSTD,
                now_ms=now_ms,
            )
        except (ApiError, AppendLater):
            return None

        # What is not replicated or flushed yet is waited for.
        base_offset, last_offset, append_time_ms, log_start_offset = appended
        reached = partition.high_watermark if acks == -1 else log.durable_end_offset
        if reached <= last_offset or (acks == -1 and not partition.is_enough_in_sync):
            return partial(respond_to_one, self.replicas, topic_partition, appended)

        if version >= FIRST_VERSION_OF_LOG_START:
            end = _END_WITH_LOG_START.pack(0, base_offset, append_time_ms, log_start_offset, 0)
        else:
            end = _END.pack(0, base_offset, append_time_ms, 0)
        start = _START.pack(
            _START.size - _SIZE.size + len(place) + len(end), correlation_id, _ONE_TOPIC
        )
        return start + place + end

    def _learn(self, place: bytes) -> TopicPartition | None:
        """Read the bytes of a place; return None if it is not one of a usual request."""
        count, index = _PARTITION.unpack_from(place, len(place) - _PARTITION.size)
        try:
            name = str(place[_NAME_LENGTH_BYTES : -_PARTITION.size], "utf-8")
        except UnicodeDecodeError:
            return None

        topic_partition = TopicPartition(name, index)
        if (
            count != _ONE_PARTITION
            or name in INTERNAL_TOPICS
            or topic_partition not in self.replicas.partitions
        ):
            return None

        # Topics come and go: their places need not be kept for ever.
        if len(self._places) >= MAX_PLACES:
            self._places.clear()
        self._places[place] = topic_partition
        return topic_partition
