"""Standard input as lines, without a thread that would keep Ctrl-C waiting for the next one."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from typing import BinaryIO

from clients.command_group import CommandFailed

READ_BYTES = 65_536


def standard_input() -> BinaryIO:
    """As bytes. Raises CommandFailed when the command was started without one."""
    if sys.stdin is None:
        raise CommandFailed("standard input is closed")
    return sys.stdin.buffer


async def lines_of(descriptor: int) -> AsyncIterator[list[bytes]]:
    """Yield the lines of a file, pipe or terminal as they come, without their ends.

    Several at a time when several are there; what follows the last line's end is a line too.
    """
    begun: list[bytes] = []  # pieces of a line: joined once, however many there are
    while chunk := await _read(descriptor):
        end, *more = chunk.split(b"\n")
        begun.append(end)
        if more:
            *lines, rest = more
            yield [b"".join(begun), *lines]
            begun = [rest]
    if any(begun):
        yield [b"".join(begun)]


async def _read(descriptor: int) -> bytes:
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    try:
        loop.add_reader(descriptor, readable.set_result, None)
    except PermissionError:  # epoll's answer for what never blocks: a regular file, /dev/null
        await asyncio.sleep(0)
    else:
        try:
            await readable
        finally:
            loop.remove_reader(descriptor)
    return os.read(descriptor, READ_BYTES)
