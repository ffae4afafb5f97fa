"""The records of `__consumer_offsets`: two kinds of keys, two kinds of values, all versioned.

Every key and value begins with its version as an int16; a null value is a tombstone. The versions:

| | read | written | since |
|---|---|---|---|
| offset key | 0, 1 (one layout) | 1 | 0.8.2, 0.9 |
| group key | 2 | 2 | 0.9 |
| offset value | 0, 1, 2, 3, 4 | 3; 1 where an expiry was asked for | 0.8.2, 0.9, 2.1, 2.1, 3.5 |
| group value | 0, 1, 2, 3, 4 | 3 | 0.9, 0.10.1, 2.1, 2.3, 3.5 |

Beside older brokers, which may become leader of a partition, values are written in the version that
those read. Versions 4 are the flexible encoding of versions 3 (KIP-915). Newer brokers write other
kinds of records too, under key versions from 3 on: they are not ours to read, and are skipped.

Source: Kafka's OffsetCommitKey/Value and GroupMetadataKey/Value schemas. Offsets are encoded by
hand, because a coordinator writes and loads them by the hundred thousand. Groups are few, and
encoded by `protocol.encoding`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

from protocol.encoding import decode, encode
from protocol.primitives import WireError
from protocol.text import REPLACE
from protocol.wire import BYTES, INT32, INT64, STRING, Array, message, nested, wire

OFFSET_KEY_VERSION = 1
OFFSET_KEY_VERSIONS = (0, OFFSET_KEY_VERSION)
GROUP_KEY_VERSION = 2
OFFSET_VALUE_VERSION = 3
EXPIRING_OFFSET_VALUE_VERSION = 1
GROUP_VALUE_VERSION = 3
FLEXIBLE_VERSION = 4
NO_TIMESTAMP = -1


class RecordError(ValueError):
    """A key or value is malformed, or has an unknown version."""


class UnknownKey(RecordError):
    """A key has a version that is not known here; its record is skipped."""


class OffsetKey(NamedTuple):
    """The key of a committed offset."""

    group: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """The key of a group's metadata."""

    group: str


class CommittedOffset(NamedTuple):
    """A committed offset: `offset` is the next to consume; `leader_epoch` is -1 if not known.

    `expire_timestamp_ms` is None unless the commit asked for a retention of its own (v2-4).
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = NO_TIMESTAMP
    expire_timestamp_ms: int | None = None


@nested
class GroupMember:
    """A member in a group's record. In v0 the session timeout is also the rebalance timeout."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=3, nullable=3, default=None)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    rebalance_timeout_ms: int = wire(INT32, since=1, default=-1)
    session_timeout_ms: int = wire(INT32)
    subscription: bytes = wire(BYTES)
    assignment: bytes = wire(BYTES)


@message(versions="0-4", flexible="4+")
class GroupMetadata:
    """A group after its last rebalance; protocol and leader are null while it has no members."""

    protocol_type: str = wire(STRING)
    generation_id: int = wire(INT32)
    protocol: str | None = wire(STRING, nullable=0)
    leader: str | None = wire(STRING, nullable=0)
    state_timestamp_ms: int = wire(INT64, since=2, default=NO_TIMESTAMP)
    members: Sequence[GroupMember] = wire(Array(GroupMember))


@message(versions="4", flexible="4+")
class _FlexibleOffset:
    """A committed offset in version 4."""

    offset: int = wire(INT64)
    leader_epoch: int = wire(INT32)
    metadata: str = wire(STRING)
    commit_timestamp_ms: int = wire(INT64)


class ValueVersions(NamedTuple):
    """The versions in which values are written."""

    offset: int = OFFSET_VALUE_VERSION
    group: int = GROUP_VALUE_VERSION


LAST_VERSIONS = ValueVersions()

Key = OffsetKey | GroupKey
Value = CommittedOffset | GroupMetadata
Record = tuple[Key, Value | None]

T = TypeVar("T")

# `2.1`, `2.1.0`, `2.1-IV1`: the IV counts the changes of formats within a release.
_RELEASE = re.compile(r"(\d+)\.(\d+)[.\d]*(?:-IV(\d+))?")
# The rebalance timeout came with 0.10.1.
_RELEASE_0_10_0 = re.compile(r"0\.10(\.0|-|$)")
_VERSION = _LENGTH = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_TWO_INT64 = struct.Struct(">qq")
_VALUE_HEAD = struct.Struct(">hq")
BARE_VALUE = struct.Struct(">hqihq")
"""A value of version 3 without metadata: version, offset, leader epoch, 0, time of the commit."""
_VALUE_HEAD_V3 = struct.Struct(">hqi")


