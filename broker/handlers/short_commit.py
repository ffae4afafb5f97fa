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
from typing import NamedTuple

import attrs

from broker.handlers.short_header import read_short_header
from broker.network.authorization import Sender
from broker.network.dispatch import AT_ONCE_ELEMENTS, FEWEST_OF_A_RUN
from groups.coordinator.coordinator import GroupCoordinator
from offsets.records import BARE_VALUE, OFFSET_VALUE_VERSION, offset_key_prefix
from offsets.requests import Committer
from protocol.acls import Operation, ResourceType
from protocol.errors import ApiError
from protocol.frozen import frozen
from protocol.header import read_request, read_request_header
from protocol.primitives import WireError, read_uvarint, uvarint

FIRST_VERSION = 2
"""The first one that does not bring a time for each offset."""
LAST_VERSION = 8
FIRST_VERSION_OF_EPOCHS = 6
FIRST_VERSION_OF_THROTTLE_TIME = 3
FIRST_FLEXIBLE_VERSION = 8
MAX_HEADS = 10_000
MAX_HEAD_BYTES = 500
"""Beginnings of requests that are remembered, and the longest of them."""

RUN_RECORDS = 1000
"""Most records of a run: a larger batch may be more than a broker takes."""

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

# In a flexible version lengths and counts are one more than they say. Its entries have tagged
# fields too, and so have their topic and the request behind them.
_FLEXIBLE_OFFSET = Struct(">4sqiBB")
_NO_TAGS = b"\0"
_TAGS_BEHIND = 2

# Response: size, correlation id, throttle time, number of topics.
_START = Struct(">iii")
_START_WITH_THROTTLE_TIME = Struct(">iiii")
_FLEXIBLE_START = Struct(">iiBiB")
_SIZE_BYTES = 4
_NO_ERROR = b"\0\0"


@frozen
class _Head:
    """The beginning of a request: who commits, for which topic."""

    group_id: str
    committer: Committer
    topic: str
    key_prefix: bytes
    """Every key of the records begins so."""


class _Commit(NamedTuple):
    """A usual commit, read: its partitions as bytes, and its records."""

    version: int
    correlation_id: int
    head: _Head
    partitions: Sequence[bytes]
    keys: list[bytes]
    values: list[bytes]

    def response(self) -> bytes:
        """Return the response that all is committed."""
        return _response(self.version, self.correlation_id, self.head.topic, self.partitions)


@attrs.define(eq=False)
class ShortCommit:
    """The short way of OffsetCommit. `known_partitions(topic)` are those of the metadata cache."""

    coordinator: GroupCoordinator
    known_partitions: Callable[[str], Container[int]]
    _heads: dict[tuple[int, bytes], _Head] = attrs.field(factory=dict, init=False)
    """By the version, and the bytes from the group's id to the topic's name."""

    def __call__(self, frame: memoryview, now_ms: int, sender: Sender | None) -> bytes | None:
        """Commit and return the response, or None for a request that is not usual."""
        commit = self._read(frame, now_ms, sender)
        if commit is None or not self._commit(commit, commit.keys, commit.values, now_ms):
            return None
        return commit.response()

    def serve_run(
        self, frames: Sequence[memoryview], now_ms: int, sender: Sender | None
    ) -> Sequence[bytes]:
        """Commit the first of these requests in one batch, as far as one member sends them.

        Return their responses. See `broker.network.dispatch.RunWay`.
        """
        run: list[_Commit] = []
        keys: list[bytes] = []
        values: list[bytes] = []
        for frame in frames:
            commit = self._read(frame, now_ms, sender)
            if commit is None or len(keys) + len(commit.keys) > RUN_RECORDS:
                break
            if run and commit.head is not run[0].head:
                break

            # Where replicas must be waited for, the others need not be read.
            if not run and not self._commits_at_once(commit.head.group_id):
                return ()
            run.append(commit)
            keys += commit.keys
            values += commit.values

        if len(run) < FEWEST_OF_A_RUN or not self._commit(run[0], keys, values, now_ms):
            return ()
        return [commit.response() for commit in run]

    def _commits_at_once(self, group_id: str) -> bool:
        try:
            return self.coordinator.commits_at_once(group_id)
        except ApiError:
            return False

    def _commit(self, commit: _Commit, keys: list[bytes], values: list[bytes], now_ms: int) -> bool:
        """Write these records for who has sent `commit`. Return False if nothing is changed."""
        head = commit.head
        try:
            return self.coordinator.commit_at_once(
                head.group_id, head.committer, keys, values, now_ms
            )
        except ApiError:
            return False

    def _read(self, frame: memoryview, now_ms: int, sender: Sender | None) -> _Commit | None:
        """Read a request that its sender may make; return None for one that is not usual."""
        try:
            version, correlation_id, head_at = read_short_header(frame)
            if not FIRST_VERSION <= version <= LAST_VERSION:
                return None

            # The rest behind the head must be offsets without metadata.
            if version < FIRST_FLEXIBLE_VERSION:
                head_end = _find_end_of_head(version, frame, head_at)
                (count,) = _COUNT.unpack_from(frame, head_end)
                entries = frame[head_end + _COUNT.size :]
                entry = _OFFSET if version < FIRST_VERSION_OF_EPOCHS else _OFFSET_WITH_EPOCH
            else:
                head_end = _find_end_of_flexible_head(frame, head_at)
                count, pos = read_uvarint(frame, head_end)
                count -= 1
                entries = frame[pos:-_TAGS_BEHIND]
                entry = _FLEXIBLE_OFFSET
                if frame[-_TAGS_BEHIND:] != _NO_TAGS * _TAGS_BEHIND:
                    return None
            if count <= 0 or len(entries) != count * entry.size:
                return None
            # What is large is read in a thread, and not here first (fault security-5).
            if count > AT_ONCE_ELEMENTS:
                return None
        except (StructError, ValueError, IndexError):
            return None

        # Who commits, and for which topic, is read once.
        key = (version, bytes(frame[head_at:head_end]))
        head = self._heads.get(key) or self._learn(key, frame)
        if head is None:
            return None

        # Whoever may not commit is told so by the general way.
        if sender is not None and not (
            sender.permissions(Operation.READ, ResourceType.GROUP).allows(head.group_id)
            and sender.permissions(Operation.READ, ResourceType.TOPIC).allows(head.topic)
        ):
            return None

        partitions, offsets, *epochs, lengths = zip(*entry.iter_unpack(entries), strict=True)
        if version < FIRST_FLEXIBLE_VERSION:
            is_bare = max(lengths) <= 0 and min(lengths) >= _NOT_GIVEN
        else:
            # Lengths and tagged fields are the last two. Metadata is null (0) or empty (1).
            tags, (*epochs, lengths) = lengths, epochs
            is_bare = max(lengths) <= 1 and max(tags) == 0
        if not is_bare:
            return None

        # Partitions that exist alone are committed.
        known = self.known_partitions(head.topic)
        indexes = Struct(f">{count}i").unpack(b"".join(partitions))
        if not all(index in known for index in indexes):
            return None

        keys = [head.key_prefix + partition for partition in partitions]
        values = _values(offsets, epochs[0] if epochs else repeat(_UNKNOWN_EPOCH), now_ms)
        return _Commit(version, correlation_id, head, partitions, keys, values)

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


