"""`kgroup verify-rebalance`: check that every partition has its owner, as Kafka's tool does."""

import asyncio

import attrs
import click

from clients.command_line.output import (
    Column,
    Failure,
    Listing,
    Target,
    is_table,
    output_option,
    show,
    target_options,
)
from clients.command_line.printing import say
from clients.command_line.sessions import require_one_cluster, zookeeper_session
from clients.groups.group_view import unknown_group
from clients.watching.rebalance_check import consumed_partitions, find_badly_owned
from groups.zookeeper.assignment import CLUSTERED
from groups.zookeeper.events import GroupProblem, GroupSnapshot
from groups.zookeeper.registration import StaticSubscription, find_strategy_conflict
from groups.zookeeper.tree import GroupTree
from protocol.errors import ErrorCode
from zk.api import WatchEvent
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
    """Check that each partition that GROUP consumes has one owner, and it is a registered stream.

    Prints the partitions without such an owner, and exits with code 1 if there are any. The
    command sees one moment: repeat it if the group was rebalancing.
    """
    if (name is None) == (group is None):
        raise click.UsageError("name exactly one group")
    if target.zookeeper is None:
        raise click.UsageError("--zookeeper is needed: the group's members register there")

    group_id = name or group or ""
    if not ConsumerGroup.can_hold(group_id):
        raise click.UsageError(f"{group_id!r} cannot be the name of a group in ZooKeeper")

    listing = asyncio.run(verify_group(target, group_id, target.zookeeper))

    # JSON and CSV have no room for the sentence of Kafka's tool.
    if not listing.errors and is_table(output):
        say("Rebalance operation successful !")
    show(listing, output)


async def verify_group(target: Target, group_id: str, zookeeper: str) -> Listing:
    """Return the partitions that do not have the owner they should have."""
    listing = Listing("verify-rebalance", COLUMNS, ())
    await require_one_cluster(target)

    async with zookeeper_session(zookeeper, target) as zk:
        if await zk.exists(ConsumerGroup.ids_path(group_id)) is None:
            text = (
                f"group '{group_id}' has had no members in ZooKeeper: "
                "kgroup describe shows all kinds of groups"
            )
            failure = attrs.evolve(unknown_group(group_id), message=text)
            return attrs.evolve(listing, errors=[failure])

        # Read the group as its members do; a subscription is not needed for that.
        tree = GroupTree(zk, group_id, "", StaticSubscription({}))
        group = await tree.read_group(_ignore, _ignore, _ignore)

        # Members that read such a group do not rebalance either.
        if isinstance(group, GroupProblem):
            return attrs.evolve(listing, errors=[_inconsistent(group_id, group.text)])
        if conflict := _find_conflict(group):
            return attrs.evolve(listing, errors=[_inconsistent(group_id, conflict)])

        partitions = consumed_partitions(group)
        items = find_badly_owned(group, await tree.read_owners(frozenset(partitions)))

    # Without members nothing is consumed, so nothing can be owned badly.
    if not group.members:
        say(f"Consumer group '{group_id}' has no active members.", err=True)

    # The words are those of Kafka's VerifyConsumerRebalance.
    text = f"Rebalance operation failed ! {len(items)} of {len(partitions)} partitions"
    # REBALANCE_IN_PROGRESS: a later look may find the group in order.
    failures = [Failure(group_id, ErrorCode.REBALANCE_IN_PROGRESS.name, text)] if items else []
    return attrs.evolve(
        listing, items=[{"group": group_id} | item for item in items], errors=failures
    )


def _inconsistent(group_id: str, problem: str) -> Failure:
    return Failure(group_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL.name, problem)


def _find_conflict(group: GroupSnapshot) -> str | None:
    """Return why the members compute no assignment: some are clustered, and others are not."""
    # Only a mixture is refused by both kinds of members.
    if find_strategy_conflict(group.members, group.strategies, "range") is None:
        return None
    return find_strategy_conflict(group.members, group.strategies, CLUSTERED)


def _ignore(event: WatchEvent) -> None:
    """Ignore the event: a single reading needs no watch."""
