"""Read the lines of standard input without a thread, so that Ctrl-C need not wait for a line."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from typing import BinaryIO

from clients.command_line.command_group import CommandFailed

READ_BYTES = 65_536


def standard_input() -> BinaryIO:
    """Return standard input for bytes. Raises CommandFailed if it is closed."""
    if sys.stdin is None:
        raise CommandFailed("standard input is closed")
    return sys.stdin.buffer


async def lines_of(descriptor: int) -> AsyncIterator[list[bytes]]:
    """Yield the lines of a file, pipe or terminal as they arrive, without their ends.

    Yields all lines that are there at a time. Bytes after the last end are a line too.
    """
    unfinished: list[bytes] = []  # pieces of one line, joined when it ends

    # An empty read is the end of the input.
    while chunk := await _read(descriptor):
        # The first piece ends the line that was begun before.
        end, *following = chunk.split(b"\n")
        unfinished.append(end)
        if following:
            *lines, rest = following
            yield [b"".join(unfinished), *lines]
            unfinished = [rest]

    # The last line need not have an end.
    if any(unfinished):
        yield [b"".join(unfinished)]


async def _read(descriptor: int) -> bytes:
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    try:
        loop.add_reader(descriptor, readable.set_result, None)
    except PermissionError:  # epoll refuses what never blocks: a regular file, /dev/null
        await asyncio.sleep(0)
    else:
        try:
            await readable
        finally:
            loop.remove_reader(descriptor)

    # Readable, so this reads what is there and does not wait.
    return os.read(descriptor, READ_BYTES)
