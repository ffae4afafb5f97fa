"""Wait for a future that goes on when who waits is cancelled."""

import asyncio
from typing import TypeVar

T = TypeVar("T")


async def wait_shielded(running: asyncio.Future[T]) -> T:
    """Return the future's result; a caller that is cancelled leaves it running.

    So does `asyncio.shield`, which from Python 3.14 on logs an error that comes later, for which
    nobody waits, as one of the event loop.
    """
    try:
        await asyncio.wait([running])
        return running.result()
    except asyncio.CancelledError:
        # Nobody asks for what it ends with (fault strangers-79).
        running.add_done_callback(_see_error)
        raise
    finally:
        # Its error has this frame in its traceback, and all that the future holds.
        del running


def _see_error(done: asyncio.Future[T]) -> None:
    if not done.cancelled():
        done.exception()
