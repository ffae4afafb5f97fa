"""Write the messages of streams to standard output, until a reason to end."""

import asyncio
import os
import struct
import sys
from collections.abc import AsyncIterator, Sequence
from typing import BinaryIO

import attrs

from clients.command_line.command_group import CommandFailed
from clients.errors import ConsumerTimeout
from clients.kgroup.formatter import Formatter, Message, MessageUnreadable

Stream = AsyncIterator[Message]
"""Raises ConsumerTimeout when no message arrived for too long; it can be iterated again then."""


def standard_output() -> BinaryIO:
    """Return standard output for bytes. Raises CommandFailed if it is closed."""
    if sys.stdout is None:
        raise CommandFailed("standard output is closed")
    return sys.stdout.buffer


@attrs.define(eq=False)
class MessageWriter:
    """Writes messages until `max_messages` are written or none arrived for `idle_s`.

    A stream counts a message as consumed when it is asked for the next one. Nothing may be awaited
    between two messages, so that at that time the message has been written and flushed.
    """

    format: Formatter
    out: BinaryIO
    max_messages: int | None
    idle_s: float | None
    skips_unreadable: bool = False
    count: int = 0
    is_timed_out: bool = False
    """True if it ended because no message arrived."""
    _last_at: float = 0.0
    _pumps: list[asyncio.Task[None]] = attrs.field(factory=list)

    async def write_all(self, streams: Sequence[Stream]) -> None:
        """Write the messages of all streams until a reason to end."""
        # Silence counts from here: no message may ever come.
        self._last_at = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as tasks:
            self._pumps += [tasks.create_task(self._pump(stream)) for stream in streams]

    async def _pump(self, stream: Stream) -> None:
        now = asyncio.get_running_loop().time
        while True:
            try:
                async for message in stream:
                    # Another stream wrote the last message while this one waited.
                    if self.count == self.max_messages:
                        return

                    self.out.write(self._line(message))
                    # Flushed at once: the message counts as consumed with the next step.
                    self.out.flush()
                    self.count += 1
                    self._last_at = now()
                    if self.count == self.max_messages:
                        self._end()  # takes effect at the next wait for a message
                return
            except ConsumerTimeout:
                assert self.idle_s is not None
                # Only one stream was idle; another may have had messages meanwhile.
                if now() - self._last_at >= self.idle_s:
                    self.is_timed_out = True
                    self._end()
                    return
            except BrokenPipeError:
                # The reader of the pipe has closed it, as `head` does: a good end.
                _discard_output()
                self._end()
                return

    def _line(self, message: Message) -> bytes:
        try:
            return self.format(message)
        except (ValueError, struct.error) as error:
            # The message counts as written, so the group goes on behind it.
            if self.skips_unreadable:
                return b""

            place = f"{message.topic}-{message.partition} at offset {message.offset}"
            raise MessageUnreadable(f"{place}: {error}") from error

    def _end(self) -> None:
        for pump in self._pumps:
            pump.cancel()


def _discard_output() -> None:
    """Write to nowhere: the reader is gone, and the interpreter would report that at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
