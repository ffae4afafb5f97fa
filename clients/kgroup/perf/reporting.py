"""Print the lines of a run: progress each 5 s, and the summary at its end, also after Ctrl-C."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from clients.command_line.command_group import CommandFailed
from clients.command_line.printing import say
from clients.kgroup.perf.figures import REPORT_MS, Figures


def monotonic_ms() -> float:
    """Return the time of the clock for intervals."""
    return time.monotonic() * 1000


@contextlib.asynccontextmanager
async def reporting(noun: str) -> AsyncIterator[Figures]:
    """Count in the block, and print. Raises CommandFailed if anything that was counted failed."""
    figures = Figures(noun, monotonic_ms())
    reporter = asyncio.create_task(_print_progress(figures))
    try:
        yield figures
    finally:
        reporter.cancel()
        await asyncio.gather(reporter, return_exceptions=True)
        say(figures.summary(monotonic_ms()))

    if figures.failed:
        raise CommandFailed(f"{figures.failed} {noun} failed: {figures.first_error}")


async def _print_progress(figures: Figures) -> None:
    while True:
        await asyncio.sleep(REPORT_MS / 1000)
        say(figures.progress(monotonic_ms()))


async def keep_pace(begins_ms: float, number: int, per_second: float) -> None:
    """Wait until it is time for the next after `number` of them; not below 1 a second: no limit.

    The pace is that of the whole run, so a delay is caught up with.
    """
    if per_second > 0:
        await asyncio.sleep((begins_ms + number / per_second * 1000 - monotonic_ms()) / 1000)
    elif number % TURN == 0:
        # Acknowledgements need the loop, which a producer with room in its buffer never gives up.
        await asyncio.sleep(0)


TURN = 64
