"""The world of a simulation: one clock, one source of chance, and the processes that live in it.

`World.run` takes the turns of all loops in the order of their virtual time. While it does, Python's
own clock, chance and unique ids are the world's (`_machine`): the product reads them where no seam
is worth its while, and each process reads its own clock, which a fault may set wrong.

A process is killed by never turning its loop again: no `finally` runs, nothing is closed, and what
it had written to its disk stays. It is paused by holding its turns back.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import heapq
import itertools
import logging
import random
import sys
import threading
import time
import traceback
import uuid
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from kgroup.testing.simulation.sim_loop import NEVER, SimLoop
from kgroup.testing.simulation.story import Story
from kgroup.testing.story import Violation

if TYPE_CHECKING:
    from kgroup.testing.simulation.network import Network

T = TypeVar("T")

EPOCH_S = 1_600_000_000
"""What the clocks show at the beginning."""

TURN_S = 40e-6
THREADS_S = (2e-3, 20e-3, 150e-3)
"""What a thread takes, an fsync most of all: one of these at most, in the whole story."""
MOST_TURNS = 1_000_000
"""Of all loops in a story: some sixty thousand are usual."""


class Process:
    """A process on the machine `host`, with an event loop of its own.

    `skew_ms` is how wrong its clock is; `after_turn`, called after each turn of its loop, looks at
    its state.
    """

    def __init__(self, world: World, name: str, *, exact: bool = False) -> None:
        self.world = world
        self.name = self.host = name
        self.alive = True
        self.paused = False
        self.skew_ms = 0
        self.after_turn: Callable[[], None] = lambda: None
        self._exact = exact
        self.loop = SimLoop(self)  # type: ignore[abstract]  # of what it lacks nothing is used
        world.processes.append(self)

    def __repr__(self) -> str:
        return self.name

    def turn_s(self) -> float:
        """Return how long the turn just made has lasted."""
        return 0.0 if self._exact else self.world.rng.random() * TURN_S

    def thread_s(self) -> float:
        """Return how long a thread takes."""
        return self.world.rng.random() * self.world.longest_thread_s

    def now_ms(self) -> int:
        """Return what its clock shows, in ms since 1970."""
        return int((EPOCH_S + self.world.now) * 1000) + self.skew_ms

    def spawn(self, work: Coroutine[Any, Any, Any], name: str = "main") -> asyncio.Task[Any]:
        """Begin a task of the process, from outside. An exception that leaves it ends the story."""

        def ended(task: asyncio.Task[Any]) -> None:
            if not task.cancelled() and task.exception() is not None:
                self.failed({"message": f"{name} failed", "exception": task.exception()})

        with self.world.within(self):
            task = self.loop.create_task(work, name=name)
        task.add_done_callback(ended)
        return task

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Await `work()` in the process, and return here what it returns.

        An exception that leaves it ends the story. If the process is killed, this waits for ever.
        """
        here = asyncio.get_running_loop()
        done: asyncio.Future[T] = here.create_future()

        async def there() -> None:
            result = await work()
            here.call_soon(done.set_result, result)

        self.spawn(there(), str(self))
        return await done

    def kill(self) -> None:
        """End it between two turns: no `finally` runs. Its connections are left as they are."""
        self.alive = False

    def pause(self) -> None:
        """Freeze it, as SIGSTOP does; what others send to it waits."""
        self.paused = True

    def resume(self) -> None:
        """Let it go on after `pause`."""
        self.paused = False
        self.loop.wake_for_next()

    def failed(self, context: dict[str, Any]) -> None:
        """asyncio has something to complain about."""
        if self.alive:
            error = context.get("exception")
            self.world.fail(f"{self.name}: {context.get('message')}: {error!r}", error)


