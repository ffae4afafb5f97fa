"""Serve the usual produce request in one pass, from its bytes to the bytes of its response.

Usual is: a few partitions of topics of users, acks 1 or -1, batches that are not compressed and
take little to check; those of a transaction only where nobody asks who may write in it. A message
object, a context and a response object for each of them take longer than the append. Whatever else
comes is left to `produce.handle` before anything is changed, errors too; an error behind an append
is left to `produce.go_on`. The rules are the same functions that these use: what may be appended is
decided by `ReplicaManager.append_to`.

Most requests have one partition. What stands before its records, which a producer sends again and
again, is read once, and remembered.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

import attrs

from broker.cluster.metadata_cache import MetadataCache
from broker.handlers.produce import (
    FIRST_VERSION_OF_FORMAT_2,
    FIRST_VERSION_OF_ZSTD,
    PARTITIONS_A_TURN,
    go_on,
)
from broker.handlers.short_header import HEADER, read_short_header
from broker.network.authorization import Sender
from broker.network.dispatch import FEWEST_OF_A_RUN, Handler
from broker.replication.partition import Partition
from broker.replication.replica_manager import ReplicaManager
from core_log.appending.appended import LogAppendInfo
from core_log.appending.validator import (
    LITTLE_REWRITTEN_BYTES,
    effort_of,
    has_producer,
    is_compressed,
    is_plain,
)
from core_log.log import AppendLater
from protocol.acls import Operation, ResourceType
from protocol.errors import ApiError
from protocol.internal_topics import INTERNAL_TOPICS
from protocol.primitives import read_uvarint, uvarint
from protocol.topic_partition import TopicPartition

LAST_VERSION = 9
FIRST_FLEXIBLE_VERSION = 9
MAX_PARTITIONS = PARTITIONS_A_TURN - 1
MAX_HEADS = 10_000
MAX_HEAD_BYTES = 500
"""Beginnings of requests that are remembered, and the longest of them."""
RUN_BYTES = 16 * 1024
"""Most bytes of batches that are appended in one write, with one index entry."""
MAX_PLACES = 10_000
"""Partitions whose names are remembered; a request of one that is not is looked at in full."""

# Request: length of the transactional id, the id, acks, timeout. A flexible version has its tagged
# fields before them, and the length in one byte, which is as many bytes together.
_LENGTH = Struct(">h")
_ACKS = Struct(">hi")
_BODY_BYTES = _LENGTH.size + _ACKS.size
_NULL = 0xFF
"""The first byte of a length that is -1."""
_COUNT = Struct(">i")
_SIZE = Struct(">i")
_INDEX_BYTES = 4
_NOT_GIVEN = -1
_NO_TAGS = b"\0"
_CORRELATION_ID_AT = 4
_CLIENT_ID_AT = HEADER.size - _LENGTH.size

# Response: size, correlation id; error, base offset, time of the append, start of the log.
_START = Struct(">ii")
_APPENDED = Struct(">hqq")
_APPENDED_WITH_LOG_START = Struct(">hqqq")
_NO_THROTTLE = bytes(4)


class _Form(NamedTuple):
    """The frame of a version's responses around the results of partitions."""

    appended: Struct
    before_topics: bytes = b""
    after_partition: bytes = b""
    after_topic: bytes = b""
    after_all: bytes = _NO_THROTTLE


_FORMS = {
    **dict.fromkeys((3, 4), _Form(_APPENDED)),
    **dict.fromkeys((5, 6, 7), _Form(_APPENDED_WITH_LOG_START)),
    # No errors of records, and a message that is null.
    8: _Form(_APPENDED_WITH_LOG_START, after_partition=b"\0\0\0\0\xff\xff"),
    9: _Form(
        _APPENDED_WITH_LOG_START, _NO_TAGS, b"\1\0" + _NO_TAGS, _NO_TAGS, _NO_THROTTLE + _NO_TAGS
    ),
}

_Part = tuple[bytes, bytes, Partition, memoryview]
"""One partition of a request: the name of its topic with the number of partitions that follow, and
its index, as requests and responses have them; the partition; its records."""

_Read = tuple[int, bool, bytes, list[_Part]]
"""A request: acks, whether it has a transactional id, the number of topics as it stands in
requests and responses, and its parts."""


