"""The disk as a log sees it: a directory of files that grow at the end.

`directory.LogDirectory` is the real one, `memory_directory.MemoryDirectory` its twin; both pass the
same tests. Files are read and written at positions, so there is no file pointer to share. Every
call may raise OSError.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import IO, Protocol

from protocol.frozen import frozen

BytesLike = bytes | bytearray | memoryview

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a disk that is full, not bad: room can be made."""
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
"""Errors of a process, or machine, that can open nothing now."""
OUT_OF_RESOURCES = (*NO_DESCRIPTOR, errno.ENOMEM, errno.EINTR)
"""Errors of a process, or machine, that is short of something. The disk is not to blame."""
INNOCENT = (*DISK_FULL, *OUT_OF_RESOURCES)
"""All errors after which the disk is not suspected."""


class ReadableFile(Protocol):
    """An open file that can be read."""

    @property
    def size(self) -> int:
        """Bytes in the file."""

    def read(self, start: int, size: int) -> bytes:
        """Read up to `size` bytes; fewer only at the file's end."""


class StorageFile(ReadableFile, Protocol):
    """A file. After `hold` it stays readable without its name, until nobody refers to it."""

    @property
    def raw(self) -> IO[bytes]:
        """A binary file object on the same bytes, for sendfile. Do not rely on its position."""

    def hold(self) -> None:
        """Keep the file open from now on: its name is about to change, or to go. Raises OSError.

        Other files may be closed while they are not used, and are opened again by their names.
        """

    def append(self, buffers: Sequence[BytesLike]) -> None:
        """Write all of `buffers` at the end, or nothing: a failed write is taken back."""

    def write(self, position: int, data: bytes) -> None:
        """Write within the file, or across its end."""

    def truncate(self, size: int) -> None:
        """Shorten the file, or lengthen it with zeros. The same size leaves the file untouched."""

    def reserve(self, size: int) -> None:
        """Reserve room on the disk for a file of `size` bytes.

        Reserved bytes behind the file's end do not count in `size`. Whoever opens the file after
        a crash finds zeros there.
        """

    def trim(self) -> None:
        """Release the reserved bytes."""

    def fsync(self) -> None:
        """Return when the bytes are safe from a power loss."""

    def write_back(self, start: int, size: int) -> None:
        """Begin to write these bytes to the disk, in a thread, so that a later fsync waits less.

        This does not say whether they are on the disk, and never fails.
        """

    def is_cached(self, start: int, size: int) -> bool:
        """True if these bytes begin and end in memory, so that a read waits for no disk.

        True also where the system cannot tell.
        """

    def range(self, start: int, size: int) -> FileRange:
        """Name bytes of this file, to send them later."""


class Directory(Protocol):
    """A directory with the files of one log, or with the directories of many."""

    @property
    def path(self) -> str:
        """Path of the directory, to show to people."""

    @property
    def name(self) -> str:
        """Last part of the path."""

    def files(self) -> list[str]:
        """List the names of its files, sorted."""

    def children(self) -> list[str]:
        """List the names of the directories in it, sorted."""

    # Directories in it

    def child(self, name: str) -> Directory:
        """Return the directory of that name in it. It is created if there is none."""

    def rename_to(self, name: str) -> None:
        """Give this directory another name beside its siblings."""

    def remove_child(self, name: str) -> None:
        """Remove a directory and all in it. Nothing happens if there is none."""

    # Files in it

    def open_segment(self, name: str) -> StorageFile:
        """Open a file. It is created if there is none."""

    def open_existing(self, name: str) -> StorageFile:
        """Open a file that another process may be removing. Raises FileNotFoundError."""

    def size(self, name: str) -> int | None:
        """Return the size of a file, None if there is none."""

    def modified_ms(self, name: str) -> int:
        """Return when a file was last written to."""

    def set_modified_ms(self, name: str, modified_ms: int) -> None:
        """Set the time when a file was last written to."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file, over another one if there is one."""

    def remove(self, name: str) -> None:
        """Remove a file. Nothing happens if there is none."""

    def read(self, name: str) -> bytes | None:
        """Read a small file, None if there is none."""

    def write_atomic(self, name: str, data: bytes) -> None:
        """Replace a small file: after a crash it holds the old bytes or the new ones, whole."""

    # Safety from a power loss, and from another process

    def fsync_dir(self) -> None:
        """Make created, renamed and removed names safe from a power loss, and its own name too."""

    def lock(self) -> None:
        """Lock the directory for this process. Raises BlockingIOError if another one holds it."""

    def unlock(self) -> None:
        """Unlock the directory."""


class SyncFailed(OSError):
    """An fsync failed, and it is unknown which bytes are on disk.

    Whatever the errno is, room on the disk does not bring them back.
    """


def sync(file: StorageFile) -> None:
    """Return when the bytes are safe from a power loss. Raises SyncFailed.

    Raises another OSError, with nothing lost, for a file that cannot be opened for it now.
    """
    try:
        file.fsync()
    except OSError as error:
        # It was closed at rest: no sync was tried, and the next one covers its bytes.
        if error.errno in NO_DESCRIPTOR:
            raise
        raise SyncFailed(error.errno, error.strerror) from error


@frozen
class FileRange:
    """Bytes of a file, not read yet. The range keeps the file alive even if it is removed."""

    file: StorageFile
    start: int
    size: int

    @property
    def raw(self) -> IO[bytes]:
        """The file object to give to sendfile, with `start` and `size`."""
        return self.file.raw

    @property
    def is_cached(self) -> bool:
        """True if sending or reading the range waits for no disk."""
        return self.file.is_cached(self.start, self.size)

    def read(self) -> bytes:
        """Read the bytes, if they are too few to be worth a sendfile."""
        return self.file.read(self.start, self.size)
