"""Reach a cluster in one of two ways: through its brokers, or through ZooKeeper.

With `--zookeeper` alone on the command line the command writes to ZooKeeper what the tools of
Kafka 0.8 to 2.3 write there, and the controller picks it up; no broker has to respond. In all
other cases the command sends requests to the brokers, which check more and report the result.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import click
from click.core import ParameterSource

from broker.kbroker.cluster_access import ClusterAccess
from broker.kbroker.over_brokers import OverBrokers
from broker.kbroker.over_zookeeper import OverZooKeeper
from clients.command_line.output import Target
from clients.command_line.sessions import connected


@asynccontextmanager
async def open_cluster(
    target: Target, *, waits_for_dead: bool = True
) -> AsyncIterator[ClusterAccess]:
    """Connect in the way that the current command line asks for. Raises as `connected`."""
    is_by_zookeeper = names_zookeeper_alone(click.get_current_context())
    if is_by_zookeeper:
        # The environment's brokers may be of another cluster, and are not asked.
        target = attrs.evolve(target, bootstrap=None)
    async with connected(
        target,
        brokers=not is_by_zookeeper,
        asks_brokers=not is_by_zookeeper,
        keeps_nodes=True,
        waits_for_dead=waits_for_dead,
    ) as sessions:
        if is_by_zookeeper:
            assert sessions.zk is not None
            yield OverZooKeeper(sessions.zk, target.timeout_ms)
        else:
            yield OverBrokers(sessions.admin)


def names_zookeeper_alone(context: click.Context) -> bool:
    """True if the command line itself names ZooKeeper and no broker; the environment may."""
    typed = ParameterSource.COMMANDLINE
    return (
        context.get_parameter_source("zookeeper") is typed
        and context.get_parameter_source("bootstrap_server") is not typed
    )
