"""A server process stops at a signal, or when the process that started it ends.

A parent keeps the writing end of its child's standard input. The kernel closes it however the
parent dies, `kill -9` included, and the child reads end of file. A thread reads it, not the event
loop, so that a child whose loop is stuck ends too.
"""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Coroutine
from typing import Any

ORPHAN_GRACE_S = 3.0
"""Time that an orphan has for an orderly stop; its ZooKeeper died with the same parent."""

_STDIN = 0


def stop_event() -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set; they no longer end the process."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


async def run_until_stopped(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Run `work` until it is done (True) or `stop` is set, which cancels it (False).

    Raises what `work` raises.
    """
    working = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())

    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        # Cancelling a finished task does nothing; the other one runs its cleanup first.
        working.cancel()
        stopping.cancel()
        await asyncio.wait((working, stopping))

    if working.cancelled():
        return False
    working.result()
    return True


def stop_with_parent(stop: asyncio.Event) -> None:
    """Set `stop` at the end of standard input; exit ORPHAN_GRACE_S later in any case."""
    loop = asyncio.get_running_loop()

    def watch() -> None:
        # The parent writes nothing. Only the end of file counts.
        while os.read(_STDIN, 1024):
            pass

        # An orderly stop, if the loop still turns.
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)

        # This thread ends with a process that stops in time.
        time.sleep(ORPHAN_GRACE_S)
        os._exit(1)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()