class _Head(NamedTuple):
    """The beginning of a request of one partition."""

    acks: int
    has_id: bool
    topics: bytes
    topic: bytes
    partition_index: bytes
    topic_partition: TopicPartition


@attrs.define(eq=False)
class ShortProduce:
    """The short way of Produce; see `broker.network.dispatch.ShortWay`."""

    replicas: ReplicaManager
    cache: MetadataCache
    _heads: dict[tuple[int, bytes], _Head] = attrs.field(factory=dict, init=False)
    """By the version, and the bytes from the client's id to the partition's index."""
    _places: dict[bytes, TopicPartition] = attrs.field(factory=dict, init=False)
    """By the name of the topic, and the index."""

    def __call__(
        self, frame: memoryview, now_ms: int, sender: Sender | None
    ) -> bytes | Handler | None:
        """Append and return the response, or None for a request that is not usual."""
        try:
            _, version, correlation_id, client_id_length = HEADER.unpack_from(frame)
            if not FIRST_VERSION_OF_FORMAT_2 <= version <= LAST_VERSION:
                return None
            read = self._read(version, frame, HEADER.size + max(client_id_length, 0))
        except (StructError, ValueError, IndexError):
            return None
        acks, has_id, topics, parts = read

        # The general way asks who may write in a transaction, and whether it is open.
        if has_id and (sender is not None or self.replicas.verification is not None):
            return None
        # Whoever may not write to all of it is told so by the general way.
        if sender is not None:
            writable = sender.permissions(Operation.WRITE, ResourceType.TOPIC)
            for _, _, partition, _ in parts:
                if not writable.allows(partition.topic_partition.topic):
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

    def serve_run(
        self, frames: Sequence[memoryview], now_ms: int, sender: Sender | None
    ) -> Sequence[bytes]:
        """Append the first of these requests in one write, as far as they begin alike.

        Return their responses. See `broker.network.dispatch.RunWay`.
        """
        try:
            version, head, run = self._find_run(frames)
            partition = self._partition(head.topic_partition)
        except (StructError, ValueError, IndexError):
            return ()

        # Whoever may not write there is told so by the general way.
        if sender is not None:
            writable = sender.permissions(Operation.WRITE, ResourceType.TOPIC)
            if not writable.allows(head.topic_partition.topic):
                return ()
        appended = self.replicas.append_run(
            partition, run, zstd_allowed=version >= FIRST_VERSION_OF_ZSTD, now_ms=now_ms
        )
        parts = [(head.topic, head.partition_index, partition, run[0])]
        return [
            _response(version, HEADER.unpack_from(frame)[2], head.topics, parts, [info])
            for frame, info in zip(frames, appended, strict=False)
        ]

    def _find_run(self, frames: Sequence[memoryview]) -> tuple[int, _Head, list[memoryview]]:
        """Find the records of the first requests that have the head of the first one.

        Returns the version and the head too. Raises as `_read`.
        """
        first = frames[0]
        _, version, _, client_id_length = HEADER.unpack_from(first)
        if not FIRST_VERSION_OF_FORMAT_2 <= version <= LAST_VERSION:
            raise ValueError("not usual")
        body_at = HEADER.size + max(client_id_length, 0)

        head_end = 0
        room = RUN_BYTES
        run: list[memoryview] = []
        for frame in frames:
            found = _find_one(version, frame, body_at)
            if found is None:
                break
            _, end, records = found
            head_end = head_end or end
            if (
                frame[:_CORRELATION_ID_AT] != first[:_CORRELATION_ID_AT]
                or frame[_CLIENT_ID_AT:end] != first[_CLIENT_ID_AT:head_end]
            ):
                break

            # They take little to check, and need not be compared with what their producer sent.
            room -= len(records)
            if room < 0 or is_compressed(records) or has_producer(records):
                break
            run.append(records)

        head = self._heads.get((version, bytes(first[_CLIENT_ID_AT:head_end])))
        if head is None or len(run) < FEWEST_OF_A_RUN:
            raise ValueError("not usual")
        return version, head, run

    # ---- reading; all raise StructError, ValueError or IndexError for a request that is not usual

    def _read(self, version: int, frame: memoryview, body_at: int) -> _Read:
        """Read a request. If it has one partition, its beginning is looked up."""
        found = _find_one(version, frame, body_at)
        if found is None:
            return self._read_all(version, frame)
        topics_at, head_end, records = found

        key = (version, bytes(frame[_CLIENT_ID_AT:head_end]))
        head = self._heads.get(key)
        if head is None:
            read = self._read_all(version, frame)
            self._remember(key, topics_at, read)
            return read

        acks, has_id, topics, topic, index, topic_partition = head
        partition = self._partition(topic_partition)
        is_usual = not is_compressed(records) if has_id else is_plain(records)
        if not is_usual or not _is_little(partition, records):
            raise ValueError("not usual")
        return acks, has_id, topics, [(topic, index, partition, records)]

    def _remember(self, key: tuple[int, bytes], topics_at: int, read: _Read) -> None:
        """Remember the head of a request, if it has one partition and this is its head."""
        acks, has_id, topics, parts = read
        topic, index, partition, _ = parts[0]
        _, head = key
        # Numbers may have been encoded in more bytes than they need.
        if len(parts) > 1 or head[topics_at - _CLIENT_ID_AT :] != topics + topic + index:
            return

        # Clients and topics come and go: their requests need not be kept for ever.
        if len(self._heads) >= MAX_HEADS:
            self._heads.clear()
        self._heads[key] = _Head(acks, has_id, topics, topic, index, partition.topic_partition)

    def _read_all(self, version: int, frame: memoryview) -> _Read:
        """Read a request of any number of partitions."""
        *_, pos = read_short_header(frame)
        is_flexible = version >= FIRST_FLEXIBLE_VERSION
        pos = _skip_no_tags(frame, pos, is_flexible)
        length, id_at = _read_number(frame, pos, _LENGTH, is_flexible)
        pos = id_at + max(length, 0)
        has_id = length >= 0
        str(frame[id_at:pos], "utf-8")
        acks, _ = _ACKS.unpack_from(frame, pos)
        pos += _ACKS.size
        if length < _NOT_GIVEN or (acks != 1 and acks != -1):
            raise ValueError("not usual")

        topics, pos = _read_number(frame, pos, _COUNT, is_flexible)
        parts: list[_Part] = []
        names: set[bytes] = set()
        size_of_all = 0
        for _ in range(topics):
            length, name_at = _read_number(frame, pos, _LENGTH, is_flexible)
            name = bytes(frame[name_at : name_at + length])
            count, pos = _read_number(frame, name_at + length, _COUNT, is_flexible)
            if length < 0 or count < 1:
                raise ValueError("not usual")
            topic = _number(length, _LENGTH, is_flexible) + name
            topic += _number(count, _COUNT, is_flexible)

            # A topic that is named twice has one place in the response.
            names.add(name)

            # Each partition has one batch, and is here.
            for _ in range(count):
                index = bytes(frame[pos : pos + _INDEX_BYTES])
                size, records_at = _read_number(frame, pos + _INDEX_BYTES, _SIZE, is_flexible)
                pos = records_at + size
                records = frame[records_at:pos]
                is_usual = not is_compressed(records) if has_id else is_plain(records)
                if size < 0 or len(records) != size or not is_usual:
                    raise ValueError("not usual")
                size_of_all += size

                topic_partition = self._places.get(name + index) or self._learn(name, index)
                partition = self._partition(topic_partition)
                if len(parts) == MAX_PARTITIONS:
                    raise ValueError("not usual")
                parts.append((topic, index, partition, records))
                pos = _skip_no_tags(frame, pos, is_flexible)
            pos = _skip_no_tags(frame, pos, is_flexible)

        pos = _skip_no_tags(frame, pos, is_flexible)
        if not parts or pos != len(frame) or len(names) < topics:
            raise ValueError("not usual")
        # Large records are a single batch that needs no thread, and only one turn.
        if size_of_all > LITTLE_REWRITTEN_BYTES and len(parts) > 1:
            raise ValueError("not usual")
        if not _is_little(partition, records):
            raise ValueError("not usual")
        return acks, has_id, _number(topics, _COUNT, is_flexible), parts

    def _learn(self, name: bytes, index: bytes) -> TopicPartition:
        """Read the bytes of a place, which has to be one of a usual request."""
        topic_partition = TopicPartition(str(name, "utf-8"), int.from_bytes(index, signed=True))
        if topic_partition.topic in INTERNAL_TOPICS:
            raise ValueError("not usual")
        self._partition(topic_partition)

        # Topics come and go: their places need not be kept for ever.
        if len(self._places) >= MAX_PLACES:
            self._places.clear()
        self._places[name + index] = topic_partition
        return topic_partition

    def _partition(self, topic_partition: TopicPartition) -> Partition:
        """Return a partition that is known, and here."""
        partition = self.replicas.partitions.get(topic_partition)
        if partition is None or self.cache.partition_state(topic_partition) is None:
            raise ValueError("not usual")
        return partition


