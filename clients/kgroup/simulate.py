"""`kgroup simulate`: show who would get which partitions, before members come or go."""

import asyncio
import csv
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import click

from clients.command_line.command_group import CommandFailed
from clients.command_line.finite_range import FiniteRange
from clients.command_line.output import (
    Column,
    Listing,
    Target,
    output_option,
    show,
    target_options,
)
from clients.command_line.printing import say
from clients.command_line.sessions import connected
from clients.errors import BrokerError
from clients.groups.group_view import assignment_text, duration
from clients.watching.assignment_simulation import SimulatedMember, Simulation, simulate
from clients.watching.simulation_scene import Scene, read_scene
from groups.assignors.assignor_table import ASSIGNORS
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition

MAX_MEMBERS = 10_000
MAX_PARTITIONS = 1_000_000

COLUMNS = (
    Column("ASSIGNOR", 18),
    Column("#MEMBERS"),
    Column("#PARTITIONS"),
    Column("MOVED"),
    Column("KEPT"),
    Column("MIN", key="min_partitions"),
    Column("MAX", key="max_partitions"),
    Column("LOAD"),
    Column("CATCH-UP", key="catch_up_ms", optional=True, text=duration),
    Column("ROUNDS"),
)
MEMBER_COLUMNS = (
    Column("ASSIGNOR", 18),
    Column("MEMBER", 10),
    Column("#PARTITIONS"),
    Column("KEPT"),
    Column("GAINED"),
    Column("LOST"),
    Column("WEIGHT", optional=True),
    Column("CATCH-UP", key="catch_up_ms", optional=True, text=duration),
    Column("ASSIGNMENT"),
)


@frozen
class MemberChange:
    """`--members`: a number of members to have, members to add, members to remove."""

    count: int | None = None
    added: int = 0
    removed: tuple[str, ...] = ()


class MemberChangeType(click.ParamType):  # type: ignore[type-arg]
    """Reads `4`, `+2`, `-m1`, or several of them."""

    name = "N|+N|-ID,…"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> MemberChange:
        """Read the change. Raises UsageError."""
        if isinstance(value, MemberChange):
            return value

        change = MemberChange()
        for word in filter(None, map(str.strip, str(value).split(","))):
            if re.fullmatch("[0-9]{1,9}", word):
                change = attrs.evolve(change, count=int(word))
            elif re.fullmatch("[+][0-9]{1,9}", word):
                change = attrs.evolve(change, added=change.added + int(word))
            elif word.startswith("-") and len(word) > 1:
                change = attrs.evolve(change, removed=(*change.removed, word[1:]))
            else:
                self.fail(f"{word!r} is not a number, +N or -MEMBER", param, ctx)

        if max(change.count or 0, change.added) > MAX_MEMBERS:
            self.fail(f"more than {MAX_MEMBERS} members", param, ctx)
        return change


class PartitionCount(click.ParamType):  # type: ignore[type-arg]
    """Reads `topic=24`."""

    name = "TOPIC=N"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """Read the pair. Raises UsageError."""
        if isinstance(value, tuple):
            return value
        topic, _, number = str(value).rpartition("=")
        if not topic or not re.fullmatch("[0-9]{1,7}", number) or int(number) > MAX_PARTITIONS:
            self.fail(f"{value!r} is not topic=partitions", param, ctx)
        return topic, int(number)


