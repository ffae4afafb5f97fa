"""`kbroker cluster`: brokers, controller, partitions in trouble."""

import asyncio
from typing import Any

import click

from broker.kbroker.topics import is_unavailable, is_under_replicated, topic_item
from clients.descriptions import ClusterDescription
from clients.output import Column, Listing, Target, output_option, show, target_options
from clients.sessions import connected
from protocol.topic_partition import TopicPartition
from zk.session import NoNode, ZkSession
from zk.znodes import ControllerEpoch

CLUSTER_COLUMNS = (
    Column("CLUSTER-ID"),
    Column("CONTROLLER"),
    Column("CONTROLLER-EPOCH"),
    Column("BROKERS"),
    Column("UNDER-REPLICATED"),
    Column("OFFLINE"),
)

BROKER_COLUMNS = (
    Column("BROKER", 10),
    Column("HOST", 15),
    Column("PORT", 8),
    Column("RACK", 10),
    Column("CONTROLLER"),
)

Item = dict[str, Any]


@click.group("cluster")
def command() -> None:
    """The cluster as a whole."""


@command.command(
    "describe",
    epilog="""\b
Example:
  kbroker cluster describe --zookeeper localhost:2181""",
)
@target_options
@output_option
def describe(target: Target, output: str) -> None:
    """Brokers, the controller, under-replicated and offline partitions.

    The controller's epoch is shown when --zookeeper is known: no request tells it.
    """
    item = asyncio.run(described(target))
    if output == "json":
        show(Listing("cluster", CLUSTER_COLUMNS, [item]), output)
    elif output == "csv":
        show(Listing("cluster", BROKER_COLUMNS, item["brokers"]), output)
    else:
        click.echo(summary(item))
        show(Listing("cluster", BROKER_COLUMNS, item["brokers"]), output)


async def described(target: Target) -> Item:
    """The cluster as one item of CLUSTER_COLUMNS."""
    async with connected(target) as sessions:
        cluster = await sessions.admin.describe_cluster()
        topics = await sessions.admin.describe_topics()
        epoch = None if sessions.zk is None else await controller_epoch(sessions.zk)
    partitions = [
        partition for topic in topics.values() for partition in topic_item(topic, {})["partitions"]
    ]
    return cluster_item(cluster, epoch, partitions)


async def controller_epoch(zk: ZkSession) -> int | None:
    """How many controllers there have been; None before the first."""
    try:
        data, _ = await zk.get(ControllerEpoch.path())
    except NoNode:
        return None
    return ControllerEpoch.decode(data).epoch


def cluster_item(cluster: ClusterDescription, epoch: int | None, partitions: list[Item]) -> Item:
    """`partitions` are all there are, as `topic_item` makes them."""

    def names(of: list[Item]) -> list[str]:
        return [str(TopicPartition(p["topic"], p["partition"])) for p in of]

    return {
        "cluster_id": cluster.cluster_id,
        "controller": cluster.controller_id if cluster.controller_id >= 0 else None,
        "controller_epoch": epoch,
        "brokers": [
            {
                "broker": broker.node_id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "controller": broker.node_id == cluster.controller_id,
            }
            for broker in cluster.brokers
        ],
        "under_replicated": names([p for p in partitions if is_under_replicated(p)]),
        "offline": names([p for p in partitions if is_unavailable(p)]),
    }


def summary(item: Item) -> str:
    """The lines above the table of brokers."""
    controller = "none" if item["controller"] is None else f"broker {item['controller']}"
    epoch = "" if item["controller_epoch"] is None else f", epoch {item['controller_epoch']}"
    lines = [f"Cluster: {item['cluster_id'] or '-'}", f"Controller: {controller}{epoch}"]
    for title, key in (("Under-replicated", "under_replicated"), ("Offline", "offline")):
        lines.append(f"{title} partitions: {', '.join(item[key]) or 'none'}")
    return "\n".join([*lines, ""])
