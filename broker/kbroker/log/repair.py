"""`kbroker log repair`: truncate a damaged log if no replica has the lost records."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import click

from broker.process.process_limits import monotonic_ms
from clients.command_line.output import EXIT_FAILED
from clients.command_line.printing import say
from core_log.checkpoint import CLEANER_OFFSETS
from core_log.config import LogConfig
from core_log.directory import LogDirectory
from core_log.directory_name import DirectoryNameError, Kind, parse
from core_log.log import Log
from core_log.log_dir import LogDir
from core_log.recovery.loading import load_log, truncate_damage
from protocol.internal_topics import OFFSETS_TOPIC
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
@click.option("--yes", is_flag=True, help="Truncate. Without it no synced record is touched.")
def repair(path: Path, yes: bool) -> None:
    """Read the whole log of one partition and truncate it at its first damage.

    Stop the broker first. A partition with other replicas needs no repair: start the broker, and
    the damaged replica fetches the lost records from its leader. Repair a log only if no in-sync
    replica is whole: the partition comes back without the offsets that are named.

    A torn tail, which was never synced, is truncated as at any start. Exit code 1 if the log is
    damaged and --yes is missing.
    """
    topic_partition = parse_partition(path)

    with lock_log_dir(path.parent) as log_dir:
        log = load_whole(log_dir, topic_partition)
        damage = log.damage
        if damage is not None and yes:
            log = log_dir.add(truncate_damage(log))

        # Without --yes a damaged log and the checkpoints stay as they are.
        if damage is None or yes:
            log.close()
            log_dir.checkpoint_recovery_points()

    if damage is None:
        say(f"{topic_partition} is whole: offsets {format_range(log)}")
    elif yes:
        say(f"{topic_partition} was truncated, it has lost {damage}")
        say(f"It has offsets {format_range(log)}")
    else:
        say(f"{topic_partition} is damaged, it has lost {damage}")
        say("Add --yes to truncate the log there", err=True)
        raise click.exceptions.Exit(EXIT_FAILED)


def parse_partition(path: Path) -> TopicPartition:
    """Return the partition whose directory this is. Raises UsageError."""
    try:
        topic_partition, kind = parse(path.resolve().name)
    except DirectoryNameError as error:
        raise click.UsageError(f"{path} is not the directory of a partition: {error}") from error
    if kind is not Kind.CURRENT:
        raise click.UsageError(f"{path} is being moved or deleted")
    return topic_partition


@contextlib.contextmanager
def lock_log_dir(path: Path) -> Iterator[LogDir]:
    """Lock a log directory, so that no broker uses it. Raises ClickException."""
    directory = LogDirectory(path)
    try:
        # A running broker holds the same lock.
        directory.lock()
    except OSError as error:
        raise click.ClickException(
            f"{directory.path} is used by a broker: stop it first"
        ) from error

    try:
        yield LogDir(directory)
    except (OSError, ValueError) as error:
        # Unreadable files, and checkpoints or segments that make no sense.
        raise click.ClickException(f"{directory.path}: {error}") from error
    finally:
        directory.unlock()


def load_whole(log_dir: LogDir, topic_partition: TopicPartition) -> Log:
    """Load the log, reading every batch up to the first damage."""
    # The checkpoints of the directory say how far the log was synced.
    stored_logs, _, _ = log_dir.stored_logs()
    stored = next(log for log in stored_logs if log.topic_partition == topic_partition)

    # The topic's settings are not here; a compacted log may have gaps.
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


def format_range(log: Log) -> str:
    """Format the log's first offset and its end offset."""
    return f"{log.log_start_offset} to {log.log_end_offset}, the last one exclusive"