@click.command(
    "simulate",
    epilog="""\b
Examples:
  kgroup simulate analytics --members +2
  kgroup simulate analytics --members -consumer-1 --assignor sticky --weights lag --rate 500
  kgroup simulate --members 4,+1 --partitions flights=24 -o json""",
)
@target_options
@click.argument("group", required=False)
@click.option(
    "--assignor",
    "assignors",
    default=",".join(ASSIGNORS),
    show_default=True,
    metavar="NAME,…",
    help="The assignors to compare.",
)
@click.option(
    "--members",
    "change",
    type=MemberChangeType(),
    default="",
    help="Have N members, add N, or remove one by its id (or a beginning, or its client id).",
)
@click.option(
    "--partitions",
    "counts",
    type=PartitionCount(),
    multiple=True,
    help="Number of partitions of a topic, real or not.",
)
@click.option(
    "--weights",
    metavar="lag|FILE",
    help="Weigh partitions by the group's lag, or by lines topic,partition,weight of a file "
    '(or JSON {"topic:0": weight}).',
)
@click.option(
    "--rate",
    type=FiniteRange(min=0, min_open=True),
    help="Messages a second of one member, to estimate the time to catch up with --weights.",
)
@output_option
def command(
    target: Target,
    group: str | None,
    assignors: str,
    change: MemberChange,
    counts: tuple[tuple[str, int], ...],
    weights: str | None,
    rate: float | None,
    output: str,
) -> None:
    """Show who would get which partitions under each assignor, if members came or went.

    With GROUP its members and their partitions are read; nothing joins it. Without GROUP,
    --members N and --partitions say what to assume; the N members are assigned first, then
    those that are added or removed make the rebalance that is shown.

    LOAD is the largest weight of a member over the mean: 1.0 is even. CATCH-UP is the time that
    the slowest member needs for its weight at --rate.
    """
    names = [name.strip() for name in assignors.split(",") if name.strip()]
    if unknown := ", ".join(name for name in names if name not in ASSIGNORS):
        raise click.UsageError(f"--assignor {unknown}: not one of {', '.join(ASSIGNORS)}")
    if group is None and (not change.count or not counts):
        raise click.UsageError("name a GROUP, or give --members N and --partitions TOPIC=N")
    if group is None and weights == "lag":
        raise click.UsageError("--weights lag needs a GROUP")
    if rate is not None and weights is None:
        raise click.UsageError("--rate needs --weights")

    by_file = None if weights in (None, "lag") else read_weights(Path(str(weights)))
    scene = asyncio.run(read_group(target, group, weights == "lag")) if group else Scene()
    scene = attrs.evolve(scene, partition_counts={**scene.partition_counts, **dict(counts)})

    results = [
        simulate_change(name, scene, change, scene.lags if weights == "lag" else by_file)
        for name in names
    ]
    print_results(results, scene, rate, output, weighted=weights is not None)


# --- what is simulated


def simulate_change(
    assignor: str,
    scene: Scene,
    change: MemberChange,
    weights: Mapping[TopicPartition, int] | None,
) -> Simulation:
    """Apply the change of members, and simulate the rebalance that follows."""
    members = list(scene.members)

    # Without a group, the first members share out the partitions before others come or go.
    if not members:
        topics = tuple(sorted(scene.partition_counts))
        members = [SimulatedMember(f"m{n}", topics) for n in range(1, (change.count or 1) + 1)]
        if change.added or change.removed:
            first = simulate(assignor, members, scene.partition_counts)
            members = [attrs.evolve(m, owned=first.shares[m.member_id]) for m in members]

    staying, left = without(members, change.removed)
    added = change.added
    if change.count is not None and scene.members:
        added += max(change.count - len(staying), 0)
        left |= {member.member_id: member.owned for member in staying[change.count :]}
        staying = staying[: change.count]

    # New members subscribe to what the others do.
    topics = tuple(sorted({t for m in members for t in m.topics} | scene.partition_counts.keys()))
    taken = {member.member_id for member in members}
    new_ids = (scene.new_member_prefix + str(n) for n in range(1, added + len(taken) + 1))
    new = [SimulatedMember(name, topics) for name in new_ids if name not in taken][:added]
    if not staying and not new:
        raise click.UsageError("--members leaves no member")

    return simulate(assignor, [*staying, *new], scene.partition_counts, left=left, weights=weights)


def without(
    members: Sequence[SimulatedMember], removed: Sequence[str]
) -> tuple[list[SimulatedMember], dict[str, tuple[TopicPartition, ...]]]:
    """Return the members that stay, and what the others owned. Raises UsageError."""
    staying = list(members)
    left = {}
    for name in removed:
        exact = [member for member in staying if member.member_id == name]
        matches = exact or [member for member in staying if member.member_id.startswith(name)]
        if len(matches) != 1:
            found = "is no member" if not matches else f"begins {len(matches)} members' ids"
            raise click.UsageError(
                f"--members -{name}: {found}; members: "
                + ", ".join(member.member_id for member in staying[:10])
            )
        staying.remove(matches[0])
        left[matches[0].member_id] = matches[0].owned
    return staying, left


