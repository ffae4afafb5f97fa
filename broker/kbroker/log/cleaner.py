"""`kbroker log cleaner`: show how dirty compacted logs are and what the cleaner did with them."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import click

from broker.kbroker.log.describe_segments import describe_segments
from broker.kbroker.log.directories import (
    BrokerLogDirectory,
    Location,
    find_log_directories,
    list_partitions,
    log_directory_options,
    read_offsets,
)
from broker.kbroker.log.read_only_directory import ReadOnlyDirectory
from clients.command_line.output import Column, Failure, Listing, is_table, output_option, show
from clients.command_line.point_in_time import timestamp_to_ms
from clients.command_line.printing import plain, say
from compaction.status import STATUS_FILE, CleanerStatus, StatusError, decode_status
from core_log.checkpoint import CLEANER_OFFSETS
from protocol.errors import ApiError, ErrorCode

Item = dict[str, Any]


def format_ratio(ratio: float | None) -> str:
    """Format a ratio in percent for a table's cell."""
    return "-" if ratio is None else f"{ratio:.1%}"


COLUMNS = (
    Column("BROKER"),
    Column("TOPIC"),
    Column("PARTITION"),
    Column("STATE"),
    Column("FIRST-DIRTY-OFFSET"),
    Column("DIRTY-BYTES"),
    Column("DIRTY", key="dirty_ratio", text=format_ratio),
    Column("LAST-PASS", key="last_pass_ms", text=timestamp_to_ms),
    Column("BYTES-PER-SECOND"),
    Column("BYTES-READ", wide=True),
    Column("BYTES-WRITTEN", wide=True),
    Column("MESSAGES-READ", wide=True),
    Column("MESSAGES-WRITTEN", wide=True),
    Column("FAILURES", wide=True),
    Column("NEXT-TRY", key="next_try_ms", text=timestamp_to_ms),
    Column("REASON"),
    Column("LOG-DIR"),
)


@click.command(
    "cleaner",
    epilog="""\b
Examples:
  kbroker log cleaner -b localhost:9092
  kbroker log cleaner --quarantined --log-dirs /var/lib/kafka""",
)
@click.argument("topic", required=False)
@click.option("--quarantined", is_flag=True, help="Only logs that cannot be cleaned.")
@log_directory_options
@output_option
def cleaner(topic: str | None, quarantined: bool, location: Location, output: str) -> None:
    """Show how dirty compacted logs are, when they were cleaned, and why cleaning failed.

    Without TOPIC the logs are those that a cleaner has looked at. DIRTY-BYTES are the bytes between
    the first dirty offset and the active segment. STATE is the one that the broker stored last. For
    a stopped broker, and for stock Kafka, only the offsets are known.
    """
    directories, failures = asyncio.run(find_log_directories(location))
    items = [
        item
        for directory in directories
        if directory.is_here
        for item in _build_items(directory, topic, failures)
        if not quarantined or item["state"] == "quarantined"
    ]

    # No quarantined log of the topic is good news, not a failure.
    if topic is not None and not items and not failures and not quarantined:
        error = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no log of this topic here")
        failures.append(Failure.of(topic, error))
    if not items and not failures and is_table(output):
        # Else nobody knows whether it has looked (fault users-27).
        say(_describe_nothing(directories, quarantined=quarantined), err=True)
    show(Listing("cleaner", COLUMNS, items, failures), output)


def _describe_nothing(directories: Sequence[BrokerLogDirectory], *, quarantined: bool) -> str:
    """Say where it has looked, and what there is none of."""
    looked = sum(directory.is_here for directory in directories)
    where = "1 log directory" if looked == 1 else f"{looked} log directories"
    what = "is quarantined" if quarantined else "has been looked at by a cleaner"
    return f"{where}: no log {what}"


def _build_items(
    directory: BrokerLogDirectory, topic: str | None, failures: list[Failure]
) -> Iterator[Item]:
    """Yield an item for each wanted partition; add an error of a partition to `failures`."""
    log_dir = directory.open()
    offsets = read_offsets(log_dir, CLEANER_OFFSETS)
    try:
        status = decode_status(log_dir.read(STATUS_FILE))
    except StatusError as error:
        # The cleaner's offsets are enough for rows.
        failures.append(Failure.of(f"{log_dir.path}/{STATUS_FILE}", error))
        status = {}

    for topic_partition, name in list_partitions(log_dir):
        # Without a topic, only the logs that a cleaner has looked at.
        if topic is None:
            is_wanted = topic_partition in offsets or name in status
        else:
            is_wanted = topic_partition.topic == topic
        if not is_wanted:
            continue

        try:
            dirty = _measure_dirt(log_dir.child(name), offsets.get(topic_partition))
        except OSError as error:
            # A partition may be deleted at any time.
            if not isinstance(error, FileNotFoundError):
                failures.append(Failure.of(f"{log_dir.path}/{name}", error))
            continue

        place = {
            "broker": directory.broker,
            "log_dir": directory.path,
            "topic": topic_partition.topic,
            "partition": topic_partition.partition,
        }
        yield place | dirty | _build_status_item(status.get(name, CleanerStatus()))


def _measure_dirt(directory: ReadOnlyDirectory, checkpoint: int | None) -> Item:
    """Measure what the next cleaning would read; the broker may have reasons to wait with it.

    `checkpoint`: the cleaner offset of the partition, None before its first cleaning.
    """
    # The active segment is never cleaned.
    closed = list(describe_segments(directory))[:-1]
    bases = [segment.base_offset for segment in closed]

    # Retention may have moved the log's start past the checkpoint.
    first_dirty = max(checkpoint or 0, bases[0]) if bases else checkpoint or 0

    # Whole segments count, from the one that holds the first dirty offset.
    index = max(0, bisect_right(bases, first_dirty) - 1)

    # Clean up to the active segment.
    if closed and first_dirty >= closed[-1].end_offset:
        index = len(closed)

    dirty_bytes = sum(segment.size_bytes for segment in closed[index:])
    total_bytes = sum(segment.size_bytes for segment in closed)
    return {
        "first_dirty_offset": first_dirty,
        "dirty_bytes": dirty_bytes,
        "dirty_ratio": round(dirty_bytes / total_bytes, 4) if total_bytes else 0.0,
    }


def _build_status_item(status: CleanerStatus) -> Item:
    item: Item = {"state": _format_state(status)}

    # Keys without a value show as -: a log may have a last pass, a quarantine, both or neither.
    if status.last is not None:
        statistics = status.last.statistics
        item |= {
            "last_pass_ms": status.last.ended_ms,
            "bytes_per_second": round(status.last.bytes_per_second),
            "bytes_read": statistics.bytes_read,
            "bytes_written": statistics.bytes_written,
            "messages_read": statistics.messages_read,
            "messages_written": statistics.messages_written,
        }

    if status.quarantine is not None:
        item |= {
            "failures": status.quarantine.failures,
            "next_try_ms": status.quarantine.next_try_ms,
            "reason": status.quarantine.reason,
        }
    return item


def _format_state(status: CleanerStatus) -> str:
    if status.running is not None:
        return plain(f"{status.running.phase} {status.running.percent:.0f}%")
    if status.quarantine is not None:
        return "quarantined"
    return "waiting" if status.last is None else "cleaned"
