"""Look at a whole log directory: what it says of itself, its checkpoints, and every log in it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress

import attrs

from broker.kbroker.log.faults import Fault, Found, Outcome, unreadable
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

BEYOND = {
    RECOVERY_POINTS: Outcome.OFF_LINE,
    LOG_START_OFFSETS: Outcome.CUT,
    HIGH_WATERMARKS: Outcome.IGNORED,
    CLEANER_OFFSETS: Outcome.IGNORED,
}
"""What becomes of an offset that is behind the log's end, by the checkpoint that has it."""
BESIDE_A_LOG = (INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT)


def _compacted(directory: ReadOnlyDirectory) -> set[str]:
    """The partitions in a log directory that a cleaner has seen to, or will."""
    found: set[str] = set()
    with suppress(CheckpointError):
        found |= {str(partition) for partition in decode_offsets(directory.read(CLEANER_OFFSETS))}
    with suppress(StatusError):
        found |= decode_status(directory.read(STATUS_FILE)).keys()
    return found


def is_partition(directory: ReadOnlyDirectory) -> bool:
    """Whether a directory is one partition's, and not one of many logs; its log may be lost."""
    files = directory.files()
    if any(name.endswith((LOG, *BESIDE_A_LOG)) for name in files):
        return True
    try:
        parse(directory.name)
    except DirectoryNameError:
        return False
    return not directory.children() and META_PROPERTIES not in files


def is_log_directory(directory: ReadOnlyDirectory) -> bool:
    """Whether anything in a directory shows that it is a broker's, or a partition's."""
    signs = {META_PROPERTIES, CLEAN_SHUTDOWN, *BEYOND}
    return (
        is_partition(directory)
        or bool(directory.children())
        or not signs.isdisjoint(directory.files())
    )


@attrs.define(eq=False)
class DirectoryCheck:
    """A log directory, or a partition's alone; the counts are of what was looked at so far."""

    directory: ReadOnlyDirectory
    partitions: int = 0
    segments: int = 0
    total_bytes: int = 0

    def run(self) -> Iterator[Found]:
        """All faults, and what was looked at. Raises OSError."""
        if is_partition(self.directory):
            yield from self._one()
        else:
            yield from self._many()

    def _one(self) -> Iterator[Found]:
        """A partition's directory; the one it is in may have the checkpoints."""
        try:
            partition, _ = parse(self.directory.name)
        except DirectoryNameError:
            partition = None
        around = ReadOnlyDirectory(f"{self.directory.path}/..")
        points = self._read(around, RECOVERY_POINTS)
        self.total_bytes = _log_bytes(self.directory)
        point = 0 if partition is None or isinstance(points, Fault) else points.get(partition, 0)
        marks = Marks(point, _is_clean(around), self.directory.name in _compacted(around))
        check = yield from self._partition(self.directory, "", partition, marks)
        if not isinstance(points, Fault):
            yield from _beyond(check, {RECOVERY_POINTS: points})

    def _many(self) -> Iterator[Found]:
        checkpoints: dict[str, dict[TopicPartition, int]] = {}
        for name in BEYOND:
            found = self._read(self.directory, name)
            if isinstance(found, Fault):
                yield found
            else:
                checkpoints[name] = found
        yield from self._meta_properties()
        logs: list[tuple[str, TopicPartition]] = []
        for name in self.directory.children():
            try:
                partition, kind = parse(name)
            except DirectoryNameError as error:
                yield Fault(None, name, str(error), Outcome.REFUSED)
                continue
            if kind is not Kind.DELETED:
                logs.append((name, partition))
        opened = []
        for name, partition in logs:
            try:
                directory = self.directory.child(name)
                self.total_bytes += _log_bytes(directory)
            except FileNotFoundError:
                continue  # it was deleted since
            except OSError as error:
                yield unreadable(partition, name, error)
                continue
            opened.append((name, partition, directory))
        points = checkpoints.get(RECOVERY_POINTS, {})
        compacted = _compacted(self.directory)
        is_clean = _is_clean(self.directory)
        for name, partition, directory in opened:
            marks = Marks(points.get(partition, 0), is_clean, str(partition) in compacted)
            check = yield from self._partition(directory, name, partition, marks)
            yield from _beyond(check, checkpoints)

    def _partition(
        self,
        directory: ReadOnlyDirectory,
        name: str,
        partition: TopicPartition | None,
        marks: Marks,
    ) -> Generator[Found, None, PartitionCheck]:
        check = PartitionCheck(directory, name, partition, marks)
        try:
            yield from check.run()
        except FileNotFoundError:
            pass  # it was deleted since
        except OSError as error:
            yield unreadable(partition, name or ".", error)
        self.partitions += 1
        self.segments += check.segments
        return check

    def _meta_properties(self) -> Iterator[Fault]:
        try:
            text = self.directory.read(META_PROPERTIES)
            if text is not None:
                MetaProperties.decode(text)
        except InconsistentMetaProperties as error:
            yield Fault(None, META_PROPERTIES, str(error), Outcome.REFUSED)

    def _read(self, directory: ReadOnlyDirectory, name: str) -> dict[TopicPartition, int] | Fault:
        try:
            return decode_offsets(directory.read(name))
        except CheckpointError as error:
            return Fault(None, name, str(error), Outcome.IGNORED)


def _beyond(
    check: PartitionCheck, checkpoints: dict[str, dict[TopicPartition, int]]
) -> Iterator[Fault]:
    """What the checkpoints say of a log that it has not."""
    end = check.log_end_offset
    for name, offsets in checkpoints.items():
        offset = offsets.get(check.partition, 0) if check.partition is not None else 0
        if offset > end:
            what = f"says {offset}, and the log ends at {end}"
            lost = (end, offset - 1) if name == RECOVERY_POINTS else (None, None)
            yield Fault(check.partition, name, what, BEYOND[name], None, *lost)


def _is_clean(directory: ReadOnlyDirectory) -> bool:
    return directory.size(CLEAN_SHUTDOWN) is not None


def _log_bytes(directory: ReadOnlyDirectory) -> int:
    return sum(directory.size(name) or 0 for name in directory.files() if name.endswith(LOG))
