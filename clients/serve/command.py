"""`kgroup serve`: watch all groups, and serve metrics, JSON and one page."""

import asyncio
import socket
from importlib.util import find_spec
from pathlib import Path

import click

from clients.command_line.command_group import CommandFailed
from clients.command_line.output import Target, target_options
from clients.command_line.sessions import connected
from clients.kgroup.events import Age
from clients.watching.group_watch import MAX_REQUESTS_PER_SECOND

PORT = 9308
INTERVAL_S = 10
_NEEDED = ("starlette", "uvicorn", "prometheus_client")


@click.command(
    "serve",
    epilog="""\b
Examples:
  kgroup serve
  kgroup serve --host 0.0.0.0 --port 9308 --compat burrow --keep 7d""",
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
@click.option("--data", type=click.Path(dir_okay=False, path_type=Path), help="File of history.")
@click.option("--keep", type=Age(), default="30d", show_default=True, help="Time to keep commits.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
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
    keeps them. It only reads. A cluster that is away does not end it: what was read last is shown
    with its age.
    """
    if any(find_spec(name) is None for name in _NEEDED):
        raise CommandFailed("serve needs an extra: pip install 'kgroup[serve]'")
    asyncio.run(
        serve(
            target,
            (host, port),
            data=data,
            keep_ms=keep,
            interval_s=interval,
            compat=compat,
            granularity=granularity,
            max_requests_per_second=max_requests_per_second,
        )
    )


async def serve(
    target: Target,
    address: tuple[str, int],
    *,
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
    from clients.serve.monitor import Monitor

    with _listen(*address) as listener:
        async with connected(target) as sessions:
            monitor = Monitor(sessions, data, keep_ms, interval_s, max_requests_per_second)
            app = make_app(App(monitor, target, compat, granularity))
            config = uvicorn.Config(app, log_level="warning", access_log=False)
            click.echo(f"serving http://{address[0]}:{listener.getsockname()[1]}/")
            await uvicorn.Server(config).serve([listener])


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise CommandFailed(
            f"{host}:{port}: {error.strerror or error}; choose another --port or --host"
        ) from None