def _find_one(version: int, frame: memoryview, body_at: int) -> tuple[int, int, memoryview] | None:
    """Find what a request has if it has one partition; None if it cannot be one.

    Returns the position of the number of topics, the end of the head, and the records.
    """
    if version >= FIRST_FLEXIBLE_VERSION:
        # The lengths of usual ids and names fit into one byte.
        topics_at = body_at + _BODY_BYTES + max(frame[body_at + 1] - 1, 0)
        head_end = topics_at + 1 + frame[topics_at + 1] + 1 + _INDEX_BYTES
        size, records_at = read_uvarint(frame, head_end)
        size -= 1
        # Those of the partition, of its topic, and of the request.
        tags = _NO_TAGS * 3
    else:
        topics_at = body_at + _BODY_BYTES
        if frame[body_at] != _NULL:
            topics_at += _LENGTH.unpack_from(frame, body_at)[0]
        (length,) = _LENGTH.unpack_from(frame, topics_at + _COUNT.size)
        head_end = topics_at + 2 * _COUNT.size + _LENGTH.size + length + _INDEX_BYTES
        (size,) = _SIZE.unpack_from(frame, head_end)
        records_at = head_end + _SIZE.size
        tags = b""

    records_end = records_at + size
    is_one = size >= 0 and records_end + len(tags) == len(frame) and frame[records_end:] == tags
    if not is_one or not topics_at < head_end <= _CLIENT_ID_AT + MAX_HEAD_BYTES:
        return None
    return topics_at, head_end, frame[records_at:records_end]


