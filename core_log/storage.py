"""What a log asks of a disk: a directory of files that grow at the end.

`directory.LogDirectory` is the real one and `memory_directory.MemoryDirectory` its twin; both
pass the same tests. Files are read and written at positions, so that nobody moves a pointer
another one relies on. Every call may raise OSError.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import IO, Protocol

import attrs

BytesLike = bytes | bytearray | memoryview

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors that say nothing against a disk: room can be made."""
OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR)
"""Errors that say nothing against a disk: this process, or machine, has too little of something."""
INNOCENT = (*DISK_FULL, *OUT_OF_RESOURCES)
"""All errors after which a disk is not suspected."""


class ReadableFile(Protocol):
    """An open file, as far as whoever only reads it needs to know."""

    @property
    def size(self) -> int:
        """Bytes in the file."""

    def read(self, start: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only where the file ends."""


class StorageFile(ReadableFile, Protocol):
    """An open file. It stays readable after it was renamed or removed, until nobody holds it."""

    @property
    def raw(self) -> IO[bytes]:
        """A binary file object on the same bytes, for sendfile. Its position belongs to nobody."""

    def append(self, buffers: Sequence[BytesLike]) -> None:
        """Write all of `buffers` at the end, or nothing: a failed write is cut off again."""

    def write(self, position: int, data: bytes) -> None:
        """Write inside the file, or over its end."""

    def truncate(self, size: int) -> None:
        """Cut the file, or lengthen it with zeros. The same size leaves the file untouched."""

    def reserve(self, size: int) -> None:
        """Have the disk keep room for a file of `size` bytes. What is reserved behind the file's
        end is not in `size`; whoever opens the file after a crash finds zeros there."""

    def trim(self) -> None:
        """Give back what is reserved."""

    def fsync(self) -> None:
        """Return when the bytes are safe from a power loss."""

    def write_back(self, start: int, size: int) -> None:
        """Begin to bring these bytes to the disk, in a thread: the later they are fsynced the less
        there is to wait for. Says nothing of whether they are there, and never fails."""

    def is_cached(self, start: int, size: int) -> bool:
        """Whether these bytes begin and end in memory: who reads them then waits for no disk.

        Where the system does not tell, they do.
        """

    def range(self, start: int, size: int) -> FileRange:
        """Name bytes of this file, to be sent later."""


class Directory(Protocol):
    """A directory with the files of one log, or with the directories of many."""

    @property
    def path(self) -> str:
        """Where it is, to be shown to people."""

    @property
    def name(self) -> str:
        """The last part of the path."""

    def files(self) -> list[str]:
        """The names of the files in it, sorted."""

    def children(self) -> list[str]:
        """The names of the directories in it, sorted."""

    def child(self, name: str) -> Directory:
        """The directory of that name in it; made if there is none."""

    def rename_to(self, name: str) -> None:
        """Give this directory another name beside its siblings."""

    def remove_child(self, name: str) -> None:
        """Remove a directory and all in it. Nothing happens if there is none."""

    def open_segment(self, name: str) -> StorageFile:
        """Open a file; made empty if there is none."""

    def open_existing(self, name: str) -> StorageFile:
        """Open a file that another process may be removing. Raises FileNotFoundError."""

    def size(self, name: str) -> int | None:
        """The size of a file, None if there is none."""

    def modified_ms(self, name: str) -> int:
        """When a file was last written to."""

    def set_modified_ms(self, name: str, modified_ms: int) -> None:
        """Have a file say that it was last written to then."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file, over another one if need be."""

    def remove(self, name: str) -> None:
        """Remove a file. Nothing happens if there is none."""

    def read(self, name: str) -> bytes | None:
        """A small file's bytes, None if there is none."""

    def write_atomic(self, name: str, data: bytes) -> None:
        """Replace a small file: after a crash it holds the old bytes or the new ones, whole."""

    def fsync_dir(self) -> None:
        """Make what was created, renamed and removed here safe, and this directory's own name."""

    def lock(self) -> None:
        """Take the directory for this process. Raises BlockingIOError when another one has it."""

    def unlock(self) -> None:
        """Give the directory back."""


class SyncFailed(OSError):
    """What was written may not be on disk, and nothing tells what of it: with whatever errno, room
    on the disk does not bring it back."""


def sync(file: StorageFile) -> None:
    """Return when the bytes are safe from a power loss. Raises SyncFailed."""
    try:
        file.fsync()
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror) from error


@attrs.frozen
class FileRange:
    """Bytes of a file that are not read yet; it keeps the file alive, though it be removed."""

    file: StorageFile
    start: int
    size: int

    @property
    def raw(self) -> IO[bytes]:
        """The file object to give to sendfile, with `start` and `size`."""
        return self.file.raw

    @property
    def is_cached(self) -> bool:
        """Whether sending or reading it waits for no disk."""
        return self.file.is_cached(self.start, self.size)

    def read(self) -> bytes:
        """The bytes themselves, for what is too small to be worth a sendfile."""
        return self.file.read(self.start, self.size)
