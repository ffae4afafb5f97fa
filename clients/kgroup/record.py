"""`kgroup record`: write what groups commit to a file, for `history`, `health` and `describe`."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import attrs
import click

from clients.admin import Admin
from clients.errors import KgroupError
from clients.group_watch import GroupWatch
from clients.history import history_path
from clients.history_file import KEEP_MS, HistoryFile
from clients.kgroup.consume import end_on_signals
from clients.kgroup.events import Age
from clients.output import Target, report, target_options
from clients.sessions import connected

INTERVAL_S = 10
TRIM_ROUNDS = 60


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
    type=click.FloatRange(min=0.1),
    default=INTERVAL_S,
    show_default=True,
    metavar="SEC",
    help="Time between two looks.",
)
def command(target: Target, data: Path | None, keep: int, interval: float) -> None:
    """Write each commit of all groups, and the ends of their logs, to a file until Ctrl-C.

    Commits from before are written too, as far as __consumer_offsets still holds them. The file is
    by default ~/.local/share/kgroup/CLUSTER_ID.sqlite (or in XDG_DATA_HOME), where the other
    commands look for it. It may be read while it is written, and has at most 1 GB.
    """
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(record(target, data, keep, interval))


async def record(target: Target, data: Path | None, keep_ms: int, interval_s: float) -> None:
    """Record until the task is cancelled. A cluster that is away is asked again."""
    end_on_signals()
    async with connected(target) as sessions:
        path = await history_path(sessions.admin, data)
        with open_history(path, keep_ms) as file:
            click.echo(f"recording to {path}")
            recorder = Recorder(sessions.admin, file)
            while True:
                try:
                    await recorder.look()
                    report(recorder.watch.failures)
                except KgroupError as error:
                    click.echo(f"error: {error}; trying again", err=True)
                await asyncio.sleep(interval_s)


def open_history(path: Path, keep_ms: int = KEEP_MS) -> HistoryFile:
    """Open a history to write, and make its directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return HistoryFile(path, keep_ms=keep_ms)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@attrs.define(eq=False)
class Recorder:
    """Watches all groups and writes what is new; `look` is one round."""

    admin: Admin
    file: HistoryFile
    now_ms: Callable[[], int] = _now_ms
    watch: GroupWatch = attrs.field(init=False)
    _began_ms: int | None = None
    _rounds: int = 0

    def __attrs_post_init__(self) -> None:
        self.watch = GroupWatch(self.admin, since_ms=self.now_ms() - self.file.keep_ms)

    async def look(self) -> None:
        """Read what is new, and write it. Raises KgroupError if no broker can be asked."""
        former = self.watch.logs
        await self.watch.refresh()
        now_ms = self.watch.read_at_ms
        if self._began_ms is None:
            since_ms = max(self.watch.records.complete_since_ms.values(), default=0)
            self._began_ms = min(now_ms, since_ms) if self.watch.is_tailing else now_ms
        ends = {
            partition: log.end
            for partition, log in self.watch.logs.items()
            if log.end is not None and former.get(partition) != log
        }
        self.file.append(self.watch.new_commits, ends, now_ms, began_ms=self._began_ms)
        if self._rounds % TRIM_ROUNDS == 0:
            self.file.trim(now_ms)
        self._rounds += 1