def value_versions(protocol_version: str) -> ValueVersions:
    """Return the versions of values that brokers of `inter.broker.protocol.version` read.

    A coordinator before 2.1 does not load a partition that has later ones.
    """
    release, change = _release(protocol_version)
    if release < (0, 10) or (release == (0, 10) and _RELEASE_0_10_0.match(protocol_version)):
        return ValueVersions(EXPIRING_OFFSET_VALUE_VERSION, 0)
    if release < (2, 1):
        return ValueVersions(EXPIRING_OFFSET_VALUE_VERSION, 1)

    # 2.1-IV0 took the expiry out (v2); 2.1-IV1 added the leader epoch (v3).
    offset = 2 if release == (2, 1) and change == "0" else OFFSET_VALUE_VERSION
    return ValueVersions(offset, GROUP_VALUE_VERSION if release >= (2, 3) else 2)


def has_instance_ids(protocol_version: str) -> bool:
    """Return whether brokers of `inter.broker.protocol.version` read group values of version 3."""
    release, _ = _release(protocol_version)
    return release >= (2, 3)


def _release(protocol_version: str) -> tuple[tuple[int, int], str | None]:
    match = _RELEASE.match(protocol_version)
    assert match is not None
    return (int(match[1]), int(match[2])), match[3]


def decode_key(key: bytes | None) -> Key:
    """Decode the key of a record. Raises RecordError; UnknownKey for a later version."""
    if key is None:
        raise RecordError("a record without a key")
    version = int.from_bytes(key[:2], "big", signed=True)
    if version > GROUP_KEY_VERSION and len(key) >= _VERSION.size:
        raise UnknownKey(f"key of version {version}; known are {sorted(_KEY_READERS)}")
    return _decode_versioned(_KEY_READERS, "key", key)


def decode_value(key: Key, value: bytes | None) -> Value | None:
    """Decode the value under `key`; None for a tombstone. Raises RecordError."""
    if value is None:
        return None
    if isinstance(key, OffsetKey):
        return read_offset_value(value)
    return _decode_versioned(_GROUP_VALUE_READERS, "group value", value)


def encode_key(key: Key) -> bytes:
    """Encode a key, in the version that is written."""
    if isinstance(key, GroupKey):
        return _VERSION.pack(GROUP_KEY_VERSION) + _string(key.group)

    # One version for all, tombstones too: to compaction a v0 key and a v1 key are two keys.
    group, topic, partition = key
    return offset_key_prefix(group, topic) + partition.to_bytes(4, "big", signed=True)


def encode_value(value: Value | None, versions: ValueVersions = LAST_VERSIONS) -> bytes | None:
    """Encode a value, in one of the versions 0 to 3; None for a tombstone."""
    if value is None:
        return None
    if isinstance(value, GroupMetadata):
        return _VERSION.pack(versions.group) + encode(value, versions.group)

    offset, leader_epoch, metadata, commit_ms, expire_ms = value
    # Only v1 has room for an expiry of its own.
    version = versions.offset if expire_ms is None else EXPIRING_OFFSET_VALUE_VERSION

    # The head: v3 alone has the leader epoch.
    if version == OFFSET_VALUE_VERSION:
        # Most commits have no metadata.
        if not metadata:
            return BARE_VALUE.pack(version, offset, leader_epoch, 0, commit_ms)
        head = _VALUE_HEAD_V3.pack(version, offset, leader_epoch)
    else:
        head = _VALUE_HEAD.pack(version, offset)

    # Behind the metadata come the times.
    times = commit_ms.to_bytes(8, "big", signed=True)
    if version == EXPIRING_OFFSET_VALUE_VERSION:
        expiry = NO_TIMESTAMP if expire_ms is None else expire_ms
        times += expiry.to_bytes(8, "big", signed=True)
    return head + _string(metadata) + times


@lru_cache(maxsize=4096)
def offset_key_prefix(group: str, topic: str, version: int = OFFSET_KEY_VERSION) -> bytes:
    """Return the bytes of an offset key before the int32 of the partition."""
    return _VERSION.pack(version) + _string(group) + _string(topic)


def read_offset_value(value: bytes) -> CommittedOffset:
    """Decode the value of an offset, which is no tombstone. Raises RecordError."""
    # Nearly all values are v3 without metadata: one unpack reads such a value whole.
    if len(value) == BARE_VALUE.size:
        version, offset, leader_epoch, metadata_length, commit_ms = BARE_VALUE.unpack(value)
        if version == OFFSET_VALUE_VERSION and not metadata_length:
            return CommittedOffset(offset, leader_epoch, "", commit_ms)
    return _decode_versioned(_OFFSET_VALUE_READERS, "offset value", value)


