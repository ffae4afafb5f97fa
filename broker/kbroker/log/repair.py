"""`kbroker log repair`: cut a damaged log at its damage, when nobody has what is lost of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import click

from broker.lifecycle.process_limits import monotonic_ms
from clients.output import EXIT_FAILED
from core_log.checkpoint import CLEANER_OFFSETS
from core_log.config import LogConfig
from core_log.directory import LogDirectory
from core_log.directory_name import DirectoryNameError, Kind, parse
from core_log.log import OFFSETS_TOPIC, Log
from core_log.log_dir import LogDir
from core_log.recovery.loading import load_log, truncate_damage
from protocol.topic_partition import TopicPartition


@click.command(
    "repair",
    epilog="""\b
Examples:
  kbroker log repair /var/lib/kafka/flights-3
  kbroker log repair /var/lib/kafka/flights-3 --yes""",
)
@click.argument(
    "path", metavar="PARTITION_DIR", type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.option(
    "--yes", is_flag=True, help="Cut it. Without this nothing that was synced is touched."
)
def repair(path: Path, yes: bool) -> None:
    """Read the log of one partition whole and cut it where it is damaged.

    Its broker must be stopped. A partition that has other replicas need not be repaired: start the
    broker, and the damaged one fetches again from its leader what it has lost. Only when no replica
    in sync is whole is this what brings the partition back, without the offsets that are named.

    A torn tail, which was never synced, is cut as at any start. Exits with 1 if there is damage and
    it is left.
    """
    topic_partition = partition_of(path)
    with locked(path.parent) as log_dir:
        log = read_whole(log_dir, topic_partition)
        damage = log.damage
        if damage is not None and yes:
            log = log_dir.add(truncate_damage(log))
        if damage is None or yes:
            log.close()
            log_dir.checkpoint_recovery_points()
    if damage is None:
        click.echo(f"{topic_partition} is whole: offsets {bounds(log)}")
    elif yes:
        click.echo(f"{topic_partition} was cut, it has lost {damage}")
        click.echo(f"It has offsets {bounds(log)}")
    else:
        click.echo(f"{topic_partition} is damaged, it has lost {damage}")
        click.echo("With --yes it is cut there", err=True)
        raise click.exceptions.Exit(EXIT_FAILED)


def partition_of(path: Path) -> TopicPartition:
    """Whose directory it is. Raises UsageError."""
    try:
        topic_partition, kind = parse(path.resolve().name)
    except DirectoryNameError as error:
        raise click.UsageError(f"{path} is no partition's directory: {error}") from error
    if kind is not Kind.CURRENT:
        raise click.UsageError(f"{path} is being moved or deleted")
    return topic_partition


@contextlib.contextmanager
def locked(path: Path) -> Iterator[LogDir]:
    """A log directory that no broker uses. Raises ClickException."""
    directory = LogDirectory(path)
    try:
        directory.lock()
    except OSError as error:
        raise click.ClickException(
            f"{directory.path} is used by a broker: stop it first"
        ) from error
    try:
        yield LogDir(directory)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{directory.path}: {error}") from error
    finally:
        directory.unlock()


def read_whole(log_dir: LogDir, topic_partition: TopicPartition) -> Log:
    """The log, every batch of which has been read up to where it is damaged."""
    stored_logs, _, _ = log_dir.stored_logs()
    stored = next(each for each in stored_logs if each.topic_partition == topic_partition)
    is_cleaned = topic_partition in log_dir.read_offsets(CLEANER_OFFSETS)
    is_compacted = is_cleaned or topic_partition.topic == OFFSETS_TOPIC
    log = load_log(
        stored.directory,
        topic_partition,
        LogConfig(cleanup_policy=("compact",) if is_compacted else ("delete",)),
        recovery_point=stored.recovery_point,
        clean_shutdown=stored.clean_shutdown,
        monotonic_ms=monotonic_ms,
        log_start_offset=stored.log_start_offset,
        check_all=True,
    )
    return log_dir.add(log)


def bounds(log: Log) -> str:
    """Where it starts and ends."""
    return f"{log.log_start_offset} to {log.log_end_offset}, the last one exclusive"
