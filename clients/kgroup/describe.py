"""`kgroup describe`: who owns what, offsets and lag."""

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
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition


@attrs.frozen
class TopicScope:
    """A topic, or some partitions of it."""

    topic: str
    partitions: frozenset[int] | None = None

    def __str__(self) -> str:
        numbers = (
            "" if self.partitions is None else f":{','.join(map(str, sorted(self.partitions)))}"
        )
        return f"{self.topic}{numbers}"

    def holds(self, tp: TopicPartition) -> bool:
        """Whether the partition is meant."""
        return tp.topic == self.topic and (
            self.partitions is None or tp.partition in self.partitions
        )


class Scope(click.ParamType):  # type: ignore[type-arg]
    """Kafka's `topic` or `topic:0,1,2`."""

    name = "t[:p,…]"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> TopicScope:
        """Raises UsageError for partitions that are no numbers."""
        if isinstance(value, TopicScope):
            return value
        topic, colon, numbers = str(value).partition(":")
        if not colon:
            return TopicScope(topic)
        if not all(number.strip().isdecimal() for number in numbers.split(",")):
            self.fail(f"{value!r} is not topic:partition,…", param, ctx)
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
@click.option("--all-groups", is_flag=True, help="Every group there is.")
@click.option(
    "--topic", "topics", type=Scope(), multiple=True, help="Only these topics or partitions."
)
@click.option("--offsets", "view", flag_value="offsets", default="offsets", help="The default.")
@click.option("--members", "view", flag_value="members", help="Members instead of partitions.")
@click.option("--state", "view", flag_value="state", help="The group's state instead.")
@click.option("--verbose", is_flag=True, help="Our columns too, as -o wide.")
@output_option
def command(
    target: Target,
    groups: tuple[str, ...],
    more_groups: tuple[str, ...],
    all_groups: bool,
    topics: tuple[TopicScope, ...],
    view: str,
    verbose: bool,
    output: str,
) -> None:
    """Each partition of GROUPS with its owner, committed offset and lag.

    Groups whose members meet in ZooKeeper are seen when --zookeeper is known; a group that only
    commits is a group too. --verbose adds the owner's stream, the offsets of both stores
    (ZK-OFFSET, KAFKA-OFFSET), which of them WINS, and DIVERGED where they should be equal and are
    not; to --state, where members keep offsets (STORAGE), as far as they say so. With --members,
    -o wide shows what each subscribed to.
    """
    wanted = (*groups, *more_groups)
    if bool(wanted) == all_groups:
        raise click.UsageError("name GROUPS, or use --all-groups")
    listing = asyncio.run(described(target, None if all_groups else wanted, topics, view))
    if view == "members" and output == "table":  # where Kafka has wide columns of its own
        listing = attrs.evolve(listing, columns=MEMBER_COLUMNS)
    show(listing, output, verbose=verbose)


async def described(
    target: Target, names: Sequence[str] | None, topics: Sequence[TopicScope], view: str
) -> Listing:
    """The listing of one view of groups; None names all there are."""
    async with connected(target) as sessions:
        reader = GroupReader(sessions)
        if names is None:
            names = [name.group for name in await reader.names()]
        facts = await reader.groups(dict.fromkeys(names))
        known = [group for group in facts if group.exists]
        unreadable = {failure.what for failure in reader.failures}
        reader.failures += [
            missing(group.group)
            for group in facts
            if not group.exists and group.group not in unreadable
        ]
        for group in known:
            if said := remark(group):
                click.echo(said, err=True)
        return await VIEWS[view](reader, known, topics)


def missing(group: str) -> Failure:
    """What Kafka says of a group it does not know."""
    return Failure(
        group, ErrorCode.GROUP_ID_NOT_FOUND.name, f"Consumer group '{group}' does not exist."
    )


async def offsets_view(
    reader: GroupReader, groups: Iterable[GroupFacts], topics: Sequence[TopicScope]
) -> Listing:
    """A row for each partition."""
    shown = {
        group.group: {
            tp for tp in group.partitions if not topics or any(scope.holds(tp) for scope in topics)
        }
        for group in groups
    }
    logs = await reader.log_offsets(sorted(set().union(*shown.values())))
    now_ms = int(time.time() * 1000)
    items = [
        item for group in groups for item in offset_items(group, shown[group.group], logs, now_ms)
    ]
    return Listing("group", OFFSET_COLUMNS, items, reader.failures)


async def members_view(
    reader: GroupReader, groups: Iterable[GroupFacts], topics: Sequence[TopicScope]
) -> Listing:
    """A row for each member."""
    items = [item for group in groups for item in member_items(group)]
    columns = (*MEMBER_COLUMNS, *OUR_MEMBER_COLUMNS)
    return Listing("members", columns, items, reader.failures)


async def state_view(
    reader: GroupReader, groups: Iterable[GroupFacts], topics: Sequence[TopicScope]
) -> Listing:
    """A row for each group."""
    return Listing("group", STATE_COLUMNS, list(map(state_item, groups)), reader.failures)


VIEWS = {"offsets": offsets_view, "members": members_view, "state": state_view}