def times_of(value: bytes) -> tuple[int, int | None]:
    """Return when an offset was committed, and when it was asked to expire.

    `value` is well-formed. Both times are at its end, so nothing else is decoded.
    """
    # Versions are small numbers: the second of their two bytes says it all.
    if value[1] == FLEXIBLE_VERSION:
        return read_offset_value(value).commit_timestamp_ms, None
    if value[1] != EXPIRING_OFFSET_VALUE_VERSION:
        return _INT64.unpack(value[-_INT64.size :])[0], None
    commit_ms, expire_ms = _TWO_INT64.unpack(value[-_TWO_INT64.size :])
    return commit_ms, None if expire_ms == NO_TIMESTAMP else expire_ms


def _string(text: str) -> bytes:
    raw = text.encode()
    return _LENGTH.pack(len(raw)) + raw


def _decode_versioned(readers: dict[int, Callable[[bytes], T]], what: str, buf: bytes) -> T:
    try:
        (version,) = _VERSION.unpack_from(buf)
        if version in readers:
            return readers[version](buf)
    except (struct.error, UnicodeDecodeError, WireError) as error:
        raise RecordError(f"malformed {what} of {len(buf)} bytes: {error}") from error
    raise RecordError(f"{what} of unknown version {version}; known are {sorted(readers)}")


def _read_string(buf: bytes, pos: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(buf, pos)
    start = pos + _LENGTH.size
    end = start + length

    # A slice beyond the end would come back short, and raise nothing.
    if length < 0 or end > len(buf):
        raise RecordError(f"a string of {length} bytes at byte {pos} of {len(buf)}")
    return str(buf[start:end], "utf-8", REPLACE), end


def _read_offset_key(buf: bytes) -> OffsetKey:
    group, pos = _read_string(buf, _VERSION.size)
    topic, pos = _read_string(buf, pos)
    return OffsetKey(group, topic, _INT32.unpack_from(buf, pos)[0])


def _read_group_key(buf: bytes) -> GroupKey:
    return GroupKey(_read_string(buf, _VERSION.size)[0])


def _read_dated_offset(buf: bytes) -> CommittedOffset:
    _, offset = _VALUE_HEAD.unpack_from(buf)
    metadata, pos = _read_string(buf, _VALUE_HEAD.size)
    return CommittedOffset(offset, -1, metadata, _INT64.unpack_from(buf, pos)[0])


def _read_expiring_offset(buf: bytes) -> CommittedOffset:
    _, offset = _VALUE_HEAD.unpack_from(buf)
    metadata, pos = _read_string(buf, _VALUE_HEAD.size)
    commit_ms, expire_ms = _TWO_INT64.unpack_from(buf, pos)
    expiry = None if expire_ms == NO_TIMESTAMP else expire_ms
    return CommittedOffset(offset, -1, metadata, commit_ms, expiry)


def _read_epoch_offset(buf: bytes) -> CommittedOffset:
    _, offset, leader_epoch = _VALUE_HEAD_V3.unpack_from(buf)
    metadata, pos = _read_string(buf, _VALUE_HEAD_V3.size)
    return CommittedOffset(offset, leader_epoch, metadata, _INT64.unpack_from(buf, pos)[0])


def _read_flexible_offset(buf: bytes) -> CommittedOffset:
    value: _FlexibleOffset = decode(_FlexibleOffset, FLEXIBLE_VERSION, buf, _VERSION.size)[0]
    return CommittedOffset(
        value.offset, value.leader_epoch, value.metadata, value.commit_timestamp_ms
    )


def _group_reader(version: int) -> Callable[[bytes], GroupMetadata]:
    def read(buf: bytes) -> GroupMetadata:
        group: GroupMetadata = decode(GroupMetadata, version, buf, _VERSION.size)[0]
        return group

    return read


_KEY_READERS: dict[int, Callable[[bytes], Key]] = {
    0: _read_offset_key,
    OFFSET_KEY_VERSION: _read_offset_key,
    GROUP_KEY_VERSION: _read_group_key,
}
_OFFSET_VALUE_READERS: dict[int, Callable[[bytes], CommittedOffset]] = {
    # Versions 0 and 2 have the same fields.
    0: _read_dated_offset,
    EXPIRING_OFFSET_VALUE_VERSION: _read_expiring_offset,
    2: _read_dated_offset,
    OFFSET_VALUE_VERSION: _read_epoch_offset,
    FLEXIBLE_VERSION: _read_flexible_offset,
}
_GROUP_VALUE_READERS: dict[int, Callable[[bytes], GroupMetadata]] = {
    version: _group_reader(version) for version in range(FLEXIBLE_VERSION + 1)
}
