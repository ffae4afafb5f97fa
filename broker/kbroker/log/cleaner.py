"""`kbroker log cleaner`: how dirty the compacted logs are, and what the cleaner made of them."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

import click

from broker.kbroker.log.describe import moment
from broker.kbroker.log.describe_segments import segments_of
from broker.kbroker.log.directories import (
    LogDirectoryOf,
    Where,
    find,
    log_directory_options,
    partitions_in,
    read_offsets,
)
from broker.kbroker.log.read_only_directory import ReadOnlyDirectory
from clients.output import Column, Failure, Listing, output_option, plain, show
from compaction.status import STATUS_FILE, PartitionStatus, StatusError, decode_status
from core_log.checkpoint import CLEANER_OFFSETS
from protocol.errors import ApiError, ErrorCode

Item = dict[str, Any]


def share(ratio: float | None) -> str:
    """A cell with a ratio, in percent."""
    return "-" if ratio is None else f"{ratio:.1%}"


COLUMNS = (
    Column("BROKER"),
    Column("TOPIC"),
    Column("PARTITION"),
    Column("STATE"),
    Column("FIRST-DIRTY-OFFSET"),
    Column("DIRTY-BYTES"),
    Column("DIRTY", key="dirty_ratio", text=share),
    Column("LAST-PASS", key="last_pass_ms", text=moment),
    Column("BYTES-PER-SECOND"),
    Column("BYTES-READ", wide=True),
    Column("BYTES-WRITTEN", wide=True),
    Column("MESSAGES-READ", wide=True),
    Column("MESSAGES-WRITTEN", wide=True),
    Column("FAILURES", wide=True),
    Column("NEXT-TRY", key="next_try_ms", text=moment),
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
def cleaner(topic: str | None, quarantined: bool, where: Where, output: str) -> None:
    """How dirty compacted logs are, when they were cleaned last, and what keeps them from it.

    Without TOPIC these are the logs that a cleaner has looked at. DIRTY-BYTES is what lies between
    the first dirty offset and the active segment. The state is what the broker wrote down last; of
    one that was stopped, or of stock Kafka, the offsets are known and no more.
    """
    directories, failures = asyncio.run(find(where))
    items = [
        item
        for directory in directories
        if directory.is_here
        for item in _rows(directory, topic, failures)
        if not quarantined or item["state"] == "quarantined"
    ]
    if topic is not None and not items and not failures and not quarantined:
        error = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no log of it is here")
        failures.append(Failure.of(topic, error))
    show(Listing("cleaner", COLUMNS, items, failures), output)


def _rows(directory: LogDirectoryOf, topic: str | None, failures: list[Failure]) -> Iterator[Item]:
    opened = directory.open()
    offsets = read_offsets(opened, CLEANER_OFFSETS)
    try:
        status = decode_status(opened.read(STATUS_FILE))
    except StatusError as error:
        failures.append(Failure.of(f"{opened.path}/{STATUS_FILE}", error))
        status = {}
    for tp, name in partitions_in(opened):
        is_asked_for = tp in offsets or name in status if topic is None else tp.topic == topic
        if not is_asked_for:
            continue
        try:
            dirty = _dirty(opened.child(name), offsets.get(tp))
        except OSError as error:
            if not isinstance(error, FileNotFoundError):  # that was deleted since
                failures.append(Failure.of(f"{opened.path}/{name}", error))
            continue
        place = {"broker": directory.broker, "log_dir": directory.path}
        here = {"topic": tp.topic, "partition": tp.partition}
        yield place | here | dirty | _told(status.get(name, PartitionStatus()))


def _dirty(directory: ReadOnlyDirectory, checkpoint: int | None) -> Item:
    """What a cleaning would find; whether it must wait for something only the broker knows."""
    closed = list(segments_of(directory))[:-1]
    bases = [segment.base_offset for segment in closed]
    first_dirty = max(checkpoint or 0, bases[0]) if bases else checkpoint or 0
    number = max(0, bisect_right(bases, first_dirty) - 1)
    if closed and first_dirty >= closed[-1].end_offset:
        number = len(closed)
    dirty = sum(segment.size_bytes for segment in closed[number:])
    total = sum(segment.size_bytes for segment in closed)
    return {
        "first_dirty_offset": first_dirty,
        "dirty_bytes": dirty,
        "dirty_ratio": round(dirty / total, 4) if total else 0.0,
    }


def _told(status: PartitionStatus) -> Item:
    item: Item = {"state": _state(status)}
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


def _state(status: PartitionStatus) -> str:
    if status.running is not None:
        return plain(f"{status.running.phase} {status.running.percent:.0f}%")
    if status.quarantine is not None:
        return "quarantined"
    return "waiting" if status.last is None else "cleaned"
