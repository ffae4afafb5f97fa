"""`kgroup top`: watch the groups, the largest lag first, and look into one."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import click

from clients.command_line.command_group import CommandFailed
from clients.command_line.finite_range import FiniteRange
from clients.command_line.output import (
    Column,
    Failure,
    Listing,
    Target,
    is_screen,
    output_option,
    show,
    table,
    target_options,
)
from clients.command_line.printing import plain
from clients.command_line.sessions import Sessions, connected
from clients.errors import KgroupError
from clients.groups.group_facts import GroupFacts, LogOffsets
from clients.groups.group_reader import GroupReader
from clients.groups.group_view import OFFSET_COLUMNS, offset_items
from clients.groups.marker_tails import MarkerTails
from clients.watching.top_view import (
    View,
    group_row,
    offsets_of,
    press,
    read_keys,
    sorted_rows,
    visible,
)
from protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from rich.text import Text

COLUMNS = (
    Column("GROUP", 30),
    Column("LAG", 10),
    Column("RATE", 8),
    Column("STATE", 10),
    Column("#MEMBERS"),
    Column("#PARTITIONS"),
)
SOMETIMES = {"unsubscribed", "position"}
"""Columns that are left out where they say nothing."""
# The title names the group, and every column is to fit.
PARTITION_COLUMNS = tuple(
    attrs.evolve(column, min_width=0, wide=False)
    for column in OFFSET_COLUMNS
    if (not column.wide or column.key in SOMETIMES) and column.key != "group"
)
HELP = "l lag · r rate · n name · ↑↓ choose · Enter look into · ← back · q quit"
OTHER_LINES = 5
"""Lines of the screen that have no row: the title, the columns' titles, an error, the help."""
READ_BYTES = 3 * 1024
"""Read at once: a whole number of arrow keys, so that none is torn where a key is held down."""


@attrs.define(eq=False)
class Snapshot:
    """The groups at one time."""

    groups: dict[str, GroupFacts] = attrs.field(factory=dict)
    logs: dict[TopicPartition, LogOffsets] = attrs.field(factory=dict)
    rows: list[dict[str, Any]] = attrs.field(factory=list)
    offsets: dict[str, dict[TopicPartition, int]] = attrs.field(factory=dict)
    at_s: float = 0.0
    failures: list[Failure] = attrs.field(factory=list)
    tails: MarkerTails = attrs.field(factory=MarkerTails)


@click.command(
    "top",
    epilog="""\b
Examples:
  kgroup top --zookeeper localhost:2181
  kgroup top --interval 10
  kgroup top --once -o json""",
)
@target_options
@click.option(
    "--interval",
    type=FiniteRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two looks at the cluster.",
)
@click.option("--once", is_flag=True, help="Print one table and end, as without a terminal.")
@output_option
def command(target: Target, interval: float, once: bool, output: str) -> None:
    """Show all groups with their lag, and the messages that they consume a second.

    Keys sort by lag (l), rate (r) or name (n); Enter looks into a group: its partitions and their
    owners; q or Ctrl-C quits. The rate is known from the second look on. Where standard output is
    no terminal, or one that cannot go back (TERM=dumb), one table is printed.
    """
    is_live = not once and output == "table" and is_screen() and sys.stdin.isatty()
    if not is_live:
        snapshot = asyncio.run(look_once(target))
        rows = sorted_rows(snapshot.rows, "lag")
        show(Listing("top", COLUMNS, rows, snapshot.failures), output)
        return

    try:
        import rich.live  # noqa: F401
    except ImportError:
        raise CommandFailed(
            "kgroup top needs rich for its screen: pip install 'kgroup[cli]', or use --once"
        ) from None
    # Ctrl-C is a way to quit, as it is with --watch.
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(watch(target, interval))


async def look_once(target: Target) -> Snapshot:
    """Return the groups as they are now."""
    async with connected(target, needs_zookeeper=False, waits_for_dead=False) as sessions:
        return await look(sessions, Snapshot())


async def look(sessions: Sessions, before: Snapshot) -> Snapshot:
    """Read all groups; what cannot be read is in the failures."""
    reader = GroupReader(sessions, tails=before.tails)
    facts = await reader.groups([name.group for name in await reader.names()])
    logs = await reader.logs_of(facts)

    now_s = time.monotonic()
    rows = [
        group_row(group, logs, before.offsets.get(group.group), now_s - before.at_s)
        for group in facts
    ]
    groups = {group.group: group for group in facts}
    offsets = {group.group: offsets_of(group) for group in facts}
    return Snapshot(groups, logs, rows, offsets, now_s, reader.failures, reader.tails)