def _find_end_of_head(version: int, frame: memoryview, pos: int) -> int:
    """Return where the name of the topic ends. Raises ValueError if the head is not usual."""
    (length,) = _LENGTH.unpack_from(frame, pos)
    pos += _LENGTH.size + length + _GENERATION_BYTES
    (length,) = _LENGTH.unpack_from(frame, pos)
    pos += _LENGTH.size + length

    before_topic = _BEFORE_TOPIC[version]
    *given, topics, length = before_topic.unpack_from(frame, pos)
    if topics != _ONE_TOPIC or (given and given[0] != _NOT_GIVEN):
        raise ValueError("not one topic, or something that is seldom given")
    return int(pos + before_topic.size + length)


def _find_end_of_flexible_head(frame: memoryview, pos: int) -> int:
    """Do the same for a flexible version. The head begins with the tagged fields of the header."""
    tags = frame[pos]
    above_length, pos = read_uvarint(frame, pos + 1)
    pos += above_length - 1 + _GENERATION_BYTES
    above_length, pos = read_uvarint(frame, pos)
    pos += above_length - 1
    above_instance_id, above_topics, pos = frame[pos], frame[pos + 1], pos + 2
    if tags or above_instance_id or above_topics != _ONE_TOPIC + 1:
        raise ValueError("not one topic, or something that is seldom given")
    above_length, pos = read_uvarint(frame, pos)
    return pos + above_length - 1


def _values(offsets: Iterable[int], epochs: Iterable[int], now_ms: int) -> list[bytes]:
    pack = BARE_VALUE.pack
    return [
        pack(OFFSET_VALUE_VERSION, offset, epoch, 0, now_ms)
        for offset, epoch in zip(offsets, epochs, strict=False)
    ]


def _response(version: int, correlation_id: int, topic: str, partitions: Sequence[bytes]) -> bytes:
    """Say that all partitions are committed."""
    name = topic.encode()
    if version < FIRST_FLEXIBLE_VERSION:
        after_partition, end = _NO_ERROR, b""
        topic_bytes = _LENGTH.pack(len(name)) + name + _COUNT.pack(len(partitions))
    else:
        after_partition, end = _NO_ERROR + _NO_TAGS, _NO_TAGS * _TAGS_BEHIND
        topic_bytes = uvarint(len(name) + 1) + name + uvarint(len(partitions) + 1)

    errors = b"".join(chain.from_iterable(zip(partitions, repeat(after_partition), strict=False)))
    size = len(topic_bytes) + len(errors) + len(end) - _SIZE_BYTES
    if version < FIRST_VERSION_OF_THROTTLE_TIME:
        start = _START.pack(size + _START.size, correlation_id, _ONE_TOPIC)
    elif version < FIRST_FLEXIBLE_VERSION:
        start = _START_WITH_THROTTLE_TIME.pack(
            size + _START_WITH_THROTTLE_TIME.size, correlation_id, 0, _ONE_TOPIC
        )
    else:
        start = _FLEXIBLE_START.pack(
            size + _FLEXIBLE_START.size, correlation_id, 0, 0, _ONE_TOPIC + 1
        )
    return start + topic_bytes + errors + end
