"""`kbroker start`: one broker from a Kafka `server.properties`."""

import asyncio
import ctypes
import gc
import logging
import resource
from pathlib import Path

import click

from broker.kbroker.lifeline import run_until_stopped, stop_event, stop_with_parent
from broker.lifecycle.watchdog import TurnClock, Watchdog
from broker.server import Broker
from broker.settings.config import load_broker_config
from clients.output import KeyValue, read_properties

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # of glibc's malloc.h
KEPT_BYTES = 32 * 1024 * 1024
"""Most freed memory that is kept between two requests; malloc allows no larger threshold."""

GC_THRESHOLDS = (50_000, 20, 50)
"""A request makes thousands of objects and no cycles: look for cycles seldom."""

LOG_LINE = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
"""As Kafka's log4j.properties has it."""


@click.command(
    "start",
    epilog="""\b
Example:
  kbroker start server.properties --override broker.id=1 --override listeners=PLAINTEXT://:9093""",
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--override", type=KeyValue(), multiple=True, help="A setting that counts instead of FILE's."
)
@click.option("--with-parent", is_flag=True, hidden=True, help="Stop when standard input ends.")
def command(file: Path, override: tuple[tuple[str, str], ...], with_parent: bool) -> None:
    """Run one broker from a server.properties FILE of Kafka's.

    Prints `ready bootstrap=H:P` when it serves; its log goes to stderr. SIGINT and SIGTERM shut
    it down in good order. Settings that have no effect here are noted on stderr; unknown ones are
    refused.
    """
    logging.basicConfig(format=LOG_LINE, level=logging.INFO)
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    allow_open_files()
    keep_freed_memory()
    clock = TurnClock()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(clock)) as runner:
        runner.run(serve(read_properties(file) | dict(override), with_parent, clock))


def allow_open_files() -> None:
    """Take all the open files this process may have: each active segment is three of them."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def keep_freed_memory() -> None:
    """Have malloc reuse the memory of large requests instead of returning it each time.

    A fresh megabyte costs some 250 page faults, more than everything else that is done with a
    produced megabyte. Where there is no glibc nothing happens.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
            mallopt(option, KEPT_BYTES)
        mallopt(M_TOP_PAD, KEPT_BYTES // 2)


def seldom_look_for_cycles() -> None:
    """Leave what has been made so far alone, and look at the rest seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


async def serve(properties: dict[str, str], with_parent: bool, clock: TurnClock) -> None:
    """Run a broker until it is told to stop, on the loop that has this clock."""
    stop = stop_event()
    if with_parent:
        stop_with_parent(stop)
    config, notes = load_broker_config(properties)
    for note in notes:
        click.echo(f"note: {note}", err=True)
    broker = Broker(config)
    with Watchdog(clock, config.event_loop_watchdog_ms):
        try:
            if await run_until_stopped(stop, broker.start()):
                seldom_look_for_cycles()
                click.echo(f"ready bootstrap={broker.bootstrap}")
                await broker.run_until(stop)
        finally:
            await broker.close()
