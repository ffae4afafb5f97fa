"""An event loop in a thread of its own, for callers that block."""

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from clients.errors import ClientClosed
from clients.own_process import OwnProcess

T = TypeVar("T")

logger = logging.getLogger(__name__)

_here = threading.local()


def is_any_loop_thread() -> bool:
    """Return whether the caller is on the thread of a blocking client's loop."""
    return getattr(_here, "has_loop", False)


class LoopThread:
    """An event loop that runs in a thread until `stop`."""

    def __init__(self, name: str, closed_error: type[ClientClosed] = ClientClosed) -> None:
        self._closed_error = closed_error
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._closing = threading.Lock()
        self._closed = False
        self.process = OwnProcess()
        """The one in which the thread runs."""
        self.twins: dict[Any, Any] = {}
        """The blocking twins of objects on the loop that have one each."""

        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """True until `stop`."""
        return self._thread.is_alive()

    def start(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine on the loop. Raises ClientClosed, and OtherProcess in a forked child.

        A coroutine that was started before the loop stops is then done or cancelled, so that nobody
        waits for one that never runs.
        """
        # Before the lock, which a thread of the parent may have held.
        if not self.process.is_this:
            work.close()
        self.process.check()
        with self._closing:
            if not self._closed:
                return asyncio.run_coroutine_threadsafe(work, self._loop)

        # It never runs. Closed, it does not warn that nobody awaited it.
        work.close()
        raise self._closed_error(f"{self._thread.name} is closed")

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result. Raises ClientClosed.

        An exception in the waiting thread, such as Ctrl-C, cancels the coroutine.
        """
        future = self.start(work)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            # A coroutine may be cancelled for its own reasons, too.
            if not self._closed:
                raise

            raise self._closed_error(f"{self._thread.name} was closed meanwhile") from None
        finally:
            future.cancel()

    def is_own_thread(self) -> bool:
        """Return whether the caller is on the loop's thread. Raises OtherProcess in a fork."""
        self.process.check()
        is_own = threading.get_ident() == self._thread.ident
        # A thread that began later may have its number (fault strangers-173, was: is_own).
        return is_own and self._thread.is_alive()

    def refuse_own_thread(self) -> None:
        """Raise RuntimeError in the loop's own thread, as in a callback of a future.

        Waiting for the loop there would never end, nor in a forked child: raises OtherProcess.
        """
        if self.is_own_thread():
            raise RuntimeError("a blocking client cannot be called on the thread of its own loop")

    def stop(self) -> None:
        """Stop the loop, cancel what still runs on it, and end the thread."""
        # Under the lock: no coroutine may be started between the flag and the loop's end.
        with self._closing:
            if not self._closed:
                self._closed = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        _here.has_loop = True
        try:
            self._loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            logger.error("%s: a callback ended its thread: %r", self._thread.name, error)
        finally:
            with self._closing:
                # Nobody can wait for this loop any more (fault strangers-162).
                self._closed = True
            # Cancels what still runs, so that each waiting thread gets its CancelledError.
            self._runner.close()
