"""The files that spare a log from being read whole for its producers.

    00000000000000001200.snapshot      the producers of all that is below offset 1200

One is written when a segment is rolled and when the log is closed or was recovered:

    int16 version 1 | uint32 CRC-32C of what follows | int32 count | entries:
    int64 producer id | int16 epoch | int32 last sequence | int64 last offset | int32 offset delta
    int64 last timestamp | int32 coordinator epoch | int64 first offset of an open transaction

The format is Kafka's (ProducerStateManager). Only a producer's last batch is in it. A file is
written and fsynced by the next flush, off the event loop. The checksum reveals a torn file. It is
removed, and an older one serves, with more of the log behind it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Mapping
from struct import Struct

import attrs
from crc32c import crc32c

from core_log.producers.producer_state import (
    NO_MARKER,
    NONE,
    REMEMBERED_BATCHES,
    Marker,
    ProducedBatch,
    Producer,
)
from core_log.segments.file_name import base_offset_of, file_name
from core_log.storage import Directory, StorageFile

SNAPSHOT = ".snapshot"
VERSION = 1

MOST_UNWRITTEN = 2
"""Snapshots that wait for the next flush: recovery reads back to the last but one segment."""

_HEAD = Struct(">hIi")
_CRC_COVERS_FROM = 6
_ENTRY = Struct(">qhiqiqiq")

logger = logging.getLogger(__name__)


class CorruptSnapshot(ValueError):
    """A snapshot whose bytes are wrong."""


def snapshot_name(offset: int) -> str:
    """Name the file of the snapshot of all below `offset`."""
    return file_name(offset, SNAPSHOT)


def encode(producers: Mapping[int, Producer]) -> bytes:
    """Encode a snapshot, in the order of producer ids."""
    head = bytearray(_HEAD.pack(VERSION, 0, len(producers)))
    body = b"".join(_encode_producer(number, producers[number]) for number in sorted(producers))
    # The checksum covers the count in the head too.
    crc = crc32c(body, crc32c(head[_CRC_COVERS_FROM:]))
    return _HEAD.pack(VERSION, crc, len(producers)) + body


def decode(snapshot: bytes, end_offset: int = 0) -> dict[int, Producer]:
    """Decode a snapshot of all below `end_offset`. Raises CorruptSnapshot."""
    # A crash may have torn the file: size, version, checksum and count must all fit.
    if len(snapshot) < _HEAD.size:
        raise CorruptSnapshot(f"{len(snapshot)} bytes are no snapshot")
    version, crc, count = _HEAD.unpack_from(snapshot)
    if version != VERSION:
        raise CorruptSnapshot(f"version {version} is unknown")
    if crc32c(snapshot[_CRC_COVERS_FROM:]) != crc:
        raise CorruptSnapshot("the checksum is wrong")
    if len(snapshot) != _HEAD.size + count * _ENTRY.size:
        raise CorruptSnapshot(f"{len(snapshot)} bytes do not hold {count} producers")

    entries = _ENTRY.iter_unpack(snapshot[_HEAD.size :])
    return dict(_decode_producer(entry, end_offset) for entry in entries)


def _encode_producer(producer_id: int, producer: Producer) -> bytes:
    # Offset -1: nothing but a marker is known of this producer.
    last = producer.batches[-1] if producer.batches else ProducedBatch(NONE, NONE, 0, NONE)
    return _ENTRY.pack(
        producer_id,
        producer.epoch,
        last.last_sequence,
        last.last_offset,
        last.offset_delta,
        producer.last_timestamp,
        producer.coordinator_epoch,
        producer.transaction_start,
    )


def _decode_producer(entry: tuple[int, ...], end_offset: int) -> tuple[int, Producer]:
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, start = entry
    # The other batches that were remembered are lost: a copy of one is out of order.
    batches = [ProducedBatch(sequence, offset, delta, timestamp)] if offset >= 0 else []
    # The file does not say where the last marker is, only that it is below the end.
    has_marker = coordinator_epoch != NONE or not batches
    return producer_id, Producer(
        epoch,
        deque(batches, REMEMBERED_BATCHES),
        timestamp,
        coordinator_epoch,
        start,
        marker=Marker(end_offset - 1, timestamp) if has_marker else NO_MARKER,
    )


@attrs.define(eq=False)
class Snapshot:
    """The producers of all below `offset`, to be written. None of them changes any more."""

    directory: Directory
    offset: int
    _producers: Mapping[int, Producer]
    _file: StorageFile | None = None

    @property
    def is_written(self) -> bool:
        """True if the producers are in the file."""
        return self._file is not None

    def write(self) -> StorageFile:
        """Write the file in any thread, unless that is done; return it. Raises OSError."""
        if self._file is None:
            file = self.directory.open_segment(snapshot_name(self.offset))
            # A leftover of this name is overwritten.
            file.truncate(0)
            file.append([encode(self._producers)])
            self._file, self._producers = file, {}
        return self._file


@attrs.define(eq=False)
class ProducerSnapshots:
    """The snapshots of one log, by their `offsets`.

    All below `covered` is in the last snapshot, or before the log's beginning, so that no other
    snapshot is needed there. `unflushed` are those for the next flush.
    """

    directory: Directory
    offsets: list[int]
    covered: int = 0
    unflushed: list[Snapshot] = attrs.field(factory=list)

    @classmethod
    def find(cls, directory: Directory) -> ProducerSnapshots:
        """Find the snapshots in a log's directory."""
        names = [name for name in directory.files() if name.endswith(SNAPSHOT)]
        return cls(directory, sorted(map(base_offset_of, names)))

    def newest(self, start_offset: int, end_offset: int) -> dict[int, Producer]:
        """Read the newest good snapshot from `start_offset` to `end_offset`.

        Sets `covered` to its offset, or to `start_offset` without one. Any other snapshot is of a
        log that was truncated since, or lacks what came before `start_offset` was reached. It is
        removed from the disk before anything else is written.
        """
        self._remove([o for o in self.offsets if not start_offset <= o <= end_offset])
        self.write()

        # The newest that can be read serves, with the log behind it.
        while self.offsets:
            self.covered = self.offsets[-1]
            try:
                return decode(self.directory.read(snapshot_name(self.covered)) or b"", self.covered)
            except CorruptSnapshot as error:
                logger.warning("%s: snapshot %d: %s", self.directory.path, self.covered, error)
                self._remove([self.covered])
        self.covered = start_offset
        return {}

    def remove_from(self, offset: int) -> None:
        """Remove the snapshots above `offset` from the disk, before anything else is written."""
        self._remove([taken for taken in self.offsets if taken > offset])
        self.covered = self.offsets[-1] if self.offsets else min(self.covered, offset)

    def take(self, offset: int, producers: Mapping[int, Producer]) -> bool:
        """Take the producers of all below `offset`, unless that is covered; return whether.

        They may not change until they are written.
        """
        if offset <= self.covered:
            return False
        # To encode 150,000 takes 0.1 s, to copy this 2 ms (fault strangers-12).
        self.unflushed.append(Snapshot(self.directory, offset, dict(producers)))
        self.offsets.append(offset)
        self.covered = offset

        # After a flush no older ones are of use, and each has a copy in memory.
        unwritten = [taken.offset for taken in self.unflushed if not taken.is_written]
        for needless in unwritten[:-MOST_UNWRITTEN]:
            self.offsets.remove(needless)
            self._forget_taken()
        return True

    def write(self) -> None:
        """Write now what was taken. Raises OSError."""
        for snapshot in self.unflushed:
            snapshot.write()

    @property
    def is_written(self) -> bool:
        """True if all that was taken is written."""
        return all(snapshot.is_written for snapshot in self.unflushed)

    def note_flushed(self, snapshots: Collection[Snapshot]) -> list[int]:
        """Note that these are on disk. Returns those that were given up while they were written.

        The caller removes their files.
        """
        self.unflushed = [snapshot for snapshot in self.unflushed if snapshot not in snapshots]
        return [taken.offset for taken in snapshots if taken.offset not in self.offsets]

    def take_before(self, offset: int) -> list[int]:
        """Take out the snapshots below `offset`, from where the log is not read again.

        The caller removes their files.
        """
        needless = [snapshot for snapshot in self.offsets if snapshot < offset]
        self.offsets = self.offsets[len(needless) :]
        self._forget_taken()
        return needless

    def clear(self, offset: int) -> None:
        """Remove all: the log starts again at `offset`."""
        self._remove(self.offsets)
        self.covered = offset

    def _remove(self, offsets: list[int]) -> None:
        """Remove snapshots so that no power loss brings them back beside other batches."""
        for offset in offsets:
            self.directory.remove(snapshot_name(offset))
        if offsets:
            self.directory.fsync_dir()
        self.offsets = [kept for kept in self.offsets if kept not in offsets]
        self._forget_taken()

    def _forget_taken(self) -> None:
        self.unflushed = [taken for taken in self.unflushed if taken.offset in self.offsets]
