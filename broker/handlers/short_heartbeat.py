"""Serve the usual heartbeat in one pass, from its bytes to those of its response.

The coordinator decides it as ever: only the message objects around it are left out. A request that
cannot be read so, or that the coordinator refuses before it decides, is left to `heartbeat.handle`.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError

import attrs

from broker.handlers.heartbeat import respond
from broker.handlers.short_header import read_compact_text, read_short_header, skip_no_tags
from broker.network.authorization import Sender
from broker.network.dispatch import Handler
from groups.coordinator.coordinator import GroupCoordinator
from groups.coordinator.membership.events import Heartbeat
from protocol.acls import Operation, ResourceType
from protocol.errors import ApiError

LAST_VERSION = 4
FIRST_VERSION_OF_THROTTLE = 1
FIRST_VERSION_OF_STATIC_MEMBERS = 3
FIRST_FLEXIBLE_VERSION = 4

# Request: generation and length of the member id.
_LENGTH = Struct(">h")
_MEMBER = Struct(">ih")
_GENERATION = Struct(">i")
_NULL = -1
# In a flexible version: no instance id, no tagged fields.
_COMPACT_NULL_AND_NO_TAGS = b"\0\0"

# Response: size, correlation id, throttle time, error; flexible: tagged fields of the header and of
# the body.
_RESPONSE = Struct(">iiih")
_RESPONSE_WITHOUT_THROTTLE = Struct(">iih")
_FLEXIBLE_RESPONSE = Struct(">iibihb")
_SIZE_BYTES = 4


@attrs.define(eq=False)
class ShortHeartbeat:
    """The short way of Heartbeat; see `broker.network.dispatch.ShortWay`."""

    coordinator: GroupCoordinator

    def __call__(
        self, frame: memoryview, now_ms: int, sender: Sender | None
    ) -> bytes | Handler | None:
        """Restart the member's session; return None for a request that is not usual."""
        try:
            version, correlation_id, pos = read_short_header(frame)
            if not 0 <= version <= LAST_VERSION:
                return None
            read = _read_flexible if version >= FIRST_FLEXIBLE_VERSION else _read
            member = read(frame, pos, version)
        except (StructError, ValueError, IndexError):
            return None
        if member is None:
            return None
        group_id, generation_id, member_id = member

        # Whoever may not be a member is told so by the general way.
        if sender is not None and not sender.permissions(Operation.READ, ResourceType.GROUP).allows(
            group_id
        ):
            return None

        coordinator = self.coordinator
        try:
            pending = coordinator.submit(
                Heartbeat(coordinator.next_request_id(), group_id, generation_id, member_id, None)
            )
        except ApiError:
            # It was not decided: the general way says why.
            return None
        if pending.response.error:
            return lambda request, context: respond(pending)

        if version >= FIRST_FLEXIBLE_VERSION:
            size = _FLEXIBLE_RESPONSE.size - _SIZE_BYTES
            return _FLEXIBLE_RESPONSE.pack(size, correlation_id, 0, 0, 0, 0)
        if version >= FIRST_VERSION_OF_THROTTLE:
            return _RESPONSE.pack(_RESPONSE.size - _SIZE_BYTES, correlation_id, 0, 0)
        layout = _RESPONSE_WITHOUT_THROTTLE
        return layout.pack(layout.size - _SIZE_BYTES, correlation_id, 0)


def _read(frame: memoryview, pos: int, version: int) -> tuple[str, int, str] | None:
    """Read group id, generation and member id; return None for a request that is not usual."""
    # The group: without an id there is nothing to serve.
    (length,) = _LENGTH.unpack_from(frame, pos)
    if length <= 0:
        return None
    start = pos + _LENGTH.size
    pos = start + length
    group_id = str(frame[start:pos], "utf-8")

    # The member: its id may be empty, but not null.
    generation_id, length = _MEMBER.unpack_from(frame, pos)
    if length < 0:
        return None
    start = pos + _MEMBER.size
    pos = start + length
    member_id = str(frame[start:pos], "utf-8")

    # Static members are not usual.
    if version >= FIRST_VERSION_OF_STATIC_MEMBERS:
        if _LENGTH.unpack_from(frame, pos) != (_NULL,):
            return None
        pos += _LENGTH.size
    return (group_id, generation_id, member_id) if pos == len(frame) else None


def _read_flexible(frame: memoryview, pos: int, version: int) -> tuple[str, int, str] | None:
    """Do the same in a flexible version."""
    pos = skip_no_tags(frame, pos)
    group_id, pos = read_compact_text(frame, pos)
    (generation_id,) = _GENERATION.unpack_from(frame, pos)
    member_id, pos = read_compact_text(frame, pos + _GENERATION.size)
    if not group_id or frame[pos:] != _COMPACT_NULL_AND_NO_TAGS:
        return None
    return group_id, generation_id, member_id
