"""`kgroup record`: write what groups commit to a file, for `history`, `health` and `describe`."""

import asyncio
import contextlib
from collections.abc import Collection, Sequence
from pathlib import Path

import attrs
import click

from clients.command_line.finite_range import FiniteRange
from clients.command_line.interrupts import end_on_signals
from clients.command_line.output import Failure, Target, report, target_options
from clients.command_line.printing import say
from clients.command_line.sessions import connecting
from clients.errors import KgroupError
from clients.kgroup.events import Age
from clients.watching.history import history_place
from clients.watching.recorder import Recorder, open_history

INTERVAL_S = 10


@click.command(
    "record",
    epilog="""\b
Examples:
  kgroup record
  kgroup record --data groups.sqlite --keep 7d --interval 5""",
)
@target_options
@click.option("--data", type=click.Path(dir_okay=False, path_type=Path), help="File to write.")
@click.option("--keep", type=Age(), default="30d", show_default=True, help="Time to keep commits.")
@click.option(
    "--interval",
    type=FiniteRange(min=0.1),
    default=INTERVAL_S,
    show_default=True,
    metavar="SEC",
    help="Time between two looks.",
)
def command(target: Target, data: Path | None, keep: int, interval: float) -> None:
    """Write each commit of all groups, and the ends of their logs, to a file until Ctrl-C.

    Commits from before are written too, as far as __consumer_offsets still holds them. The file is
    by default ~/.local/share/kgroup/CLUSTER_ID.sqlite (or in XDG_DATA_HOME), where the other
    commands look for it. Groups in ZooKeeper are looked at too, and their commits are what changed
    between two looks. It may be read while it is written, and has at most 1 GB. Brokers or a
    ZooKeeper that are away, also at the start, are asked again at each look.
    """
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(record(target, data, keep, interval))


@attrs.define(eq=False)
class Troubles:
    """What cannot be read: one line of stderr when it begins, and one when it works again."""

    _told: Collection[str] = ()

    def look(self, failures: Sequence[Failure]) -> None:
        """Tell what has changed since the last look."""
        report(
            attrs.evolve(failure, message=f"{failure.message}; trying again")
            for failure in failures
            if failure.what not in self._told
        )
        failing = {failure.what: None for failure in failures}
        for what in self._told:
            if what not in failing:
                say(f"{what}: works again", err=True)
        self._told = failing


async def record(target: Target, data: Path | None, keep_ms: int, interval_s: float) -> None:
    """Record until the task is cancelled. A cluster that is away is asked again."""
    end_on_signals()
    recorder: Recorder | None = None
    troubles, away = Troubles(), Troubles()
    async with connecting(target) as sessions:
        with contextlib.ExitStack() as files:
            while True:
                try:
                    # The cluster's id names the file.
                    if recorder is None:
                        path, cluster_id = await history_place(sessions.admin, data)
                        file = files.enter_context(open_history(path, cluster_id, keep_ms))
                        say(f"recording to {path}")
                        recorder = Recorder(sessions, file)
                    await recorder.look()
                    away.look([])
                    troubles.look(recorder.watch.failures)
                except KgroupError as error:
                    away.look([Failure.of("cluster", error)])
                await asyncio.sleep(interval_s)