class World:
    """Everything that happens from one seed."""

    network: Network

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.longest_thread_s = self.rng.choice(THREADS_S)
        self.now = 0.0
        self.current: Process | None = None
        self.processes: list[Process] = []  # the dead too: nothing of them may be collected
        self.story = Story(seed, lambda: self.now)
        self.turns = 0
        self.most_turns = MOST_TURNS
        self.at_end: list[Callable[[], None]] = []
        self._violation: Violation | None = None
        self._queue: list[tuple[float, float, int, SimLoop]] = []
        self._serial = 0
        self.serials = itertools.count()  # of tasks and futures, as their hashes
        self.nature = Process(self, "nature", exact=True)
        """What is no process of the cluster: the network, the ZooKeeper servers, the faults."""

    def process(self, name: str) -> Process:
        """A process on a host of that name."""
        return Process(self, name)

    def schedule(self, at: float, loop: SimLoop) -> None:
        """Have a loop turn at a time; among equals by chance."""
        self._serial += 1
        heapq.heappush(self._queue, (at, self.rng.random(), self._serial, loop))

    def fail(self, what: str, cause: BaseException | None = None) -> None:
        """End the story: this must not happen."""
        if self._violation is None:
            self.story.tell("checker", f"VIOLATION {what}")
            if cause is not None:  # as text: its frames must not outlive the story
                self.story.tell("checker", "".join(traceback.format_exception(cause)))
            self._violation = Violation(what)

    @contextlib.contextmanager
    def within(self, process: Process) -> Iterator[None]:
        """Do something in the place of a process."""
        before, self.current = self.current, process
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(process.loop)
        try:
            yield
        finally:
            self.current = before
            asyncio._set_running_loop(outer)

    def run(self, work: Awaitable[Any]) -> Any:
        """Live until `work`, which runs in nature's place, is done. Raises Violation."""
        with _machine(self):
            main = self.nature.spawn(_awaited(work), "the story")
            try:
                self._live(main)
            finally:
                self.story.close()
                asyncio._set_running_loop(None)
                self._bury()
            if self._violation is None and (error := main.exception()) is not None:
                self.story.reopen()
                self.fail(str(error) or repr(error), error)
                self.story.close()
            if self._violation is not None:
                raise self._violation
            return main.result()

    def _live(self, main: asyncio.Task[Any]) -> None:
        queue, pop, set_running = self._queue, heapq.heappop, asyncio._set_running_loop
        while not main.done() and self._violation is None:
            assert queue, "nothing will ever happen again"
            at, _, _, loop = pop(queue)
            if at != loop.next_turn:
                continue  # it was moved since
            loop.next_turn = NEVER
            process = loop.process
            if not process.alive or process.paused:
                continue
            self.now = at
            self.current = process
            set_running(loop)
            self.turns += 1
            assert self.turns < self.most_turns, f"{process} spins"
            loop.turn()

    def _bury(self) -> None:
        """Let go of all that was still under way, without a word."""
        for process in self.processes:
            process.alive = False
        before, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # coroutines that never began
                for process in self.processes:
                    # What its last words begin is its own, and not a loop's that outlives it.
                    with self.within(process):
                        process.loop.bury()
                for let_go in self.at_end:
                    let_go()
                self.processes.clear()
                self._queue.clear()
                gc.collect()
        finally:
            sys.unraisablehook = before


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work


class _Heard(logging.Handler):
    """Puts the product's log into the story; an error that it did not expect ends the story."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        process = self._world.current
        if process is None or not process.alive:
            return
        self._world.story.tell(process.name, f"says: {record.getMessage()}")
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not self._world.story.expects(error):
            self._world.fail(f"{process.name}: unexpected {error!r}", error)


@contextlib.contextmanager
def _machine(world: World) -> Iterator[None]:
    """Python's clock, rng, unique ids and log are the world's."""
    ids = random.Random(world.seed)

    def time_ns() -> int:
        process = world.current
        skew_ms = process.skew_ms if process else 0
        return int((EPOCH_S + world.now) * 1e9) + skew_ms * 1_000_000

    kept_start, thread = threading.Thread.start, threading.current_thread()

    def start(started: threading.Thread) -> None:
        if threading.current_thread() is thread:
            raise RuntimeError(
                f"{world.current} starts the thread {started.name}: there are none in virtual time,"
                " as they would not follow the seed"
            )
        kept_start(started)

    kept_times, kept_uuid = (time.time, time.time_ns, time.monotonic), uuid.uuid4
    kept_state, heard, root = random.getstate(), _Heard(world), logging.getLogger()
    others, disabled = root.handlers, logging.root.manager.disable
    time.time, time.time_ns, time.monotonic = lambda: time_ns() / 1e9, time_ns, lambda: world.now
    threading.Thread.start = start  # type: ignore[assignment, method-assign]
    uuid.uuid4 = lambda: uuid.UUID(int=ids.getrandbits(128), version=4)
    random.seed(world.seed)
    root.handlers = [heard]
    logging.disable(logging.INFO)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        logging.disable(disabled)
        root.handlers = others
        random.setstate(kept_state)
        threading.Thread.start = kept_start  # type: ignore[method-assign]
        (time.time, time.time_ns, time.monotonic), uuid.uuid4 = kept_times, kept_uuid