async def read_group(target: Target, group: str, with_lag: bool) -> Scene:
    """Read a group's scene. Raises CommandFailed if there is no such group, or nobody in it."""
    async with connected(target, waits_for_dead=False) as sessions:
        try:
            scene = await read_scene(sessions, group, with_lag=with_lag)
        except BrokerError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            raise CommandFailed(error.detail) from None
    if not scene.members:
        raise CommandFailed(
            f"Consumer group '{group}' has no active members: give --members N and "
            "--partitions TOPIC=N without the group"
        )
    return scene


def read_weights(path: Path) -> dict[TopicPartition, int]:
    """Read lines `topic,partition,weight`, or JSON {"topic:0": weight}. Raises UsageError."""
    try:
        text = path.read_text("utf-8")
        if text.lstrip().startswith("{"):
            pairs = [(name.rpartition(":"), weight) for name, weight in json.loads(text).items()]
            rows = [(topic, number, weight) for (topic, _, number), weight in pairs]
        else:
            rows = [
                (topic, number, weight)
                for topic, number, weight in csv.reader(filter(str.strip, text.splitlines()))
            ]
        weights = {TopicPartition(topic, int(number)): int(w) for topic, number, w in rows}
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        raise click.UsageError(f"{path}: not lines of topic,partition,weight") from None

    if any(weight < 0 for weight in weights.values()):
        raise click.UsageError(f"{path}: a weight is negative")
    return weights


# --- what is printed


def print_results(
    results: Sequence[Simulation], scene: Scene, rate: float | None, output: str, *, weighted: bool
) -> None:
    """Print a row for each assignor, then a table of members for each; JSON nests the members."""
    summaries = [summary_item(result, rate) for result in results]
    rows = [row for result in results for row in member_items(result, rate, weighted)]

    if output == "json":
        for summary in summaries:
            summary["shares"] = [r for r in rows if r["assignor"] == summary["assignor"]]
        columns = (*COLUMNS, Column("SHARES"))
        show(Listing("simulation", columns, summaries, scene.failures), output)
        return

    if output != "csv":
        show(Listing("simulation", COLUMNS, summaries), output)
        say()
    members = Listing("simulation", MEMBER_COLUMNS, rows, scene.failures, table_key="assignor")
    show(members, output)


def summary_item(result: Simulation, rate: float | None) -> dict[str, Any]:
    """Return the row of an assignor."""
    smallest, largest = result.sizes
    return {
        "assignor": result.assignor,
        "members": len(result.shares),
        "partitions": sum(map(len, result.shares.values())),
        "moved": result.moved,
        "kept": result.kept,
        "min_partitions": smallest,
        "max_partitions": largest,
        "load": None if result.load is None else round(result.load, 2),
        "catch_up_ms": catch_up_ms(max(result.weight_of.values()), rate),
        "rounds": result.rounds,
    }


def member_items(result: Simulation, rate: float | None, weighted: bool) -> list[dict[str, Any]]:
    """Return the rows of the members under one assignor."""
    return [
        {
            "assignor": result.assignor,
            "member": member_id,
            "partitions": len(share),
            "kept": (kept := len(result.kept_by(member_id))),
            "gained": len(share) - kept,
            "lost": len(result.before.get(member_id, ())) - kept,
            "weight": result.weight_of[member_id] if weighted else None,
            "catch_up_ms": catch_up_ms(result.weight_of[member_id], rate),
            "assignment": assignment_text(share) or None,
        }
        for member_id, share in result.shares.items()
    ]


def catch_up_ms(weight: int, rate: float | None) -> int | None:
    """Return the time for `weight` messages; None without a rate."""
    return None if rate is None else round(weight / rate * 1000)