async def watch(target: Target, interval_s: float) -> None:
    """Show the groups until q, and react to keys while a look is in flight."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    screen = Screen(console.height, console.width)
    loop = asyncio.get_running_loop()

    async with connected(target, needs_zookeeper=False, waits_for_dead=False) as sessions:
        with single_keys(), Live(console=console, screen=True, auto_refresh=False) as live:

            def redraw() -> None:
                screen.height, screen.width = console.height, console.width
                live.update(screen.render(), refresh=True)

            def on_input() -> None:
                screen.read(os.read(sys.stdin.fileno(), READ_BYTES))
                redraw()

            loop.add_reader(sys.stdin.fileno(), on_input)
            loop.add_signal_handler(signal.SIGWINCH, redraw)
            looking = asyncio.create_task(keep_looking(sessions, screen, interval_s, redraw))
            try:
                redraw()
                await screen.ended.wait()
            finally:
                loop.remove_signal_handler(signal.SIGWINCH)
                loop.remove_reader(sys.stdin.fileno())
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)


async def keep_looking(
    sessions: Sessions, screen: "Screen", interval_s: float, redraw: Any
) -> None:
    """Look again and again; a failure is shown, and the last groups stay."""
    while True:
        try:
            screen.snapshot = await look(sessions, screen.snapshot)
        except KgroupError as error:
            screen.snapshot.failures = [Failure.of("cluster", error)]
        redraw()
        await asyncio.sleep(interval_s)


@attrs.define(eq=False)
class Screen:
    """The state of the screen: the last snapshot, and what the user chose."""

    height: int
    width: int
    snapshot: Snapshot = attrs.field(factory=Snapshot)
    view: View = attrs.field(factory=View)
    ended: asyncio.Event = attrs.field(factory=asyncio.Event)

    def read(self, typed: bytes) -> None:
        """Take the keys that came together; none at the end of the input."""
        for key in read_keys(typed.decode("utf-8", "replace")):
            self.view = press(self.view, key, self._rows(), self.height - OTHER_LINES)
        if self.view.ended or not typed:
            self.ended.set()

    def _rows(self) -> list[dict[str, Any]]:
        if self.view.group is None:
            return sorted_rows(self.snapshot.rows, self.view.order)
        group = self.snapshot.groups.get(self.view.group)
        if group is None:
            return []
        now_ms = int(time.time() * 1000)
        return offset_items(group, group.partitions, self.snapshot.logs, now_ms)

    def render(self) -> "Text":
        """Return the lines of the screen; only rows that fit are made into text."""
        from rich.text import Text

        rows = self._rows()
        shown, place = visible(
            rows, min(self.view.cursor, len(rows) - 1), self.height - OTHER_LINES
        )
        columns: Sequence[Column] = COLUMNS
        if self.view.group is not None:
            silent = {key for key in SOMETIMES if not any(row.get(key) for row in rows)}
            columns = [column for column in PARTITION_COLUMNS if column.key not in silent]

        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(self._fitted(self._title()) + "\n", "bold")
        for number, line in enumerate(table(columns, shown).splitlines()):
            style = "bold" if number == 0 else "reverse" if number == place + 1 else ""
            text.append(self._fitted(line) + "\n", style)

        for failure in self.snapshot.failures[:1]:
            error = f"error: {failure.what}: {failure.message}"
            text.append(self._fitted(error) + "\n", "red")
        text.append(self._fitted(HELP), "dim")
        return text

    def _title(self) -> str:
        view, snapshot = self.view, self.snapshot
        if not snapshot.at_s:
            return "reading all groups"
        if view.group is None:
            return f"{len(snapshot.rows)} groups by {view.order}"
        gone = "" if view.group in snapshot.groups else " is gone"
        return f"group {view.group}{gone}"

    def _fitted(self, line: str) -> str:
        """Return the line, or what fits of it: half a number would be another one."""
        line = plain(line)
        return line if len(line) < self.width else line[: self.width - 2] + "…"


@contextlib.contextmanager
def single_keys() -> Iterator[None]:
    """Have the terminal hand over each key at once, without showing it; Ctrl-C works as ever."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
