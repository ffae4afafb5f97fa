"""`kgroup describe`: show the owners, committed offsets and lag of groups."""

import asyncio
import time
from collections.abc import Iterable, Sequence

import attrs
import click

from clients.group_facts import GroupFacts
from clients.group_reader import GroupReader
from clients.group_view import (
    MEMBER_COLUMNS,
    OFFSET_COLUMNS,
    OUR_MEMBER_COLUMNS,
    STATE_COLUMNS,
    member_items,
    offset_items,
    remark,
    state_item,
)
from clients.output import Failure, Listing, Target, output_option, show, target_options
from clients.sessions import connected
from clients.topic_scope import TopicScope
from protocol.errors import ErrorCode


class Scope(click.ParamType):  # type: ignore[type-arg]
    """Kafka's `topic` or `topic:0,1,2`."""

    name = "t[:p,…]"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> TopicScope:
        """Read the scope. Raises UsageError for a partition that is not a number."""
        # click also passes values that are converted already.
        if isinstance(value, TopicScope):
            return value

        topic, colon, numbers = str(value).partition(":")
        if not colon:
            return TopicScope(topic)
        if not all(number.strip().isdecimal() for number in numbers.split(",")):
            self.fail(f"{value!r} is not topic or topic:partition,…", param, ctx)
        return TopicScope(topic, frozenset(map(int, numbers.split(","))))


@click.command(
    "describe",
    epilog="""\b
Examples:
  kgroup describe analytics --zookeeper localhost:2181
  kgroup describe --all-groups --topic flights:0,1 -o json
  kgroup --bootstrap-server localhost:9092 --describe --group analytics --members --verbose""",
)
@target_options
@click.argument("groups", nargs=-1)
@click.option("--group", "more_groups", multiple=True, help="A group, as Kafka spells it.")
@click.option("--all-groups", is_flag=True, help="Describe all groups.")
@click.option(
    "--topic", "topics", type=Scope(), multiple=True, help="Only these topics or partitions."
)
@click.option("--offsets", is_flag=True, help="Show partitions, which is the default.")
@click.option("--members", is_flag=True, help="Show members, not partitions.")
@click.option("--state", is_flag=True, help="Show the state of the group.")
@click.option(
    "--verbose",
    is_flag=True,
    help="Show more columns: those of -o wide, or the members' assignments.",
)
@output_option
def command(
    target: Target,
    groups: tuple[str, ...],
    more_groups: tuple[str, ...],
    all_groups: bool,
    topics: tuple[TopicScope, ...],
    offsets: bool,
    members: bool,
    state: bool,
    verbose: bool,
    output: str,
) -> None:
    """Show each partition of GROUPS with its owner, committed offset and lag.

    Groups whose members register in ZooKeeper need --zookeeper to be seen. A group that has only
    committed offsets is shown too. --verbose adds the owner's stream, the offsets in both stores
    (ZK-OFFSET, KAFKA-OFFSET), the one that WINS, and DIVERGED where the two should be equal and
    are not. To --state it adds the store of the members' offsets (STORAGE), if they publish it.
    With --members, --verbose adds each member's assignment, as Kafka's tool does, and -o wide also
    its number of streams and its subscription.
    """
    group_ids = (*groups, *more_groups)
    if bool(group_ids) == all_groups:
        raise click.UsageError("name at least one group, or use --all-groups")
    if offsets + members + state > 1:
        raise click.UsageError("give one of --offsets, --members and --state")
    view = "members" if members else "state" if state else "offsets"

    listing = asyncio.run(describe_groups(target, None if all_groups else group_ids, topics, view))

    # Kafka's --verbose adds the assignment alone; our columns are for -o wide.
    if view == "members" and output == "table":
        listing = attrs.evolve(listing, columns=MEMBER_COLUMNS)
    show(listing, output, verbose=verbose)


async def describe_groups(
    target: Target, group_ids: Sequence[str] | None, topics: Sequence[TopicScope], view: str
) -> Listing:
    """Return the listing of one view of the groups; None for all groups."""
    async with connected(target) as sessions:
        reader = GroupReader(sessions)
        if group_ids is None:
            group_ids = [name.group for name in await reader.names()]

        # A group that is named twice is shown once.
        facts = await reader.groups(dict.fromkeys(group_ids))
        groups = [group for group in facts if group.exists]

        # A group that could not be read is a failure, not an unknown group.
        unreadable = {failure.what for failure in reader.failures}
        reader.failures += [
            unknown_group(group.group)
            for group in facts
            if not group.exists and group.group not in unreadable
        ]

        # Kafka's tool prints its remarks on stderr.
        for group in groups:
            if text := remark(group):
                click.echo(text, err=True)
        return await VIEWS[view](reader, groups, topics)


def unknown_group(group_id: str) -> Failure:
    """Return the failure for a group that does not exist, in Kafka's words."""
    return Failure(
        group_id, ErrorCode.GROUP_ID_NOT_FOUND.name, f"Consumer group '{group_id}' does not exist."
    )


async def offsets_view(
    reader: GroupReader, groups: Iterable[GroupFacts], topics: Sequence[TopicScope]
) -> Listing:
    """Return a row for each partition."""
    # Partitions outside the scopes need no request to their leaders.
    shown = {
        group.group: {
            partition
            for partition in group.partitions
            if not topics or any(scope.holds(partition) for scope in topics)
        }
        for group in groups
    }

    logs = await reader.log_offsets(sorted(set().union(*shown.values())))
    # One time for all rows, so that ages can be compared.
    now_ms = int(time.time() * 1000)
    items = [
        item for group in groups for item in offset_items(group, shown[group.group], logs, now_ms)
    ]

    return Listing("group", OFFSET_COLUMNS, items, reader.failures, table_key="group")


async def members_view(
    reader: GroupReader, groups: Iterable[GroupFacts], topics: Sequence[TopicScope]
) -> Listing:
    """Return a row for each member."""
    items = [item for group in groups for item in member_items(group)]
    columns = (*MEMBER_COLUMNS, *OUR_MEMBER_COLUMNS)
    return Listing("members", columns, items, reader.failures, table_key="group")


async def state_view(
    reader: GroupReader, groups: Iterable[GroupFacts], topics: Sequence[TopicScope]
) -> Listing:
    """Return a row for each group."""
    items = list(map(state_item, groups))
    return Listing("group", STATE_COLUMNS, items, reader.failures, table_key="group")


VIEWS = {"offsets": offsets_view, "members": members_view, "state": state_view}
