"""`kbroker log dirs`: the brokers' log directories, as kafka-log-dirs.sh tells of them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import click

from broker.kbroker.comma_lists import split_names
from clients.admin.descriptions import LogDirDescription
from clients.output import Target, target_options
from clients.sessions import connected
from protocol.errors import ErrorCode

NAMES = "A[,B…]"


@click.command(
    "dirs",
    epilog="""\b
Example:
  kbroker log dirs --describe --broker-list 0,1 --topic-list flights -b localhost:9092""",
)
@target_options
@click.option("--describe", is_flag=True, help="What it does; Kafka wants it said.")
@click.option("--broker-list", metavar=NAMES, help="Ids of the brokers.  [default: all]")
@click.option("--topic-list", metavar=NAMES, help="Topics.  [default: all]")
def dirs(target: Target, describe: bool, broker_list: str | None, topic_list: str | None) -> None:
    """Print in one line of JSON which replicas are where, their sizes, and how far they lag."""
    try:
        brokers = sorted({int(number) for number in split_names(broker_list)})
    except ValueError:
        raise click.UsageError(f"--broker-list {broker_list} is not ids of brokers") from None
    topics = set(split_names(topic_list))
    described = asyncio.run(ask(target, brokers))
    click.echo("Querying brokers for log directories information")
    click.echo(f"Received log directory information from brokers {','.join(map(str, described))}")
    found = [
        {"broker": broker, "logDirs": [entry(path, each, topics) for path, each in found.items()]}
        for broker, found in described.items()
    ]
    click.echo(json.dumps({"version": 1, "brokers": found}, separators=(",", ":")))


async def ask(target: Target, brokers: list[int]) -> dict[int, dict[str, LogDirDescription]]:
    """The log directories of these brokers, or of all, by path."""
    async with connected(target) as sessions:
        if not brokers:
            cluster = await sessions.admin.describe_cluster()
            brokers = sorted(broker.node_id for broker in cluster.brokers)
        return {broker: await sessions.admin.describe_log_dirs(broker) for broker in brokers}


def entry(path: str, directory: LogDirDescription, topics: set[str]) -> dict[str, Any]:
    """One log directory under Kafka's names."""
    return {
        "logDir": path,
        "error": None if directory.error is ErrorCode.NONE else directory.error.name,
        "partitions": [
            {
                "partition": str(tp),
                "size": replica.size_bytes,
                "offsetLag": replica.offset_lag,
                "isFuture": replica.is_future,
            }
            for tp, replica in sorted(directory.replicas.items())
            if not topics or tp.topic in topics
        ],
    }
