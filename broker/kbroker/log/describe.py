"""`kbroker log describe`: show the segments of logs on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import attrs
import click

from broker.kbroker.log.describe_segments import describe_segments, read_epochs
from broker.kbroker.log.directories import (
    BrokerLogDirectory,
    Location,
    find_log_directories,
    list_partitions,
    log_directory_options,
    read_offsets,
)
from clients.command_line.output import Column, Failure, Listing, output_option, show
from clients.command_line.point_in_time import timestamp_to_ms
from clients.command_line.printing import say
from core_log.checkpoint import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from protocol.errors import ApiError, ErrorCode

Item = dict[str, Any]


def format_epochs(epochs: list[dict[str, int]] | None) -> str:
    """Format leader epochs for a table's cell: `epoch:start offset,…`."""
    return ",".join(f"{epoch['epoch']}:{epoch['start_offset']}" for epoch in epochs or ()) or "-"


COLUMNS = (
    Column("BROKER"),
    Column("TOPIC"),
    Column("PARTITION"),
    Column("BASE-OFFSET"),
    Column("END-OFFSET"),
    Column("BYTES"),
    Column("FIRST-TIME", key="first_timestamp_ms", text=timestamp_to_ms),
    Column("LAST-TIME", key="last_timestamp_ms", text=timestamp_to_ms),
    Column("INDEX-ENTRIES"),
    Column("TIME-INDEX-ENTRIES", wide=True),
    Column("LOG-START-OFFSET", wide=True),
    Column("RECOVERY-POINT", wide=True),
    Column("HIGH-WATERMARK", wide=True),
    Column("EPOCHS", wide=True, text=format_epochs),
    Column("LOG-DIR"),
)


@click.command(
    "describe",
    epilog="""\b
Examples:
  kbroker log describe flights -b localhost:9092
  kbroker log describe --data dev -o wide""",
)
@click.argument("topic", required=False)
@log_directory_options
@output_option
def describe(topic: str | None, location: Location, output: str) -> None:
    """Show every segment of a topic's partitions, or of all partitions, as on disk.

    END-OFFSET is the last offset plus one. The recovery point (all below it was synced), the high
    watermark and the log start offset are those of the broker's checkpoints. For logs on other
    machines only the sizes are known.
    """
    directories, failures = asyncio.run(find_log_directories(location))
    items = [
        item
        for directory in directories
        for item in build_items(directory, failures)
        if topic is None or item["topic"] == topic
    ]

    if topic is not None and not items and not failures:
        error = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no log of this topic")
        failures.append(Failure.of(topic, error))
    show(Listing("segments", COLUMNS, items, failures), output)

    # There are no failures either: with failures `show` does not return.
    if not items:
        paths = ", ".join(directory.path for directory in directories)
        say(f"no logs in {paths or 'any log directory'}", err=True)


def build_items(directory: BrokerLogDirectory, failures: list[Failure]) -> Iterator[Item]:
    """Yield an item for each segment; for each partition if the directory is elsewhere.

    An error of a partition is added to `failures`.
    """
    place: Item = {"broker": directory.broker, "log_dir": directory.path}

    # On another machine: a row for each partition, with its size.
    if directory.sizes is not None:
        for (topic, partition_id), size_bytes in sorted(directory.sizes.items()):
            yield place | {"topic": topic, "partition": partition_id, "bytes": size_bytes}
        return

    log_dir = directory.open()
    start_offsets = read_offsets(log_dir, LOG_START_OFFSETS)
    recovery_points = read_offsets(log_dir, RECOVERY_POINTS)
    high_watermarks = read_offsets(log_dir, HIGH_WATERMARKS)

    for topic_partition, name in list_partitions(log_dir):
        try:
            partition = log_dir.child(name)
            segments = list(describe_segments(partition))
            epochs = read_epochs(partition)
        except OSError as error:
            # A partition may be deleted at any time.
            if not isinstance(error, FileNotFoundError):
                failures.append(Failure.of(f"{log_dir.path}/{name}", error))
            continue

        for segment in segments:
            row = attrs.asdict(segment)
            row["bytes"] = row.pop("size_bytes")

            # Retention may be ahead of the checkpoint.
            start_offset = max(start_offsets.get(topic_partition, 0), segments[0].base_offset)
            yield (
                place
                | row
                | {
                    "topic": topic_partition.topic,
                    "partition": topic_partition.partition,
                    "log_start_offset": start_offset,
                    "recovery_point": recovery_points.get(topic_partition),
                    "high_watermark": high_watermarks.get(topic_partition),
                    "epochs": [{"epoch": epoch, "start_offset": start} for epoch, start in epochs],
                }
            )