def _read_number(frame: memoryview, pos: int, plain: Struct, is_flexible: bool) -> tuple[int, int]:
    """Read a length or a count, -1 for null; return it and the position behind it."""
    if is_flexible:
        number, pos = read_uvarint(frame, pos)
        return number - 1, pos
    (number,) = plain.unpack_from(frame, pos)
    return number, pos + plain.size


def _number(number: int, plain: Struct, is_flexible: bool) -> bytes:
    """Encode what `_read_number` reads."""
    return uvarint(number + 1) if is_flexible else plain.pack(number)


def _skip_no_tags(frame: memoryview, pos: int, is_flexible: bool) -> int:
    """Return the position behind the tagged fields. Raises ValueError if there are any."""
    if not is_flexible:
        return pos
    if frame[pos] != 0:
        raise ValueError("tagged fields")
    return pos + 1


def _is_little(partition: Partition, records: memoryview) -> bool:
    """Return whether a batch is small, or needs no thread for all its size."""
    if len(records) <= LITTLE_REWRITTEN_BYTES:
        return True
    effort = effort_of(records, partition.log.config)
    return effort.is_little and not effort.rewritten_bytes


def _response(
    version: int,
    correlation_id: int,
    topics: bytes,
    parts: Sequence[_Part],
    done: Sequence[LogAppendInfo],
) -> bytes:
    """Say where all parts are appended."""
    form = _FORMS[version]
    written = [form.before_topics, topics]
    topic_before: bytes | None = None
    for (topic, index, _, _), appended in zip(parts, done, strict=True):
        # The partitions of a topic stand one after another.
        if topic is not topic_before:
            if topic_before is not None:
                written.append(form.after_topic)
            written.append(topic)
            topic_before = topic

        written.append(index)
        base_offset, _, append_time_ms, log_start_offset = appended
        if form.appended is _APPENDED:
            written.append(_APPENDED.pack(0, base_offset, append_time_ms))
        else:
            written.append(
                _APPENDED_WITH_LOG_START.pack(0, base_offset, append_time_ms, log_start_offset)
            )
        written.append(form.after_partition)
    written += (form.after_topic, form.after_all)

    body = b"".join(written)
    return _START.pack(_START.size - _SIZE.size + len(body), correlation_id) + body
