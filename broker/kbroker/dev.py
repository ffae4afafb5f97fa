"""`kbroker dev`: a whole cluster on this machine."""

import asyncio
from functools import partial
from pathlib import Path

import click

from broker.kbroker.lifeline import run_until_stopped, stop_event
from broker.kbroker.local_cluster import LocalCluster, hold_directory
from clients.output import KeyValue

PORT = click.IntRange(0, 65535)


@click.command(
    "dev",
    epilog="""\b
Example:
  kbroker dev --brokers 2 --port 0 --zookeeper-port 0 --data /tmp/dev --set num.partitions=4""",
)
@click.option(
    "--brokers", type=click.IntRange(min=1), default=1, show_default=True, help="How many."
)
@click.option(
    "--port",
    type=PORT,
    default=9092,
    show_default=True,
    help="Of broker 0, the others follow; 0 is any free ones.",
)
@click.option(
    "--zookeeper-port",
    type=PORT,
    default=2181,
    show_default=True,
    help="Of the embedded ZooKeeper; 0 is any free one.",
)
@click.option(
    "--zookeeper", metavar="H:P[/CHROOT]", help="Use this ZooKeeper instead of an embedded one."
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("kbroker-data"),
    show_default=True,
    help="Directory of everything; the same one continues.",
)
@click.option(
    "--set", "settings", type=KeyValue(), multiple=True, help="A setting of every broker."
)
def command(
    brokers: int,
    port: int,
    zookeeper_port: int,
    zookeeper: str | None,
    data: Path,
    settings: tuple[tuple[str, str], ...],
) -> None:
    """Run ZooKeeper and brokers 0, 1, … until SIGINT or SIGTERM.

    When all are registered, a controller is elected and every broker answers, prints the one line
    `ready bootstrap=H:P[,H:P…] zookeeper=H:P data=DIR`. A broker that dies is named on stderr; the
    others live on.
    """
    cluster = LocalCluster(data.resolve(), brokers, port, zookeeper_port, zookeeper, dict(settings))
    asyncio.run(run(cluster))


async def run(cluster: LocalCluster) -> None:
    """Start the cluster, say so, and stop it when told to."""
    stop = stop_event()
    with hold_directory(cluster.directory):
        try:
            if await run_until_stopped(stop, cluster.start()):
                click.echo(
                    f"ready bootstrap={cluster.bootstrap} zookeeper={cluster.zookeeper} "
                    f"data={cluster.directory}"
                )
                await run_until_stopped(stop, cluster.watch(partial(click.echo, err=True)))
                await stop.wait()
        finally:
            await cluster.stop()
