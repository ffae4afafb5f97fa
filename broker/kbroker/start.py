"""`kbroker start`: run one broker from a Kafka `server.properties`."""

import asyncio
import contextlib
import gc
import logging
import os
import resource
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from broker.kbroker.lifeline import run_until_stopped, stop_event, stop_with_parent
from broker.kbroker.supervisor import Supervisor
from broker.process.freed_memory import keep_freed_memory
from broker.process.process_limits import log_files_limit
from broker.process.watchdog import TurnClock, Watchdog
from broker.server import Broker
from broker.settings.config import load_broker_config
from broker.settings.one_of_many import derive_settings
from clients.command_line.output import KeyValue, read_properties
from clients.command_line.printing import say
from core_log.meta_properties import META_PROPERTIES
from core_log.open_files import OPEN_FILES
from protocol.log_lines import SafeFormatter
from protocol.metrics import Metrics
from protocol.settings import SettingError

GC_THRESHOLDS = (20_000, 4, 600)
"""A request makes thousands of objects and no cycles: look for cycles seldom. What survives is
looked at twice, as new and as a hundred thousand together; with a million together the loop would
stand still for a quarter of a second whenever ten thousand partitions came."""

LOG_LINE = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
"""The format of Kafka's log4j.properties."""


@click.command(
    "start",
    epilog="""\b
Example:
  kbroker start server.properties --override broker.id=1 --override listeners=PLAINTEXT://:9093
  kbroker start server.properties --processes 4""",
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--override", type=KeyValue(), multiple=True, help="A setting that replaces the one in FILE."
)
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    help="Run so many brokers, whose ids, ports and directories count up from those in FILE.",
)
@click.option("--log-name", hidden=True, help="What the lines of the log begin with.")
@click.option("--with-parent", is_flag=True, hidden=True, help="Stop when standard input ends.")
def command(
    file: Path,
    override: tuple[tuple[str, str], ...],
    processes: int | None,
    log_name: str | None,
    with_parent: bool,
) -> None:
    """Run a broker from FILE, a server.properties of Kafka, or several with --processes.

    It prints `ready bootstrap=H:P` when it serves, and logs to stderr. SIGINT and SIGTERM start a
    controlled shutdown. Settings without effect are noted on stderr; unknown settings are errors.
    One of several brokers that dies is started again.
    """
    log_line = LOG_LINE if log_name is None else f"{log_name}: {LOG_LINE}"
    handler = logging.StreamHandler()
    handler.setFormatter(SafeFormatter(log_line))
    logging.basicConfig(handlers=[handler], level=logging.INFO)

    # At INFO kazoo reports every connection.
    logging.getLogger("kazoo").setLevel(logging.WARNING)

    raise_open_files_limit()
    if processes is not None:
        properties = read_properties(file) | dict(override)
        derived = derive_settings(properties, processes, socket.gethostname())
        refuse_single_brokers_data(derived)
        asyncio.run(supervise(Supervisor(file, derived, dict(override)), with_parent))
        return

    keep_freed_memory()

    # The clock is the loop's selector, so it sees each turn begin and end.
    clock = TurnClock()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(clock)) as runner:
        properties = read_properties(file) | dict(override)
        pid_file = None if with_parent else dev_pid_file(file, properties.get("log.dirs"))
        runner.run(serve(properties, with_parent, clock, pid_file))


def dev_pid_file(file: Path, log_dir: str | None) -> Path | None:
    """Return the file with the process id of a broker of `kbroker dev`, which is started by hand.

    None for any other broker: those of `dev` have their partitions beside their settings.
    """
    is_of_dev = log_dir is not None and Path(log_dir).resolve() == file.with_suffix("").resolve()
    return file.with_suffix(".pid") if is_of_dev else None


def refuse_single_brokers_data(derived: Sequence[Mapping[str, str]]) -> None:
    """Raise SettingError if a log directory has the partitions of a broker without siblings.

    Each of several brokers has a directory below it, so nobody would serve these partitions.
    """
    for path in derived[0]["log.dirs"].split(","):
        own = Path(path)
        if os.path.exists(own.parent / META_PROPERTIES):
            raise SettingError(
                "log.dirs",
                f"{own.parent} has the data of a single broker: move what is in it to {own}, "
                "or name another directory",
            )


def raise_open_files_limit() -> None:
    """Raise the soft limit of open files to the hard one, and share it out."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    OPEN_FILES.most = log_files_limit()
    OPEN_FILES.keep_spare()


def collect_cycles_seldom() -> None:
    """Exempt the objects of the start from garbage collection, and collect the others seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


async def supervise(supervisor: Supervisor, with_parent: bool) -> None:
    """Run brokers until a signal or the parent's end stops them."""
    stop = stop_event()
    if with_parent:
        stop_with_parent(stop)

    async def run() -> None:
        say(f"ready bootstrap={await supervisor.start()}")
        await supervisor.watch()

    try:
        await run_until_stopped(stop, run())
    finally:
        await supervisor.stop()


async def serve(
    properties: dict[str, str], with_parent: bool, clock: TurnClock, pid_file: Path | None
) -> None:
    """Run a broker until a signal or its parent's end stops it, on the loop with this clock.

    `pid_file` has its process id while it serves.
    """
    stop = stop_event()
    if with_parent:
        stop_with_parent(stop)

    # A note is no error: Kafka's own server.properties must start unchanged.
    config, notes = load_broker_config(properties)
    for note in notes:
        say(f"note: {note}", err=True)

    metrics = Metrics()
    clock.count_in(metrics)
    broker = Broker(config, metrics=metrics)
    with Watchdog(clock, config.event_loop_watchdog_ms):
        try:
            if await run_until_stopped(stop, broker.start()):
                # The objects of the start live as long as the broker.
                collect_cycles_seldom()
                # It has the process before this one (fault outside-O15).
                note_pid(pid_file)
                say(f"ready bootstrap={broker.bootstrap}")
                await broker.run_until(stop)
        finally:
            await broker.close()
            forget_pid(pid_file)


def note_pid(pid_file: Path | None) -> None:
    """Write the id of this process to the file."""
    if pid_file is not None:
        pid_file.write_text(f"{os.getpid()}\n")


def forget_pid(pid_file: Path | None) -> None:
    """Delete the file if it has this process: another one may get the id later."""
    if pid_file is None:
        return
    with contextlib.suppress(FileNotFoundError):
        if pid_file.read_text().strip() == str(os.getpid()):
            pid_file.unlink()
