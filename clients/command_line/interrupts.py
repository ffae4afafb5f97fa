"""Let a command that writes many things finish the one in work when it is interrupted.

What was done is printed then, and what was not. A second Ctrl-C ends the command at once.
"""

import asyncio
import contextlib
import signal
from collections.abc import Iterable, Iterator

import attrs
import click

from clients.command_line.output import INTERRUPTED, Failure


@attrs.define(eq=False)
class Interrupts:
    """Whether the command was interrupted, and what it did not do for that."""

    is_asked: bool = False
    not_done: list[Failure] = attrs.field(factory=list)

    def until_asked(self, names: Iterable[str]) -> Iterator[str]:
        """Yield names until the command is interrupted; the others are `not_done`."""
        for name in names:
            if self.is_asked:
                text = f"{name}: nothing was done, the command was interrupted before"
                self.not_done.append(Failure(name, INTERRUPTED, text))
                continue
            yield name


@contextlib.contextmanager
def heeding_interrupts() -> Iterator[Interrupts]:
    """Note the first SIGINT in the block, in place of ending it; the second one ends it."""
    interrupts = Interrupts()
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGINT)

    def stop_heeding() -> None:
        if loop.remove_signal_handler(signal.SIGINT):
            signal.signal(signal.SIGINT, before)

    def note() -> None:
        interrupts.is_asked = True
        stop_heeding()
        click.echo("interrupted: what is in work is finished; Ctrl-C again ends at once", err=True)

    # Elsewhere than in the main thread there are no signals.
    with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
        # Else it ends in the midst of one, and says nothing (fault scale-C3).
        loop.add_signal_handler(signal.SIGINT, note)
    try:
        yield interrupts
    finally:
        stop_heeding()
