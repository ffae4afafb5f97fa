"""`kbroker log verify`: whether what is on disk is whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from broker.kbroker.log.faults import Fault
from broker.kbroker.log.read_only_directory import ReadOnlyDirectory
from broker.kbroker.log.verify_log_dir import DirectoryCheck, is_log_directory
from clients.output import EXIT_FAILED, Column, Listing, output_option, show

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
    """Look for damage in a log directory, or in one partition's, changing nothing.

    Every batch is held to its checksum, every record to its batch, indexes to their logs, and
    checkpoints, epochs, snapshots and meta.properties to what they must be. The directory may be in
    use. Exits with 1 if there is a fault.

    OUTCOME is what a broker that starts makes of it: `cut`, what was not synced is dropped;
    `off-line`, something synced is lost, and the partition waits for another replica to give it
    again, or for `kbroker log repair`; `rebuilt`, `removed`, `ignored`, the file is made anew,
    goes, or counts for nothing; `split`, the segment is made into two; `unnoticed`, the broker does
    not look there until somebody reads it; `refused`, the broker does not start.
    """
    directory = ReadOnlyDirectory(path)
    if not is_log_directory(directory):
        raise click.UsageError(f"{path} is no log directory: it has no partition and no checkpoint")
    check = DirectoryCheck(directory)
    faults = list(faults_of(check))
    show(Listing("faults", COLUMNS, [fault.item() for fault in faults]), output)
    click.echo(format_summary(check, len(faults)), err=True)
    if faults:
        raise click.exceptions.Exit(EXIT_FAILED)


def faults_of(
    check: DirectoryCheck, clock: Callable[[], float] = time.monotonic
) -> Iterator[Fault]:
    """Run the check; how far it is goes to stderr now and then. `clock` is in seconds."""
    done = 0
    said = clock()
    for found in check.run():
        if isinstance(found, Fault):
            yield found
            continue
        done += found.size_bytes
        now = clock()
        if now - said >= PROGRESS_EVERY_S:
            said = now
            click.echo(
                f"verified {in_megabytes(done)} of {in_megabytes(check.total_bytes)}", err=True
            )


def format_summary(check: DirectoryCheck, faults: int) -> str:
    """The line at the end."""
    return (
        f"{counted(check.partitions, 'partition')}, {counted(check.segments, 'segment')},"
        f" {in_megabytes(check.total_bytes)}: {counted(faults, 'fault')}"
    )


def counted(count: int, noun: str) -> str:
    """A count and its noun."""
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"


def in_megabytes(size_bytes: int) -> str:
    """A size for people."""
    return f"{size_bytes / 1e6:.1f} MB"
