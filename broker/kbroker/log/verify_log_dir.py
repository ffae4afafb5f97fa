"""Verify a whole log directory: its meta.properties, its checkpoints, and every log in it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress

import attrs

from broker.kbroker.log.faults import Fault, Finding, Outcome, unreadable_file
from broker.kbroker.log.read_only_directory import ReadOnlyDirectory
from broker.kbroker.log.verify_partition import Marks, PartitionCheck
from compaction.status import STATUS_FILE, StatusError, decode_status
from core_log.checkpoint import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    CheckpointError,
    decode_offsets,
)
from core_log.directory_name import DirectoryNameError, Kind, parse
from core_log.log_dir import CLEAN_SHUTDOWN
from core_log.meta_properties import META_PROPERTIES, InconsistentMetaProperties, MetaProperties
from core_log.producers.producer_snapshots import SNAPSHOT
from core_log.segments.file_name import INDEX, LOG, TIME_INDEX, TRANSACTION_INDEX
from protocol.topic_partition import TopicPartition

CHECKPOINT_OUTCOMES = {
    RECOVERY_POINTS: Outcome.OFF_LINE,
    LOG_START_OFFSETS: Outcome.CUT,
    HIGH_WATERMARKS: Outcome.IGNORED,
    CLEANER_OFFSETS: Outcome.IGNORED,
}
"""Checkpoint -> the outcome of an offset in it that is above the log end offset."""
SUFFIXES_BESIDE_LOGS = (INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT)


def _list_compacted(directory: ReadOnlyDirectory) -> set[str]:
    """Return the directory names of partitions that a cleaner has looked at."""
    names: set[str] = set()
    with suppress(CheckpointError):
        names |= {str(partition) for partition in decode_offsets(directory.read(CLEANER_OFFSETS))}

    with suppress(StatusError):
        names |= decode_status(directory.read(STATUS_FILE)).keys()
    return names


def is_partition(directory: ReadOnlyDirectory) -> bool:
    """True if a directory belongs to one partition, even if its log is lost."""
    files = directory.files()
    if any(name.endswith((LOG, *SUFFIXES_BESIDE_LOGS)) for name in files):
        return True
    try:
        parse(directory.name)
    except DirectoryNameError:
        return False

    # A log directory may have such a name, as `broker-0` has: it holds other directories.
    return not directory.children() and META_PROPERTIES not in files


def is_log_directory(directory: ReadOnlyDirectory) -> bool:
    """True if a directory shows any sign of a log directory or of a partition."""
    signs = {META_PROPERTIES, CLEAN_SHUTDOWN, *CHECKPOINT_OUTCOMES}
    return (
        is_partition(directory)
        or bool(directory.children())
        or not signs.isdisjoint(directory.files())
    )


@attrs.define(eq=False)
class DirectoryCheck:
    """The check of a log directory, or of one partition; the counts grow while it runs."""

    directory: ReadOnlyDirectory
    partitions: int = 0
    segments: int = 0
    total_bytes: int = 0

    def run(self) -> Iterator[Finding]:
        """Yield all faults, and the bytes that were verified. Raises OSError."""
        if is_partition(self.directory):
            yield from self._check_lone_partition()
        else:
            yield from self._check_log_directory()

    def _check_lone_partition(self) -> Iterator[Finding]:
        """Check the directory of one partition; the directory above may have checkpoints."""
        try:
            partition, _ = parse(self.directory.name)
        except DirectoryNameError:
            # A copy under another name: no checkpoint knows it.
            partition = None

        parent = ReadOnlyDirectory(f"{self.directory.path}/..")
        points = self._read_checkpoint(parent, RECOVERY_POINTS)

        # A checkpoint that cannot be read counts as absent, as at a start.
        if partition is None or isinstance(points, Fault):
            recovery_point = 0
        else:
            recovery_point = points.get(partition, 0)
        is_compacted = self.directory.name in _list_compacted(parent)
        marks = Marks(recovery_point, _is_clean(parent), is_compacted)

        self.total_bytes = _log_bytes(self.directory)
        check = yield from self._check_partition(self.directory, "", partition, marks)
        if not isinstance(points, Fault):
            yield from _check_offsets(check, {RECOVERY_POINTS: points})

    def _check_log_directory(self) -> Iterator[Finding]:
        # The checkpoints and meta.properties.
        checkpoints: dict[str, dict[TopicPartition, int]] = {}
        for name in CHECKPOINT_OUTCOMES:
            checkpoint = self._read_checkpoint(self.directory, name)
            if isinstance(checkpoint, Fault):
                yield checkpoint
            else:
                checkpoints[name] = checkpoint
        yield from self._check_meta_properties()

        # The directories of partitions, all of them first: progress needs the total size.
        logs: list[tuple[str, TopicPartition]] = []
        for name in self.directory.children():
            try:
                partition, kind = parse(name)
            except DirectoryNameError as error:
                yield Fault(None, name, str(error), Outcome.REFUSED)
                continue

            # A starting broker removes what is marked for deletion.
            if kind is not Kind.DELETED:
                logs.append((name, partition))

        opened = []
        for name, partition in logs:
            try:
                directory = self.directory.child(name)
                self.total_bytes += _log_bytes(directory)
            except FileNotFoundError:
                continue  # deleted meanwhile
            except OSError as error:
                yield unreadable_file(partition, name, error)
                continue
            opened.append((name, partition, directory))

        # Each partition.
        points = checkpoints.get(RECOVERY_POINTS, {})
        compacted = _list_compacted(self.directory)
        is_clean = _is_clean(self.directory)
        for name, partition, directory in opened:
            marks = Marks(points.get(partition, 0), is_clean, str(partition) in compacted)
            check = yield from self._check_partition(directory, name, partition, marks)
            yield from _check_offsets(check, checkpoints)

    def _check_partition(
        self,
        directory: ReadOnlyDirectory,
        name: str,
        partition: TopicPartition | None,
        marks: Marks,
    ) -> Generator[Finding, None, PartitionCheck]:
        check = PartitionCheck(directory, name, partition, marks)
        try:
            yield from check.run()
        except FileNotFoundError:
            pass  # deleted meanwhile
        except OSError as error:
            yield unreadable_file(partition, name or ".", error)

        self.partitions += 1
        self.segments += check.segments
        return check

    def _check_meta_properties(self) -> Iterator[Fault]:
        try:
            text = self.directory.read(META_PROPERTIES)
            if text is not None:
                MetaProperties.decode(text)
        except InconsistentMetaProperties as error:
            yield Fault(None, META_PROPERTIES, str(error), Outcome.REFUSED)

    def _read_checkpoint(
        self, directory: ReadOnlyDirectory, name: str
    ) -> dict[TopicPartition, int] | Fault:
        try:
            return decode_offsets(directory.read(name))
        except CheckpointError as error:
            return Fault(None, name, str(error), Outcome.IGNORED)


def _check_offsets(
    check: PartitionCheck, checkpoints: dict[str, dict[TopicPartition, int]]
) -> Iterator[Fault]:
    """Yield a fault for each checkpoint with an offset above the log end offset."""
    end = check.log_end_offset
    for name, offsets in checkpoints.items():
        offset = offsets.get(check.partition, 0) if check.partition is not None else 0
        if offset > end:
            description = f"has offset {offset}, but the log ends at {end}"

            # All below the recovery point was synced, so records are missing.
            lost = (end, offset - 1) if name == RECOVERY_POINTS else (None, None)
            outcome = CHECKPOINT_OUTCOMES[name]
            yield Fault(check.partition, name, description, outcome, None, *lost)


def _is_clean(directory: ReadOnlyDirectory) -> bool:
    return directory.size(CLEAN_SHUTDOWN) is not None


def _log_bytes(directory: ReadOnlyDirectory) -> int:
    return sum(directory.size(name) or 0 for name in directory.files() if name.endswith(LOG))
