"""`kbroker zookeeper`: run the embedded ZooKeeper alone."""

import asyncio
from pathlib import Path

import click

from broker.kbroker.lifeline import run_until_stopped, stop_event
from zk.embedded import EmbeddedZooKeeper


@click.command(
    "zookeeper",
    epilog="""\b
Example:
  kbroker zookeeper --port 2181 --data /tmp/zookeeper""",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=2181,
    show_default=True,
    help="Client port; 0 takes any free one.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Data directory; an existing one is continued.",
)
def command(port: int, data: Path) -> None:
    """Run a real ZooKeeper server on this machine.

    It prints `ready zookeeper=H:P` when it serves. SIGINT and SIGTERM stop it.
    """
    asyncio.run(serve(port, data))


async def serve(port: int, data: Path) -> None:
    """Run the server until SIGINT or SIGTERM."""
    stop = stop_event()
    zookeeper = EmbeddedZooKeeper(data, port)

    try:
        if await run_until_stopped(stop, zookeeper.start()):
            click.echo(f"ready zookeeper={zookeeper.connect_string}")
            await stop.wait()
    finally:
        # A start that was cut short may have left a process.
        await zookeeper.stop()
