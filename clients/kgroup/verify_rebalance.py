"""`kgroup verify-rebalance`: whether every partition has its owner; Kafka's tool of that name."""

import asyncio

import attrs
import click

from clients.kgroup.describe import missing
from clients.output import Column, Failure, Listing, Target, output_option, show, target_options
from clients.rebalance_check import badly_owned, consumed_partitions
from clients.sessions import zookeeper_session
from groups.zookeeper.assignment import CLUSTERED
from groups.zookeeper.events import GroupProblem, GroupSnapshot
from groups.zookeeper.registration import StaticSubscription
from groups.zookeeper.tree import GroupTree
from protocol.errors import ErrorCode
from zk.api import WatchEvent, ZkSession
from zk.znodes import ConsumerGroup

COLUMNS = (
    Column("GROUP", 15),
    Column("TOPIC", 15),
    Column("PARTITION", 10),
    Column("OWNER", 15),
    Column("PROBLEM"),
)


@click.command(
    "verify-rebalance",
    epilog="""\b
Examples:
  kgroup verify-rebalance analytics --zookeeper localhost:2181
  kgroup verify-rebalance --zookeeper.connect localhost:2181 --group analytics""",
)
@target_options
@click.argument("name", metavar="GROUP", required=False)
@click.option("--group", help="The group, as Kafka's VerifyConsumerRebalance spells it.")
@output_option
def command(target: Target, name: str | None, group: str | None, output: str) -> None:
    """Whether each partition that GROUP consumes is owned once, by a registered stream.

    Prints the partitions of which that is not so, and ends with exit code 1 if there are any. It
    sees one moment: during a rebalance, ask again.
    """
    if (name is None) == (group is None):
        raise click.UsageError("name one GROUP")
    if target.zookeeper is None:
        raise click.UsageError("--zookeeper is needed: the group's members meet there")
    listing = asyncio.run(verified(target, name or group or "", target.zookeeper))
    if not listing.errors and output in ("table", "wide"):
        click.echo("Rebalance operation successful !")
    show(listing, output)


async def verified(target: Target, group: str, zookeeper: str) -> Listing:
    """The partitions without the owner they should have."""
    found = Listing("verify-rebalance", COLUMNS, ())
    async with zookeeper_session(zookeeper, target) as zk:
        if await zk.exists(ConsumerGroup.ids_path(group)) is None:
            return attrs.evolve(found, errors=[missing(group)])
        tree, read = await _read(zk, group)
        if isinstance(read, GroupProblem):
            problem = Failure(group, ErrorCode.INCONSISTENT_GROUP_PROTOCOL.name, read.text)
            return attrs.evolve(found, errors=[problem])
        partitions = consumed_partitions(read)
        items = badly_owned(read, await tree.read_owners(frozenset(partitions)))
    if not read.members:
        click.echo(f"Consumer group '{group}' has no active members.", err=True)
    text = f"Rebalance operation failed ! {len(items)} of {len(partitions)} partitions"
    failures = [Failure(group, ErrorCode.REBALANCE_IN_PROGRESS.name, text)] if items else []
    return attrs.evolve(found, items=[{"group": group} | item for item in items], errors=failures)


async def _read(zk: ZkSession, group: str) -> tuple[GroupTree, GroupSnapshot | GroupProblem]:
    """The group as its members read it, whichever of the strategies that show they have."""
    for strategy in ("range", CLUSTERED):
        tree = GroupTree(zk, group, "", StaticSubscription({}), strategy=strategy)
        read = await tree.read_group(_ignore, _ignore, _ignore)
        if not (isinstance(read, GroupProblem) and read.conflict):
            break
    return tree, read


def _ignore(event: WatchEvent) -> None:
    """One reading needs no watch."""
