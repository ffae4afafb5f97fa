"""`kbroker log dirs`: describe the brokers' log directories in the JSON of kafka-log-dirs.sh."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import click

from broker.kbroker.comma_lists import split_names
from clients.admin.descriptions import LogDirDescription
from clients.command_line.output import EXIT_FAILED, Failure, Target, report, target_options
from clients.command_line.printing import print_text, say
from clients.command_line.sessions import connected
from clients.errors import KgroupError
from protocol.errors import ErrorCode

NAMES = "A[,B…]"
REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
HIDDEN = "you may not see its log directories; ask for DESCRIBE on the cluster"


@click.command(
    "dirs",
    epilog="""\b
Example:
  kbroker log dirs --describe --broker-list 0,1 --topic-list flights -b localhost:9092""",
)
@target_options
@click.option("--describe", is_flag=True, help="Accepted because Kafka's tool requires it.")
@click.option("--broker-list", metavar=NAMES, help="Ids of the brokers.  [default: all]")
@click.option("--topic-list", metavar=NAMES, help="Topics.  [default: all]")
def dirs(target: Target, describe: bool, broker_list: str | None, topic_list: str | None) -> None:
    """Print each log directory's replicas, their sizes and lags, in one line of JSON."""
    try:
        brokers = sorted({int(number) for number in split_names(broker_list)})
    except ValueError:
        raise click.UsageError(f"--broker-list {broker_list} is not broker ids") from None
    topics = set(split_names(topic_list))

    log_dirs, failures = asyncio.run(describe_log_dirs(target, brokers))

    # Scripts that read the output of Kafka's tool skip these two lines.
    say("Querying brokers for log directories information")
    say(f"Received log directory information from brokers {','.join(map(str, log_dirs))}")

    members = [
        {
            "broker": broker,
            "logDirs": [build_member(path, log_dir, topics) for path, log_dir in of_broker.items()],
        }
        for broker, of_broker in log_dirs.items()
    ]
    print_text(json.dumps({"version": 1, "brokers": members}, separators=(",", ":")))
    for broker, of_broker in log_dirs.items():
        for path, log_dir in of_broker.items():
            if log_dir.is_full:
                say(f"note: broker {broker}: {path} is full: it refuses appends", err=True)
    report(failures)
    if failures:
        raise click.exceptions.Exit(EXIT_FAILED)


async def describe_log_dirs(
    target: Target, brokers: list[int]
) -> tuple[dict[int, dict[str, LogDirDescription]], list[Failure]]:
    """Return the log directories of these brokers, or of all, by broker and path; and failures."""
    log_dirs: dict[int, dict[str, LogDirDescription]] = {}
    failures: list[Failure] = []
    async with connected(target, asks_brokers=True, waits_for_dead=False) as sessions:
        if not brokers:
            cluster = await sessions.admin.describe_cluster()
            brokers = sorted(broker.node_id for broker in cluster.brokers)
        for broker in brokers:
            try:
                log_dirs[broker] = await sessions.admin.describe_log_dirs(broker)
                # A broker has one at least: it says so little to who may not know.
                if not log_dirs[broker]:
                    failures.append(Failure(f"broker {broker}", REFUSED.name, HIDDEN))
            except KgroupError as error:
                failures.append(Failure.of(f"broker {broker}", error))
    return log_dirs, failures


def build_member(path: str, directory: LogDirDescription, topics: set[str]) -> dict[str, Any]:
    """Build the JSON member of one log directory, with Kafka's keys."""
    return {
        "logDir": path,
        "error": None if directory.error is ErrorCode.NONE else directory.error.name,
        "partitions": [
            {
                "partition": str(topic_partition),
                "size": replica.size_bytes,
                "offsetLag": replica.offset_lag,
                "isFuture": replica.is_future,
            }
            for topic_partition, replica in sorted(directory.replicas.items())
            if not topics or topic_partition.topic in topics
        ],
    }
