"""Split a response with file ranges, or a large one, into parts that are sent one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from broker.network.down_conversion import ConvertedRange
from core_log.storage import FileRange
from protocol.encoding import Chunk, Hole

# Below this size a read and a joined write are cheaper.
SENDFILE_MIN_BYTES = 32 * 1024
SENDFILE_MAX_BYTES = 1024 * 1024
"""Largest piece of a file that one call sends. After each piece the connection counts as active."""
ENCRYPTED_PIECE_BYTES = 256 * 1024
"""Largest piece of a file that is read, and encrypted, at once."""
SMALL_BYTES = 64 * 1024
"""Most bytes of files that are read into one response at once. A larger response is sent in pieces:
the next piece is read when the client has taken the one before, so memory stays bounded."""
JOINED_AT_ONCE_BYTES = 1024 * 1024
"""Most bytes of a response in memory that are joined at once."""

Part = bytes | bytearray | FileRange | ConvertedRange

SendRange = Callable[[asyncio.Transport, FileRange], Awaitable[int | None]]
"""Sends a file range and returns how many bytes went out; None if the transport needs them read."""


async def send_by_sendfile(transport: asyncio.Transport, file_range: FileRange) -> int | None:
    """Send a file range without reading it: for transports that do not change the bytes."""
    loop = asyncio.get_running_loop()
    try:
        # No fallback: the loop's own moves the file position, which all readers share.
        return await loop.sendfile(
            transport, file_range.raw, file_range.start, file_range.size, fallback=False
        )
    except asyncio.SendfileNotAvailableError:
        return None


def end_sendfile(transport: asyncio.Transport) -> None:
    """Have a transport whose client is gone end without an error, while it sends a file.

    asyncio waits for an empty buffer before it sends, and keeps that wait until the file is sent.
    When the client goes meanwhile it would fail to end the wait a second time.
    """
    waiter: asyncio.Future[None] | None = getattr(transport, "_empty_waiter", None)
    if waiter is not None and waiter.done():
        transport._reset_empty_waiter()  # type: ignore[attr-defined]


async def send_by_reading(transport: asyncio.Transport, file_range: FileRange) -> int | None:
    """Send nothing: for transports that encrypt the bytes, and need them in memory."""
    return None


def split_at_holes(encoded: bytearray, holes: list[Hole]) -> list[Part]:
    """Split an encoded response at its holes, and put what fills them between the pieces."""
    parts: list[Part] = []
    start = 0

    for position, filling in holes:
        # Several chunks are in the same place.
        if position > start:
            parts.append(encoded[start:position])
        parts.append(filling.body if isinstance(filling, Chunk) else filling)
        start = position

    parts.append(encoded[start:])
    return parts


def is_small(parts: list[Part]) -> bool:
    """Return whether a response can be joined at once: it is small, and its ranges are cached."""
    file_bytes = sum(part.size for part in parts if isinstance(part, FileRange))
    is_short = file_bytes <= SMALL_BYTES and bytes_in_memory(parts) <= JOINED_AT_ONCE_BYTES
    return is_short and all(is_at_hand(part) for part in parts)


def bytes_in_memory(parts: list[Part]) -> int:
    """Return how many bytes of a response are in memory, and in no file."""
    return sum(len(part) for part in parts if isinstance(part, bytes | bytearray))


def is_at_hand(part: Part) -> bool:
    """Return whether a part can be joined without waiting for a disk or a thread."""
    if isinstance(part, FileRange):
        return part.size < SENDFILE_MIN_BYTES and part.is_cached
    return not isinstance(part, ConvertedRange)


def read_part(part: Part) -> bytes | bytearray:
    """Return the bytes of a part. Raises OSError if the file has fewer than were announced."""
    if not isinstance(part, FileRange):
        assert not isinstance(part, ConvertedRange)
        return part

    content = part.read()
    if len(content) != part.size:
        raise OSError(f"only {len(content)} of {part.size} bytes were in the file")
    return content


def split_range(file_range: FileRange, piece_bytes: int) -> Iterator[FileRange]:
    """Split a file range into pieces of at most so many bytes."""
    for start in range(0, file_range.size, piece_bytes):
        size = min(piece_bytes, file_range.size - start)
        yield FileRange(file_range.file, file_range.start + start, size)
