"""Show people that a command is still at work."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable

import click

from clients.command_line.printing import plain

INTERVAL_S = 1
"""What ends sooner shows nothing."""


@contextlib.asynccontextmanager
async def showing_progress(work: str | Callable[[], str]) -> AsyncIterator[None]:
    """Show on stderr what is done, and its seconds, while the block or decorated function runs.

    A function says each second how far the work is. The line is erased at its end. It is for a
    terminal alone: a log or a pipe gets nothing.
    """
    if not sys.stderr.isatty():
        yield
        return

    loop = asyncio.get_running_loop()
    begins_s = loop.time()
    line = ""
    timer: asyncio.TimerHandle

    def show_line() -> None:
        nonlocal line, timer
        text = plain(work if isinstance(work, str) else work())
        # Blanks over what was longer.
        before = len(line)
        line = f"{text}: {loop.time() - begins_s:.0f} s"
        click.echo(f"\r{line.ljust(before)}", err=True, nl=False)
        timer = loop.call_later(INTERVAL_S, show_line)

    timer = loop.call_later(INTERVAL_S, show_line)
    try:
        yield
    finally:
        timer.cancel()
        # Blanks erase it also on a terminal without escape sequences.
        if line:
            click.echo(f"\r{' ' * len(line)}\r", err=True, nl=False)
