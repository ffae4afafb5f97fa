"""`kgroup serve`: watch all groups, and serve metrics, JSON and one page."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterable
from functools import partial
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

import click

from clients.command_line.command_group import CommandFailed
from clients.command_line.finite_range import FiniteRange
from clients.command_line.output import Target, target_options
from clients.command_line.printing import say
from clients.command_line.sessions import connecting
from clients.kgroup.events import Age
from clients.watching.group_watch import MAX_REQUESTS_PER_SECOND
from protocol.log_lines import SafeFormatter
from protocol.port_holder import explain_refusal

if TYPE_CHECKING:
    from types import FrameType

    from uvicorn import Server

    from clients.serve.write_access import WriteAccess

PORT = 9308
INTERVAL_S = 10
TOKEN_VARIABLE = "KGROUP_SERVE_TOKEN"
LAST_S = 5
"""Time for responses that are being made when it ends."""
LOG_CONFIG = {
    "version": 1,
    "disable_existing_loggers": False,
    # Tracebacks have names of groups, too.
    "formatters": {"safe": {"()": SafeFormatter, "fmt": "%(levelname)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "safe"}},
    "loggers": {"uvicorn": {"handlers": ["stderr"], "propagate": False}},
}
"""How uvicorn logs."""
_NEEDED = ("starlette", "uvicorn", "prometheus_client")


@click.command(
    "serve",
    epilog="""\b
Examples:
  kgroup serve
  kgroup serve --host 0.0.0.0 --port 9308 --compat burrow --keep 7d
  kgroup serve --allow-writes --token-file ~/.config/kgroup/serve.token""",
)
@target_options
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="Port to listen on; 0 is any.",
)
@click.option(
    "--allow-writes",
    is_flag=True,
    help="Let those who have the token reset groups, and undo that.",
)
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help=f"File with the token for --allow-writes.  [env: {TOKEN_VARIABLE}, the token itself]",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Name under which browsers reach this server, as that of a proxy.",
)
@click.option("--data", type=click.Path(dir_okay=False, path_type=Path), help="File of history.")
@click.option("--keep", type=Age(), default="30d", show_default=True, help="Time to keep commits.")
@click.option(
    "--interval",
    type=FiniteRange(min=0.1),
    default=INTERVAL_S,
    show_default=True,
    metavar="SEC",
    help="Time between two looks.",
)
@click.option(
    "--compat",
    type=click.Choice(["lag-exporter", "kminion", "burrow"]),
    multiple=True,
    help="Serve the metrics under another exporter's names too.",
)
@click.option(
    "--granularity",
    type=click.Choice(["partition", "group"]),
    help="Series of partitions or of groups.  [default: partition, up to 1,000 groups]",
)
@click.option(
    "--max-requests-per-second",
    type=click.IntRange(min=1),
    default=MAX_REQUESTS_PER_SECOND,
    show_default=True,
    help="Groups asked in a second, in ZooKeeper, or where __consumer_offsets is not readable.",
)
def command(
    target: Target,
    host: str,
    port: int,
    allow_writes: bool,
    token_file: Path | None,
    hosts: tuple[str, ...],
    data: Path | None,
    keep: int,
    interval: float,
    compat: tuple[str, ...],
    granularity: str | None,
    max_requests_per_second: int,
) -> None:
    """Watch all groups, and serve what is seen until Ctrl-C.

    /metrics is for Prometheus, /api/v1/… is JSON, and / is a page for people. Groups are read from
    __consumer_offsets, and from ZooKeeper where it is given; commits are kept as `kgroup record`
    keeps them. It only reads, unless --allow-writes and a token are given. Brokers or a ZooKeeper
    that are away, also at the start, do not end it: what was read last is shown with its age.
    """
    if any(find_spec(name) is None for name in _NEEDED):
        raise CommandFailed("serve needs an extra: pip install 'kgroup[serve]'")
    if token_file is not None and not allow_writes:
        raise click.UsageError("--token-file is for --allow-writes")

    names = known_names({host, *hosts})
    serving = serve(
        target,
        (host, port),
        access=read_access(token_file, names) if allow_writes else None,
        hosts=names,
        data=data,
        keep_ms=keep,
        interval_s=interval,
        compat=compat,
        granularity=granularity,
        max_requests_per_second=max_requests_per_second,
    )
    # Ctrl-C is the way to end it, which uvicorn raises again when it has closed.
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serving)


def known_names(hosts: Iterable[str]) -> frozenset[str]:
    """Return the names by which this server is reached, in lower case; the machine's is one."""
    return frozenset(name.lower() for name in (*hosts, socket.gethostname()))


def read_access(token_file: Path | None, hosts: frozenset[str]) -> "WriteAccess":
    """Return who may write. Raises UsageError without a token that nobody guesses, OSError."""
    from clients.serve.write_access import MIN_TOKEN_LENGTH, WriteAccess, is_token

    if token_file is not None:
        # No token has other bytes than ASCII.
        token = token_file.read_bytes().decode("latin-1").strip()
    else:
        token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not is_token(token):
        has = (
            f"{token_file or TOKEN_VARIABLE} has no token of {MIN_TOKEN_LENGTH} characters or more"
        )
        raise click.UsageError(
            f"--allow-writes needs a token, and {has}: make one with "
            "(umask 077; python3 -c 'import secrets; print(secrets.token_urlsafe(32))' > FILE) "
            "and give --token-file FILE"
        )
    return WriteAccess(token, hosts)


async def serve(
    target: Target,
    address: tuple[str, int],
    *,
    access: "WriteAccess | None",
    hosts: frozenset[str],
    data: Path | None,
    keep_ms: int,
    interval_s: float,
    compat: tuple[str, ...],
    granularity: str | None,
    max_requests_per_second: int,
) -> None:
    """Serve until a signal."""
    import uvicorn

    from clients.serve.app import App, make_app
    from clients.serve.connections import ACCEPTED_AT_ONCE, BoundedConnection
    from clients.serve.monitor import Monitor

    with _listen(*address) as listener:
        async with connecting(target) as sessions:
            monitor = Monitor(sessions, data, keep_ms, interval_s, max_requests_per_second)
            is_local = ip_address(listener.getsockname()[0]).is_loopback
            app = make_app(App(monitor, target, compat, granularity, access, hosts, is_local))
            config = uvicorn.Config(
                app,
                log_config=LOG_CONFIG,
                http=BoundedConnection,
                ws="none",
                # A warning is a line for each bad request of anybody.
                log_level="error",
                access_log=False,
                backlog=ACCEPTED_AT_ONCE,
                timeout_graceful_shutdown=LAST_S,
            )
            say(f"serving http://{address[0]}:{listener.getsockname()[1]}/")
            server = uvicorn.Server(config)
            # The second Ctrl-C would end the monitor in the midst of its end, with a traceback.
            server.handle_exit = partial(end_once, server)  # type: ignore[method-assign]
            await server.serve([listener])


def end_once(server: "Server", number: int, frame: "FrameType | None") -> None:
    """Let a server end at the first signal; the same again changes nothing."""
    if not server.should_exit:
        type(server).handle_exit(server, number, frame)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise CommandFailed(
            f"{host}:{port}: {explain_refusal(error, port)} (--port, --host)"
        ) from None
