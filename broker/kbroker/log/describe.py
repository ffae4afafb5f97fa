"""`kbroker log describe`: what each log on disk is made of."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import attrs
import click

from broker.kbroker.log.describe_segments import epochs_of, segments_of
from broker.kbroker.log.directories import (
    LogDirectoryOf,
    Where,
    find,
    log_directory_options,
    partitions_in,
    read_offsets,
)
from clients.output import Column, Failure, Listing, output_option, plain, show
from core_log.checkpoint import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from protocol.errors import ApiError, ErrorCode

Item = dict[str, Any]


def moment(time_ms: int | None) -> str:
    """A cell with a time, in UTC to the millisecond."""
    if time_ms is None:
        return "-"
    try:
        at = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # whatever a producer sent
        return plain(time_ms)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z"


def epochs_text(epochs: list[dict[str, int]] | None) -> str:
    """A cell with leader epochs: `epoch:start offset,…`."""
    return ",".join(f"{each['epoch']}:{each['start_offset']}" for each in epochs or ()) or "-"


COLUMNS = (
    Column("BROKER"),
    Column("TOPIC"),
    Column("PARTITION"),
    Column("BASE-OFFSET"),
    Column("END-OFFSET"),
    Column("BYTES"),
    Column("FIRST-TIME", key="first_timestamp_ms", text=moment),
    Column("LAST-TIME", key="last_timestamp_ms", text=moment),
    Column("INDEX-ENTRIES"),
    Column("TIME-INDEX-ENTRIES", wide=True),
    Column("LOG-START-OFFSET", wide=True),
    Column("RECOVERY-POINT", wide=True),
    Column("HIGH-WATERMARK", wide=True),
    Column("EPOCHS", wide=True, text=epochs_text),
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
def describe(topic: str | None, where: Where, output: str) -> None:
    """Every segment of a topic's partitions, or of all, as they are on disk.

    END-OFFSET is one above the segment's last. The recovery point (what is below was synced), the
    high watermark and the log's start are those that were last written down. Logs on other machines
    are shown with their sizes alone.
    """
    directories, failures = asyncio.run(find(where))
    items = [
        item
        for directory in directories
        for item in described(directory, failures)
        if topic is None or item["topic"] == topic
    ]
    if topic is not None and not items and not failures:
        error = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no log of it is there")
        failures.append(Failure.of(topic, error))
    show(Listing("segments", COLUMNS, items, failures), output)
    if not items:  # nor failures, with which `show` does not come back
        places = ", ".join(directory.path for directory in directories)
        click.echo(f"no logs in {places or 'any log directory'}", err=True)


def described(directory: LogDirectoryOf, failures: list[Failure]) -> Iterator[Item]:
    """Its rows: a segment in each; if it is elsewhere, a partition in each."""
    place: Item = {"broker": directory.broker, "log_dir": directory.path}
    if directory.sizes is not None:
        for tp, size in sorted(directory.sizes.items()):
            yield place | {"topic": tp.topic, "partition": tp.partition, "bytes": size}
        return
    opened = directory.open()
    starts, points, watermarks = (
        read_offsets(opened, name) for name in (LOG_START_OFFSETS, RECOVERY_POINTS, HIGH_WATERMARKS)
    )
    for tp, name in partitions_in(opened):
        try:
            partition = opened.child(name)
            segments = list(segments_of(partition))
            epochs = epochs_of(partition)
        except OSError as error:
            if not isinstance(error, FileNotFoundError):  # that was deleted since
                failures.append(Failure.of(f"{opened.path}/{name}", error))
            continue
        for segment in segments:
            row = attrs.asdict(segment)
            row["bytes"] = row.pop("size_bytes")
            yield (
                place
                | row
                | {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "log_start_offset": max(starts.get(tp, 0), segments[0].base_offset),
                    "recovery_point": points.get(tp),
                    "high_watermark": watermarks.get(tp),
                    "epochs": [{"epoch": epoch, "start_offset": start} for epoch, start in epochs],
                }
            )
