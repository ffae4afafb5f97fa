"""A response with file ranges in it, as parts that are sent one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from broker.network.down_conversion import ConvertedRange
from core_log.storage import FileRange
from protocol.encoding import Hole

SENDFILE_MIN_BYTES = 32 * 1024
SENDFILE_MAX_BYTES = 1024 * 1024
"""Largest piece of a file that is sent at once; after each the connection counts as active."""
SMALL_BYTES = 64 * 1024
"""Most that is read of files into one response at once. A larger response goes out in pieces, each
when the client has taken the one before, and takes no more memory than that."""

Part = bytes | bytearray | FileRange | ConvertedRange

SendRange = Callable[[asyncio.Transport, FileRange], Awaitable[int | None]]
"""Sends a file range and returns how many bytes went out; None if the transport needs them read."""


async def send_by_sendfile(transport: asyncio.Transport, file_range: FileRange) -> int | None:
    """Send a file range without reading it: for transports that do not change the bytes."""
    loop = asyncio.get_running_loop()
    try:
        # Not with the loop's own fallback: it moves a file position that all readers share.
        return await loop.sendfile(
            transport, file_range.raw, file_range.start, file_range.size, fallback=False
        )
    except asyncio.SendfileNotAvailableError:
        return None


def split_at_holes(encoded: bytearray, holes: list[Hole]) -> list[Part]:
    """Cut an encoded response at its holes, and put the file ranges between the pieces."""
    parts: list[Part] = []
    start = 0
    for position, file_range in holes:
        parts.append(encoded[start:position])
        parts.append(file_range)
        start = position
    parts.append(encoded[start:])
    return parts


def is_small(parts: list[Part], holes: list[Hole]) -> bool:
    """Return whether a response can be joined at once: little of files, and all of it cached."""
    file_bytes = sum(file_range.size for _, file_range in holes)
    return file_bytes <= SMALL_BYTES and all(is_at_hand(part) for part in parts)


def is_at_hand(part: Part) -> bool:
    """Return whether a part can be joined without waiting for a disk or a thread."""
    if isinstance(part, FileRange):
        return part.size < SENDFILE_MIN_BYTES and part.is_cached
    return not isinstance(part, ConvertedRange)


def read_part(part: Part) -> bytes | bytearray:
    """Return the bytes of a part. Raises OSError if some that the response announced are gone."""
    if not isinstance(part, FileRange):
        assert not isinstance(part, ConvertedRange)
        return part

    content = part.read()
    if len(content) != part.size:
        raise OSError(f"only {len(content)} of {part.size} bytes were in the file")
    return content


def pieces(whole: FileRange) -> Iterator[FileRange]:
    """Cut a file range into pieces of SENDFILE_MAX_BYTES."""
    for done in range(0, whole.size, SENDFILE_MAX_BYTES):
        size = min(SENDFILE_MAX_BYTES, whole.size - done)
        yield FileRange(whole.file, whole.start + done, size)
