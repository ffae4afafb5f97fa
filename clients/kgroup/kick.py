"""`kgroup kick`: remove members from a group at its coordinator (KIP-345, LeaveGroup 3)."""

import asyncio
from collections.abc import Sequence

import click

from clients.admin.descriptions import GroupMemberId
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
from clients.command_line.sessions import Sessions, connected
from clients.errors import KgroupError
from clients.groups.group_reader import GroupReader

COLUMNS = (Column("GROUP", 30), Column("MEMBER", 50), Column("INSTANCE", 20))

DEFAULT_REASON = "member was removed by an admin"
"""What Kafka's admin client says; coordinators log it, and `kgroup events` shows it."""


@click.command(
    "kick",
    epilog="""\b
Examples:
  kgroup kick analytics --instance host-7 --reason 'host-7 is gone for good'
  kgroup kick analytics --member consumer-1-1f2e3d4c --member consumer-2-5b6a7988
  kgroup kick analytics --all""",
)
@target_options
@click.argument("group")
@click.option("--member", "members", multiple=True, metavar="ID", help="Remove this member.")
@click.option(
    "--instance",
    "instances",
    multiple=True,
    metavar="ID",
    help="Remove the static member with this group.instance.id.",
)
@click.option("--all", "removes_all", is_flag=True, help="Remove all members.")
@click.option(
    "--reason", default=DEFAULT_REASON, show_default=True, help="Why, for logs and events."
)
@output_option
def command(
    target: Target,
    group: str,
    members: tuple[str, ...],
    instances: tuple[str, ...],
    removes_all: bool,
    reason: str,
    output: str,
) -> None:
    """Remove members from GROUP, whose coordinator keeps them; the others share what they had.

    A consumer that lives joins again. A static member that is gone would keep its partitions until
    its session ends: this is how to end it now. Prints the members that were removed.
    """
    if removes_all == bool(members or instances):
        raise click.UsageError("name members with --member or --instance, or remove --all")

    wanted = [GroupMemberId(member) for member in members]
    wanted += [GroupMemberId("", instance) for instance in instances]
    show(asyncio.run(remove_members(target, group, wanted, reason)), output)


async def remove_members(
    target: Target, group_id: str, wanted: Sequence[GroupMemberId], reason: str
) -> Listing:
    """Remove these members, or all if none are named. Failures are of single members."""
    async with connected(target, needs_zookeeper=False) as sessions:
        if not wanted:
            description = (await sessions.admin.describe_groups([group_id]))[group_id]
            wanted = [
                GroupMemberId(member.member_id, member.group_instance_id)
                for member in description.group.members
            ]
            if not wanted:
                failure = Failure(group_id, "NoMembers", await explain_absence(sessions, group_id))
                return Listing("kick", COLUMNS, [], [failure])
        try:
            # In one request, so that the group rebalances once: what it did is waited for.
            with heeding_interrupts():
                verdicts = await sessions.admin.remove_group_members(group_id, wanted, reason)
        except KgroupError as error:
            return Listing("kick", COLUMNS, [], [Failure.of(group_id, error)])

    items = [
        {"group": group_id, "member": member.member_id or None, "instance": member.instance_id}
        for member, error in verdicts.items()
        if error is None
    ]
    failures = [
        Failure.of(member.member_id or str(member.instance_id), error)
        for member, error in verdicts.items()
        if error is not None
    ]
    return Listing("kick", COLUMNS, items, failures)


async def explain_absence(sessions: Sessions, group_id: str) -> str:
    """Say why a coordinator has no members of a group, and where it may have some."""
    facts = await GroupReader(sessions).group_in_zookeeper(group_id)
    if facts.members:
        return "its members are in ZooKeeper, where each ends with its process or its session"
    return "the group has no members"
