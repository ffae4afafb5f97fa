"""`kbroker log verify`: check log directories for damage."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from broker.kbroker.log.faults import Fault
from broker.kbroker.log.read_only_directory import ReadOnlyDirectory
from broker.kbroker.log.verify_log_dir import DirectoryCheck, is_log_directory
from clients.command_line.output import EXIT_FAILED, Column, Listing, output_option, show
from clients.command_line.printing import say

COLUMNS = (
    Column("TOPIC"),
    Column("PARTITION"),
    Column("FILE"),
    Column("POSITION"),
    Column("FIRST-OFFSET"),
    Column("LAST-OFFSET"),
    Column("OUTCOME"),
    Column("FAULT"),
)

PROGRESS_EVERY_S = 5.0


@click.command(
    "verify",
    epilog="""\b
Examples:
  kbroker log verify /var/lib/kafka
  kbroker log verify dev/broker-0/flights-3 -o json""",
)
@click.argument(
    "path", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@output_option
def verify(path: Path, output: str) -> None:
    """Look for damage in a log directory, or in the directory of one partition; change nothing.

    The checks: each batch has the right checksum, each record fits its batch, indexes agree with
    their logs, and checkpoints, leader epochs, snapshots and meta.properties are valid. The
    directory may be in use. Exit code 1 if there is a fault.

    OUTCOME is what a starting broker does. `cut`: it truncates the log; what is lost was not
    synced. `off-line`: synced records are lost; the partition waits for another replica to supply
    them, or for `kbroker log repair`. `rebuilt`, `removed`, `ignored`: it builds the file from the
    log, deletes it, or treats it as absent. `split`: it makes two segments of the one. `unnoticed`:
    it does nothing until somebody reads there. `refused`: it does not start.
    """
    directory = ReadOnlyDirectory(path)
    if not is_log_directory(directory):
        raise click.UsageError(
            f"{path} is not a log directory: it has no partition and no checkpoint"
        )

    check = DirectoryCheck(directory)

    # The whole check first: its counts are complete only at the end.
    faults = list(find_faults(check))
    show(Listing("faults", COLUMNS, [fault.to_item() for fault in faults]), output)
    say(format_summary(check, len(faults)), err=True)
    if faults:
        raise click.exceptions.Exit(EXIT_FAILED)


def find_faults(
    check: DirectoryCheck, clock: Callable[[], float] = time.monotonic
) -> Iterator[Fault]:
    """Run the check and yield its faults; report progress on stderr. `clock` is in seconds."""
    verified_bytes = 0
    reported_at_s = clock()

    for finding in check.run():
        if isinstance(finding, Fault):
            yield finding
            continue

        verified_bytes += finding.size_bytes
        now_s = clock()

        # A log of gigabytes takes minutes: show that something happens.
        if now_s - reported_at_s >= PROGRESS_EVERY_S:
            reported_at_s = now_s
            progress = (
                f"{format_megabytes(verified_bytes)} of {format_megabytes(check.total_bytes)}"
            )
            say(f"verified {progress}", err=True)


def format_summary(check: DirectoryCheck, faults: int) -> str:
    """Format the last line: counts and sizes."""
    return (
        f"{format_count(check.partitions, 'partition')}, {format_count(check.segments, 'segment')},"
        f" {format_megabytes(check.total_bytes)}: {format_count(faults, 'fault')}"
    )


def format_count(count: int, noun: str) -> str:
    """Format a count with its noun."""
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"


def format_megabytes(size_bytes: int) -> str:
    """Format a size in megabytes."""
    return f"{size_bytes / 1e6:.1f} MB"
