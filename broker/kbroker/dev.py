"""`kbroker dev`: run a whole cluster on this machine."""

import asyncio
from functools import partial
from pathlib import Path

import click

from broker.kbroker.lifeline import run_until_stopped, stop_event, stop_with_parent
from broker.kbroker.local_cluster import LocalCluster, hold_directory
from broker.kbroker.security_folder import ADMIN, ALICE, SecurityFolder
from broker.settings.endpoints import MAX_PORT
from broker.settings.one_of_many import METRICS_PORT
from clients.command_line.output import KeyValue
from clients.command_line.printing import say
from protocol.settings import convert

PORT = click.IntRange(0, MAX_PORT)


@click.command(
    "dev",
    epilog="""\b
Examples:
  kbroker dev --brokers 2 --port 0 --zookeeper-port 0 --data /tmp/dev --set num.partitions=4
  kbroker dev --secure --data /tmp/secured""",
)
@click.option(
    "--brokers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of brokers.",
)
@click.option(
    "--port",
    type=PORT,
    default=9092,
    show_default=True,
    help="Port of broker 0, the others take the next ones; 0 takes any free ports.",
)
@click.option(
    "--zookeeper-port",
    type=PORT,
    default=2181,
    show_default=True,
    help="Port of the embedded ZooKeeper; 0 takes any free one.",
)
@click.option(
    "--zookeeper", metavar="H:P[/CHROOT]", help="Use this ZooKeeper instead of an embedded one."
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("kbroker-data"),
    show_default=True,
    help="Directory of all data; an existing one is continued.",
)
@click.option(
    "--metrics-port",
    type=PORT,
    help="Port of broker 0 for Prometheus, the others take the next ones; 0 takes any free ports.",
)
@click.option(
    "--set", "settings", type=KeyValue(), multiple=True, help="A setting for every broker."
)
@click.option(
    "--secure",
    is_flag=True,
    help="Encrypt by TLS, have clients log in, and let ACLs decide; DIR/secure has their settings.",
)
@click.option("--with-parent", is_flag=True, hidden=True, help="Stop when standard input ends.")
def command(
    brokers: int,
    port: int,
    zookeeper_port: int,
    zookeeper: str | None,
    data: Path,
    metrics_port: int | None,
    settings: tuple[tuple[str, str], ...],
    secure: bool,
    with_parent: bool,
) -> None:
    """Run ZooKeeper and brokers 0, 1, … until SIGINT or SIGTERM.

    When every broker is registered and responds, and a controller is elected, it prints one line:
    `ready bootstrap=H:P[,H:P…] zookeeper=H:P data=DIR`. If a broker or ZooKeeper ends, stderr names
    it, and how to start it again; the others go on.

    With --secure the first start makes an authority, certificates and the users `admin`, who may do
    everything, and `alice`, who may do what ACLs allow. stderr names the files with the settings of
    clients, for --command-config and for programs.
    """
    if secure and zookeeper is not None:
        raise click.UsageError(
            "--secure needs the embedded ZooKeeper, which knows the brokers' login: leave out "
            "--zookeeper"
        )
    if port and port + brokers - 1 > MAX_PORT:
        raise click.UsageError(f"--port {port} leaves no port for each of {brokers} brokers")
    overrides = dict(settings)
    # As an option it counts up: brokers on one machine cannot share a port.
    given = overrides.pop(METRICS_PORT, None)
    if metrics_port is None and given not in (None, "0"):
        metrics_port = convert(METRICS_PORT, given, int)
    cluster = LocalCluster(
        data.resolve(), brokers, port, zookeeper_port, zookeeper, overrides, metrics_port, secure
    )
    asyncio.run(run(cluster, with_parent))


async def run(cluster: LocalCluster, with_parent: bool = False) -> None:
    """Start the cluster, print the ready line, and stop the cluster at a signal."""
    stop = stop_event()
    if with_parent:
        stop_with_parent(stop)

    # The lock is held to the end: children write here until they have stopped.
    with hold_directory(cluster.directory):
        try:
            if await run_until_stopped(stop, cluster.start()):
                say(
                    f"ready bootstrap={cluster.bootstrap} zookeeper={cluster.zookeeper} "
                    f"data={cluster.directory}"
                )
                for url in cluster.metrics_urls:
                    say(f"metrics {url}", err=True)
                if cluster.security is not None:
                    tell_of_clients(cluster.security)
                await run_until_stopped(stop, cluster.watch(partial(say, err=True)))

                # ZooKeeper goes on without brokers: they may be started again by hand.
                await stop.wait()
        finally:
            await cluster.stop()


def tell_of_clients(security: SecurityFolder) -> None:
    """Print on stderr where clients find their settings."""
    for user, rights in ((ADMIN, "may do everything"), (ALICE, "may do what ACLs allow")):
        say(f"{user} {rights}: settings in {security.settings_file(user)}", err=True)
        say(f"  for librdkafka: {security.librdkafka_file(user)}", err=True)
    say(f"commands that write to ZooKeeper: {security.zookeeper_file}", err=True)
