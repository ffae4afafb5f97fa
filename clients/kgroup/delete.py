"""`kgroup delete`: delete groups and all their committed offsets."""

import asyncio
from collections.abc import Iterable, Sequence

import attrs
import click

from clients.command_line.interrupts import heeding_interrupts
from clients.command_line.output import (
    Column,
    Failure,
    Listing,
    Target,
    output_option,
    show,
    target_options,
)
from clients.command_line.printing import say
from clients.command_line.sessions import Sessions, connected
from clients.errors import KgroupError
from clients.groups.group_reader import GroupReader
from clients.groups.group_view import unknown_group
from clients.resets.group_copy import find_unfinished_migration, is_migrated
from groups.zookeeper.deletion import check_empty, delete_group
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
@click.option("--all-groups", is_flag=True, help="Delete all groups that have no members.")
@output_option
def command(
    target: Target,
    groups: tuple[str, ...],
    more_groups: tuple[str, ...],
    all_groups: bool,
    output: str,
) -> None:
    """Delete GROUPS that have no members, with all their offsets.

    A group is deleted wherever the given addresses lead: at its coordinator, in ZooKeeper, or in
    both. With --zookeeper alone, brokers keep their offsets. A group that one of them cannot
    delete is deleted nowhere: it has members in ZooKeeper, which its coordinator cannot see, or at
    its coordinator, or a migration of its offsets is in progress. Prints where each group was
    deleted.
    """
    # A group that is named twice is deleted once.
    group_ids = tuple(dict.fromkeys((*groups, *more_groups)))
    if bool(group_ids) == all_groups:
        raise click.UsageError("name at least one group, or use --all-groups, and not both")

    # Addresses may be the environment's (fault strangers-145, was: check_names(target, group_ids)).
    target = without_impossible_zookeeper(target, group_ids)
    show(asyncio.run(delete_groups(target, None if all_groups else group_ids)), output)


def check_names(target: Target, names: Iterable[str]) -> None:
    """Raise UsageError for a name whose path in ZooKeeper would be that of another node."""
    for name in names:
        # `/` and `..` would lead to another node.
        if target.zookeeper is not None and not ConsumerGroup.can_hold(name):
            raise click.UsageError(
                f"{name!r} cannot be a name in ZooKeeper: leave out --zookeeper and "
                "KGROUP_ZOOKEEPER, or correct it"
            )


def without_impossible_zookeeper(target: Target, groups: Sequence[str]) -> Target:
    """Return where to look for these groups: not in ZooKeeper if it can have none of them.

    Raises UsageError where it can have some of them, or where nothing else is left to look.
    """
    impossible = [name for name in groups if not ConsumerGroup.can_hold(name)]
    if target.zookeeper is None or target.bootstrap is None or not impossible:
        check_names(target, groups)
        return target
    if len(impossible) < len(groups):
        raise click.UsageError(
            f"{impossible[0]!r} cannot be a name in ZooKeeper, as others here can: name it in a "
            "command of its own"
        )
    return attrs.evolve(target, zookeeper=None)


async def delete_groups(target: Target, group_ids: Sequence[str] | None) -> Listing:
    """Delete the groups one by one, all for None.

    The listing has a failure for each that cannot be deleted.
    """
    items = []
    failures: list[Failure] = []
    has_brokers = target.bootstrap is not None

    async with connected(target, brokers=has_brokers) as sessions:
        reader = GroupReader(sessions)
        if group_ids is None and has_brokers:
            group_ids = [name.group for name in await reader.names()]
        elif group_ids is None:
            group_ids = sorted(await reader.zookeeper_names())
        failures += reader.failures

        with heeding_interrupts(several=len(group_ids) > 1) as interrupts:
            for group_id in interrupts.until_asked(group_ids):
                stores, errors = await delete_from_stores(
                    sessions, group_id, has_brokers=has_brokers
                )
                items += [{"group": group_id, "store": store} for store in stores]
                failures += errors
                if stores:
                    interrupts.say(f"deleted: {group_id} in {' and '.join(stores)}")

                # Neither store knows the group.
                if not stores and not errors:
                    failures.append(unknown_group(group_id))
        failures += interrupts.not_done

    return Listing("delete", COLUMNS, items, failures)


async def delete_from_stores(
    sessions: Sessions, group_id: str, *, has_brokers: bool
) -> tuple[list[str], list[Failure]]:
    """Return the stores that the group was deleted from, and the failures.

    A store that does not know the group is in neither. Where one store cannot let go of the group,
    neither does: its members may follow a migration, and go on from the offsets of either.
    """
    has_migration = False
    # A coordinator cannot see the members that register in ZooKeeper.
    if sessions.zk is not None:
        try:
            # Its members may be in any two modes (fault strangers-108, was: None).
            unfinished = await find_unfinished_migration(sessions, group_id)
            if unfinished is not None:
                return [], [unfinished]
            has_migration = await is_migrated(sessions, group_id)
            await check_empty(sessions.zk, group_id)
        # It has, or may have, members in ZooKeeper. They need Kafka's offsets.
        except (ApiError, KgroupError, ZkError) as error:
            return [], [Failure.of(f"{group_id} in zookeeper", error)]

    stores: list[str] = []
    if has_brokers:
        refusal = await _delete_at_coordinator(sessions, group_id)
        # GROUP_ID_NOT_FOUND is no failure: the group may be in ZooKeeper alone.
        if refusal is None:
            stores.append("kafka")
        elif not (isinstance(refusal, ApiError) and refusal.code is ErrorCode.GROUP_ID_NOT_FOUND):
            return [], [Failure.of(f"{group_id} in kafka", refusal)]

    if sessions.zk is not None:
        try:
            # Kafka's offsets may stay, and then members must find them.
            if await delete_group(sessions.zk, group_id, with_migration=has_brokers):
                stores.insert(0, "zookeeper")
        except (ApiError, KgroupError, ZkError) as error:
            return stores, [Failure.of(f"{group_id} in zookeeper", error)]

    if has_migration and has_brokers:
        say(f"note: {group_id}: its migration is deleted with it", err=True)
    elif has_migration:
        say(f"note: {group_id}: its migration stays, as do its offsets in Kafka", err=True)
    return stores, []


async def _delete_at_coordinator(sessions: Sessions, group_id: str) -> Exception | None:
    try:
        refusal = (await sessions.admin.delete_groups([group_id]))[group_id]
    except KgroupError as error:
        return error
    if isinstance(refusal, ApiError) and refusal.code is ErrorCode.NON_EMPTY_GROUP:
        text = f"group '{group_id}' has members at its coordinator: stop them"
        return ApiError(refusal.code, text)
    return refusal
