"""Let a command that writes many things finish the one in work when it is interrupted.

What was done is printed then, and what was not. A second Ctrl-C ends the command at once.
"""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import attrs

from clients.command_line.output import INTERRUPTED, Failure
from clients.command_line.printing import say
from clients.errors import KgroupError

K = TypeVar("K")

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Ctrl-C, and what stops a command in a script or a container."""

NOTHING_DONE = "nothing was done, the command was interrupted before"


class Interrupted(KgroupError):
    """A thing was not begun, because the command was interrupted before. Its name is shown."""

    def __init__(self) -> None:
        super().__init__(NOTHING_DONE)


@attrs.define(eq=False)
class Interrupts:
    """Whether the command was interrupted, and what it did not do for that."""

    several: bool = False
    """True if there are several things to do: each is said when it is done."""
    not_done: list[Failure] = attrs.field(factory=list)
    _asked: asyncio.Event = attrs.field(factory=asyncio.Event)

    @property
    def is_asked(self) -> bool:
        """True if the command was interrupted."""
        return self._asked.is_set()

    def ask(self) -> None:
        """Note that the command was interrupted."""
        self._asked.set()

    def until_asked(self, names: Iterable[str]) -> Iterator[str]:
        """Yield names until the command is interrupted; the others are `not_done`."""
        for name in names:
            if self.is_asked:
                self.not_done.append(Failure(name, INTERRUPTED, NOTHING_DONE))
                continue
            yield name

    def say(self, sentence: str) -> None:
        """Print on stderr what was done, at once, where there are several things to do."""
        if self.several:
            # At the end only those would know it who wait for the end (fault scale-C3).
            say(sentence, err=True)

    async def pause(self, seconds: float) -> None:
        """Wait, or until the command is interrupted."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._asked.wait()

    async def in_portions(
        self,
        keys: Sequence[K],
        ask: Callable[[Sequence[K]], Awaitable[Mapping[K, Exception | None]]],
        size: int,
    ) -> dict[K, Exception | None]:
        """Ask for `size` things at a time, until the command is interrupted.

        Returns a verdict for each. Raises the KgroupError of the first portion; that of another one
        is the verdict of its things, because something was done.
        """
        verdicts: dict[K, Exception | None] = {}
        for start in range(0, len(keys), size):
            portion = keys[start : start + size]
            # All in one request would end with all, or with nothing that is known (fault scale-C3).
            if self.is_asked:
                verdicts |= dict.fromkeys(portion, Interrupted())
                continue
            try:
                verdicts |= await ask(portion)
            except KgroupError as error:
                if not verdicts:
                    raise
                verdicts |= dict.fromkeys(portion, error)
        return verdicts


def end_on_signals() -> None:
    """Let SIGINT and SIGTERM cancel this task; a second signal cuts short how it then ends."""
    # A task that is cancelled leaves its group; a process that ends at once would not.
    this = asyncio.current_task()
    assert this is not None
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, this.cancel)


@contextlib.contextmanager
def heeding_interrupts(*, several: bool = False) -> Iterator[Interrupts]:
    """Note the first interrupt in the block, in place of ending it; the second one ends it."""
    interrupts = Interrupts(several)
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def stop_heeding() -> None:
        # Some loops have no signals at all, and refuse this too.
        with contextlib.suppress(NotImplementedError):
            for number, handler in before.items():
                if loop.remove_signal_handler(number):
                    signal.signal(number, handler)

    def note() -> None:
        interrupts.ask()
        stop_heeding()
        say("interrupted: what is in work is finished; Ctrl-C again ends at once", err=True)

    # Elsewhere than in the main thread there are no signals.
    with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
        for number in SIGNALS:
            # Else it ends in the midst of one, and says nothing (fault scale-C3).
            loop.add_signal_handler(number, note)
    try:
        yield interrupts
    finally:
        stop_heeding()
