"""`kgroup doctor`: look at `__consumer_offsets`, and say what is wrong with it and what to do."""

import asyncio
import sys

import attrs
import click

from clients.command_line.finite_range import FiniteRange
from clients.command_line.output import (
    EXIT_FAILED,
    Column,
    Listing,
    Target,
    output_option,
    show,
    target_options,
)
from clients.command_line.point_in_time import timestamp
from clients.command_line.printing import plain
from clients.command_line.progress import showing_progress
from clients.command_line.sessions import connected
from clients.groups.group_view import duration
from clients.watching.health import ERR, OK, WARN
from clients.watching.offsets_topic import SAMPLE_MS, OffsetsTopicReading
from clients.watching.offsets_topic_verdict import judge_topic, size_text, summarize
from protocol.internal_topics import OFFSETS_TOPIC


def _size(size: int | None) -> str:
    return plain(None) if size is None else size_text(size)


def _colour(verdict: str) -> str:
    return {ERR: "red", WARN: "yellow"}.get(verdict, "")


COLUMNS = (
    Column("ABOUT", wide=True),
    Column("SUBJECT", 26),
    Column("VERDICT", 7, style=_colour),
    Column("VALUE", 10, optional=True),
    Column("PARTITION", wide=True, optional=True),
    Column("LEADER", 6, optional=True),
    Column("LOG-START-OFFSET", wide=True, optional=True),
    Column("LOG-END-OFFSET", wide=True, optional=True),
    Column("SIZE", 9, optional=True, key="size_bytes", text=_size),
    Column("RECORDS", 8, optional=True),
    Column("KEYS", 8, optional=True),
    Column("RECORDS-PER-KEY", optional=True),
    Column("DIRTY-RATIO", optional=True),
    Column("UNCLEANED-SINCE", 20, optional=True, key="uncleaned_since_ms", text=timestamp),
    Column("LOAD", 6, optional=True, key="load_ms", text=duration),
    Column("COMMITS/S", 9, optional=True, key="commits_per_s"),
    Column("WHY"),
)


@click.command(
    "doctor",
    epilog="""\b
Examples:
  kgroup doctor
  kgroup doctor --sample 600 -o json""",
)
@target_options
@click.option(
    "--sample",
    type=FiniteRange(min=1),
    default=SAMPLE_MS // 1000,
    show_default=True,
    metavar="SECONDS",
    help="Commits of so many seconds, up to the newest one, count for COMMITS/S.",
)
@output_option
def command(target: Target, sample: float, output: str) -> None:
    """Look at __consumer_offsets, where groups keep offsets: settings, brokers, partitions, groups.

    It finds partitions that are no longer cleaned, or have too few replicas, settings that lose
    offsets, groups that commit too often, and how long groups wait after a fail-over (LOAD). The
    topic is read whole, one partition after the other; that needs memory for the keys of one.

    UNCLEANED-SINCE is when the first commit was made that replaces one which is still there:
    nothing was cleaned since then. DIRTY-RATIO is the least that it can be: a segment is not
    cleaned while it is written.

    Exit code: 0 all OK, 1 something is wrong.
    """
    listing, worst = asyncio.run(examine(target, round(sample * 1000)))
    show(listing, output)
    if worst != OK:
        sys.exit(EXIT_FAILED)


async def examine(target: Target, sample_ms: int) -> tuple[Listing, str]:
    """Return the rows, and the worst verdict."""
    # Brokers alone are asked; ZooKeeper only where they are not known.
    if target.bootstrap is not None:
        target = attrs.evolve(target, zookeeper=None)
    async with connected(target, asks_brokers=True, waits_for_dead=False) as sessions:
        reading = OffsetsTopicReading(sessions.admin, sample_ms)
        async with showing_progress(lambda: reading.progress):
            facts = await reading.gather()

    if facts is None:
        verdict = f"there is no {OFFSETS_TOPIC}: no group has committed to Kafka yet"
        return Listing("doctor", COLUMNS, [], verdict=verdict), OK
    rows = judge_topic(facts)
    worst, sentence = summarize(facts, rows)
    listing = Listing(
        "doctor", COLUMNS, rows, reading.failures, table_key="about", verdict=sentence
    )
    return listing, worst
