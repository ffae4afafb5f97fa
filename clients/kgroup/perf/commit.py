"""`kgroup perf commit`: commit offsets of many groups, and print how fast that goes."""

import asyncio
import random
from collections.abc import Iterator, Sequence

import click

from clients.admin import Admin
from clients.command_line.finite_range import FiniteRange
from clients.command_line.output import Target, target_options
from clients.command_line.sessions import connected
from clients.errors import KgroupError
from clients.kgroup.perf.figures import Figures
from clients.kgroup.perf.reporting import keep_pace, monotonic_ms, reporting
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

MAX_GROUPS = 10_000
OFFSET_BYTES = 8


@click.command(
    "commit",
    epilog="""\b
Examples:
  kgroup perf commit --topic flights --num-commits 10000
  kgroup perf commit --topic flights --groups 100 --num-commits 10000 --throughput 500""",
)
@target_options
@click.option("--topic", required=True, help="The topic whose partitions' offsets are committed.")
@click.option(
    "--groups",
    type=click.IntRange(1, MAX_GROUPS),
    default=10,
    show_default=True,
    help="Groups that commit at the same time; they are new, and deleted at the end.",
)
@click.option(
    "--partitions", type=click.IntRange(min=1), help="Partitions of a commit.  [default: all]"
)
@click.option("--num-commits", type=click.IntRange(min=1), required=True, help="Commits in all.")
@click.option(
    "--throughput",
    type=FiniteRange(),
    default=-1,
    show_default=True,
    help="Commits a second; -1: no limit.",
)
def command(
    target: Target,
    topic: str,
    groups: int,
    partitions: int | None,
    num_commits: int,
    throughput: float,
) -> None:
    """Commit offsets of groups without members, each with one commit in flight.

    The lines are those of `kgroup perf produce`, with commits for records; MB counts 8 bytes for
    each offset. After Ctrl-C the line for the whole run is printed.
    """
    asyncio.run(measure(target, topic, groups, partitions, num_commits, throughput))


async def measure(
    target: Target,
    topic: str,
    groups: int,
    partitions: int | None,
    num_commits: int,
    throughput: float,
) -> None:
    """Commit, print, and delete the groups."""
    run = random.randrange(1_000_000)
    group_ids = [f"perf-commit-{run}-{number}" for number in range(groups)]
    async with connected(target, asks_brokers=True) as sessions:
        description = (await sessions.admin.describe_topics([topic]))[topic]
        count = min(partitions or len(description.partitions), len(description.partitions))
        committed = [TopicPartition(topic, partition_id) for partition_id in range(count)]

        try:
            async with reporting("commits") as figures:
                numbers = iter(range(1, num_commits + 1))
                async with asyncio.TaskGroup() as tasks:
                    for group_id in group_ids:
                        work = commit_in_turn(
                            sessions.admin, group_id, committed, numbers, throughput, figures
                        )
                        tasks.create_task(work)
        finally:
            await sessions.admin.delete_groups(group_ids)


async def commit_in_turn(
    admin: Admin,
    group_id: str,
    partitions: Sequence[TopicPartition],
    numbers: Iterator[int],
    throughput: float,
    figures: Figures,
) -> None:
    """Commit for one group until no number is left; all groups take from the same numbers."""
    for number in numbers:
        await keep_pace(figures.begins_ms, number, throughput)

        begins_ms = monotonic_ms()
        try:
            await admin.commit_group_offsets(
                group_id, dict.fromkeys(partitions, OffsetAndMetadata(number))
            )
        except KgroupError as error:
            figures.fail(error)
        else:
            figures.add(OFFSET_BYTES * len(partitions), monotonic_ms() - begins_ms)
