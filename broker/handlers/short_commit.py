"""Serve the usual commit in one pass, from its bytes to the bytes of its response.

Usual is: offsets of one topic without metadata, that are kept as long as the broker says, of a
member without an instance id or of a group without members; and nothing to wait for, because the
offsets topic has one replica. Whatever else comes is left to `offset_commit.handle` before anything
is changed, errors too. The coordinator decides by the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from itertools import chain, repeat
from struct import Struct
from struct import error as StructError

import attrs

from broker.handlers.short_header import read_short_header
from groups.coordinator.coordinator import GroupCoordinator
from offsets.records import BARE_VALUE, OFFSET_VALUE_VERSION, offset_key_prefix
from offsets.requests import Committer
from protocol.errors import ApiError
from protocol.header import read_request, read_request_header
from protocol.primitives import WireError

FIRST_VERSION = 2
"""The first one that does not bring a time for each offset."""
LAST_VERSION = 7
FIRST_VERSION_OF_EPOCHS = 6
FIRST_VERSION_OF_THROTTLE_TIME = 3
MAX_HEADS = 10_000
MAX_HEAD_BYTES = 500
"""Beginnings of requests that are remembered, and the longest of them."""

# Request: generation, or the length of a string.
_GENERATION_BYTES = 4
_LENGTH = Struct(">h")
_COUNT = Struct(">i")
# Between member and topic: retention or the length of the instance id, which are not given; number
# of topics, length of the first one's name.
_BEFORE_TOPIC = {
    **dict.fromkeys((2, 3, 4), Struct(">qih")),
    **dict.fromkeys((5, 6), Struct(">ih")),
    7: Struct(">hih"),
}
_NOT_GIVEN = -1
_ONE_TOPIC = 1
# Partition, offset, leader epoch, length of the metadata.
_OFFSET = Struct(">4sqh")
_OFFSET_WITH_EPOCH = Struct(">4sqih")
_UNKNOWN_EPOCH = -1

# Response: size, correlation id, throttle time, number of topics.
_START = Struct(">iii")
_START_WITH_THROTTLE_TIME = Struct(">iiii")
_SIZE_BYTES = 4
_NO_ERROR = b"\0\0"


@attrs.frozen
class _Head:
    """What the beginning of a request says: who commits, for which topic."""

    group_id: str
    committer: Committer
    topic: str
    key_prefix: bytes
    """Every key of the records begins so."""


@attrs.define(eq=False)
class ShortCommit:
    """The short way of OffsetCommit. `known_partitions(topic)` are those of the metadata cache."""

    coordinator: GroupCoordinator
    known_partitions: Callable[[str], Container[int]]
    _heads: dict[tuple[int, bytes], _Head] = attrs.field(factory=dict, init=False)
    """By the version, and the bytes from the group's id to the topic's name."""

    def __call__(self, frame: memoryview, now_ms: int) -> bytes | None:
        """Commit and return the response, or None for a request that is not usual."""
        try:
            version, correlation_id, head_at = read_short_header(frame)
            if not FIRST_VERSION <= version <= LAST_VERSION:
                return None

            # Find the end of the head.
            (length,) = _LENGTH.unpack_from(frame, head_at)
            pos = head_at + _LENGTH.size + length + _GENERATION_BYTES
            (length,) = _LENGTH.unpack_from(frame, pos)
            pos += _LENGTH.size + length
            before_topic = _BEFORE_TOPIC[version]
            *given, topics, length = before_topic.unpack_from(frame, pos)
            if topics != _ONE_TOPIC or (given and given[0] != _NOT_GIVEN):
                return None
            topic_at = pos + before_topic.size - _LENGTH.size
            pos = topic_at + _LENGTH.size + length

            # The rest must be offsets without metadata.
            (count,) = _COUNT.unpack_from(frame, pos)
            entries = frame[pos + _COUNT.size :]
            entry = _OFFSET if version < FIRST_VERSION_OF_EPOCHS else _OFFSET_WITH_EPOCH
            if count <= 0 or len(entries) != count * entry.size:
                return None
        except (StructError, ValueError):
            return None

        # Who commits, and for which topic, is read once.
        key = (version, bytes(frame[head_at:pos]))
        head = self._heads.get(key) or self._learn(key, frame)
        if head is None:
            return None

        partitions, offsets, *epochs, metadata_lengths = zip(
            *entry.iter_unpack(entries), strict=True
        )
        if max(metadata_lengths) > 0 or min(metadata_lengths) < _NOT_GIVEN:
            return None
        # Partitions that exist alone are committed.
        known = self.known_partitions(head.topic)
        indexes = Struct(f">{count}i").unpack(b"".join(partitions))
        if not all(index in known for index in indexes):
            return None

        keys = [head.key_prefix + partition for partition in partitions]
        values = _values(offsets, epochs[0] if epochs else repeat(_UNKNOWN_EPOCH), now_ms)
        try:
            is_committed = self.coordinator.commit_at_once(
                head.group_id, head.committer, keys, values, now_ms
            )
        except ApiError:
            return None
        if not is_committed:
            return None

        topic = bytes(frame[topic_at : pos + _COUNT.size])
        return _response(version, correlation_id, topic, partitions)

    def _learn(self, key: tuple[int, bytes], frame: memoryview) -> _Head | None:
        """Read a request of one topic in the general way; return None for one that is malformed."""
        _, head_bytes = key
        if len(head_bytes) > MAX_HEAD_BYTES:
            return None
        try:
            header, pos = read_request_header(frame)
            request = read_request(header, frame, pos)
        except WireError:
            return None

        (topic,) = request.topics
        head = _Head(
            request.group_id,
            Committer(request.generation_id_or_member_epoch, request.member_id),
            topic.name,
            offset_key_prefix(request.group_id, topic.name),
        )

        # Members come and go: what they sent need not be kept for ever.
        if len(self._heads) >= MAX_HEADS:
            self._heads.clear()
        self._heads[key] = head
        return head


def _values(offsets: Iterable[int], epochs: Iterable[int], now_ms: int) -> list[bytes]:
    pack = BARE_VALUE.pack
    return [
        pack(OFFSET_VALUE_VERSION, offset, epoch, 0, now_ms)
        for offset, epoch in zip(offsets, epochs, strict=False)
    ]


def _response(
    version: int, correlation_id: int, topic: bytes, partitions: Sequence[bytes]
) -> bytes:
    """Say that all partitions are committed. `topic` ends with their number, as in the request."""
    errors = b"".join(chain.from_iterable(zip(partitions, repeat(_NO_ERROR), strict=False)))
    size = len(topic) + len(errors) - _SIZE_BYTES
    if version < FIRST_VERSION_OF_THROTTLE_TIME:
        start = _START.pack(size + _START.size, correlation_id, _ONE_TOPIC)
    else:
        start = _START_WITH_THROTTLE_TIME.pack(
            size + _START_WITH_THROTTLE_TIME.size, correlation_id, 0, _ONE_TOPIC
        )
    return start + topic + errors
