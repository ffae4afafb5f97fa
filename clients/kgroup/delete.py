"""`kgroup delete`: groups, and what they have committed."""

import asyncio
from collections.abc import Iterable, Sequence

import click

from clients.errors import KgroupError
from clients.kgroup.describe import missing
from clients.output import Column, Failure, Listing, Target, output_option, show, target_options
from clients.sessions import Sessions, connected
from groups.zookeeper.deletion import delete_group
from protocol.errors import ApiError, ErrorCode
from zk.api import ZkError
from zk.znodes import ConsumerGroup

COLUMNS = (Column("GROUP", 30), Column("STORE"))


@click.command(
    "delete",
    epilog="""\b
Examples:
  kgroup delete analytics reports
  kgroup delete analytics --zookeeper localhost:2181 -b localhost:9092
  kgroup --bootstrap-server localhost:9092 --delete --group analytics""",
)
@target_options
@click.argument("groups", nargs=-1)
@click.option("--group", "more_groups", multiple=True, help="A group, as Kafka spells it.")
@output_option
def command(
    target: Target, groups: tuple[str, ...], more_groups: tuple[str, ...], output: str
) -> None:
    """Delete GROUPS that have no members, with all their offsets.

    Each is deleted where the addresses given lead to: with its coordinator, in ZooKeeper, or in
    both; --zookeeper alone leaves what brokers keep. A group with members in ZooKeeper, whom no
    coordinator can see, is left alone in both. Prints where each group was deleted.
    """
    wanted = tuple(dict.fromkeys((*groups, *more_groups)))
    if not wanted:
        raise click.UsageError("name GROUPS")
    check_names(target, wanted)
    show(asyncio.run(deleted(target, wanted)), output)


def check_names(target: Target, names: Iterable[str]) -> None:
    """Raises UsageError for a name that would lead to other nodes of ZooKeeper than it should."""
    for name in names:
        if target.zookeeper is not None and not ConsumerGroup.can_hold(name):
            raise click.UsageError(f"{name!r} cannot be in ZooKeeper: leave out --zookeeper")


async def deleted(target: Target, groups: Sequence[str]) -> Listing:
    """Delete one group after the other; what could not be deleted is named."""
    items, failures = [], []
    has_brokers = target.bootstrap is not None
    async with connected(target, brokers=has_brokers) as sessions:
        for group in groups:
            stores, failed = await _delete(sessions, group, has_brokers=has_brokers)
            items += [{"group": group, "store": store} for store in stores]
            failures += failed
            if not stores and not failed:
                failures.append(missing(group))
    return Listing("delete", COLUMNS, items, failures)


async def _delete(
    sessions: Sessions, group: str, *, has_brokers: bool
) -> tuple[list[str], list[Failure]]:
    """Where the group was deleted, and where it could not be; where it is not says nothing."""
    stores: list[str] = []
    if sessions.zk is not None:
        try:
            if await delete_group(sessions.zk, group):
                stores.append("zookeeper")
        except (ApiError, ZkError) as error:  # with members, or perhaps: Kafka's offsets are theirs
            return stores, [Failure.of(f"{group} in zookeeper", error)]
    if has_brokers:
        try:
            verdict: Exception | None = (await sessions.admin.delete_groups([group]))[group]
        except KgroupError as error:
            verdict = error
        if verdict is None:
            stores.append("kafka")
        elif not (isinstance(verdict, ApiError) and verdict.code is ErrorCode.GROUP_ID_NOT_FOUND):
            return stores, [Failure.of(f"{group} in kafka", verdict)]
    return stores, []
