"""A file of a segment on a real disk.

It is open while it is used, and closed when `OpenFiles` needs its place. Then the next use opens it
again, by the name that its directory has now.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
from collections.abc import Callable, Sequence
from typing import Protocol, cast
from weakref import ref

from core_log.loop_guard import off_loop
from core_log.open_files import OPEN_FILES
from core_log.storage import BytesLike, FileRange

__all__ = ["FileRange", "SegmentFile"]

# Linux only. With 0 the probes of `is_cached` wait, and always succeed.
RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
# SYNC_FILE_RANGE_WRITE of <fcntl.h>: begin to write, wait for nothing.
SYNC_FILE_RANGE_WRITE = 2


def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Return Linux's sync_file_range, if the C library has it.

    It begins to write pages, and waits only for room in the disk's queue.
    """
    try:
        # CDLL(None) is this process, with the C library in it.
        function = ctypes.CDLL(None).sync_file_range
    except (AttributeError, OSError, TypeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return cast(Callable[[int, int, int, int], int], function)


SYNC_FILE_RANGE = _sync_file_range()


class Place(Protocol):
    """The directory of a file: where it is, which another thread may change."""

    @property
    def path(self) -> str:
        """Path of the directory."""

    def open_at(self, name: str, flags: int) -> int:
        """Open a file in it, wherever a rename has it now. Raises OSError."""


class SharedFile(io.FileIO):
    """A file that closes quietly when its last holder lets go.

    Readers may hold ranges of a segment that retention has removed, so only the reference count
    knows when to close it.
    """

    def __init__(self, descriptor: int) -> None:
        self.fd = descriptor
        super().__init__(descriptor, "r+")

    def __del__(self) -> None:
        # Before the close: another file may get the number at once.
        OPEN_FILES.discard(self.fd)
        # FileIO would warn of a file that nobody closed.
        self.close()


class SegmentFile:
    """The StorageFile of `directory.LogDirectory`. It knows its size without the disk."""

    __slots__ = (
        "__weakref__",
        "_directory",
        "_is_held",
        "_name",
        "_open",
        "_reserved",
        "is_used",
        "size",
    )

    def __init__(self, directory: Place, name: str, *, create: bool = True) -> None:
        self._directory = directory
        self._name = name
        self._open: SharedFile | None = None
        self._is_held = False
        self._reserved = False
        self.is_used = False

        opened = SharedFile(directory.open_at(name, os.O_RDWR | (os.O_CREAT if create else 0)))
        self.size = os.fstat(opened.fd).st_size
        self._keep(opened)

    @property
    def raw(self) -> SharedFile:
        """The open file. Whoever keeps it keeps it open, even if it is closed for others.

        Raises OSError if it was closed, and cannot be opened again.
        """
        self.is_used = True
        return self._open or self._reopen()

    def hold(self) -> None:
        """Keep the file open from now on: its name is about to change, or to go. Raises OSError."""
        opened = self.raw
        self._is_held = True
        OPEN_FILES.discard(opened.fd)
        # It may have been closed since.
        self._open = opened

    def let_go(self) -> None:
        """Close the file as soon as nobody is using it. The next use opens it again."""
        if not self._is_held:
            self._open = None

    def _keep(self, opened: SharedFile) -> None:
        self._open = opened
        OPEN_FILES.add(opened.fd, ref(self))

    def _reopen(self) -> SharedFile:
        # A file that was removed, or has another name, was held before: its name is its own.
        opened = SharedFile(self._directory.open_at(self._name, os.O_RDWR))
        self._keep(opened)
        return opened

    def append(self, buffers: Sequence[BytesLike]) -> None:
        """Write all of `buffers` at the end, or nothing: a failed write is taken back."""
        total = sum(map(len, buffers))
        # As `raw` does: this is done for each batch.
        self.is_used = True
        raw = self._open or self._reopen()
        try:
            # One call as a rule. After a short write the rest shows what is wrong.
            written = os.pwritev(raw.fd, buffers, self.size)
            if written < total:
                _write_all(raw, self.size + written, b"".join(buffers)[written:])
        except OSError:
            # If this fails too, the first error is the one to raise.
            with contextlib.suppress(OSError):
                os.ftruncate(raw.fd, self.size)
            raise
        self.size += total

    def write(self, position: int, data: bytes) -> None:
        """Write within the file, or across its end."""
        _write_all(self.raw, position, data)
        self.size = max(self.size, position + len(data))

    def read(self, start: int, size: int) -> bytes:
        """Read up to `size` bytes; fewer only at the file's end."""
        # Reserved bytes read as zeros, and are no part of the file.
        if self._reserved:
            size = max(0, min(size, self.size - start))
        self.is_used = True
        raw = self._open or self._reopen()
        data = os.pread(raw.fd, size, start)
        if len(data) == size or not data:
            return data

        # A read may be short before the file ends (KAFKA-4576): go on.
        parts = [data]
        while data and (size := size - len(data)):
            start += len(data)
            data = os.pread(raw.fd, size, start)
            parts.append(data)
        return b"".join(parts)

    def is_cached(self, start: int, size: int) -> bool:
        """True if these bytes begin and end in the page cache, by reads that do not wait.

        True also where no such reads exist (not on Linux, not on this file system).
        """
        probe = bytearray(1)
        try:
            raw = self.raw
            for position in {start, start + max(size, 1) - 1}:
                os.preadv(raw.fd, [probe], position, RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def truncate(self, size: int) -> None:
        """Shorten the file, or lengthen it with zeros. The same size leaves mtime (KAFKA-3802)."""
        if size != self.size:
            os.ftruncate(self.raw.fd, size)
            self.size = size
            # ftruncate has released the reserved bytes too.
            self._reserved = False

    def reserve(self, size: int) -> None:
        """Reserve room on the disk for a file of `size` bytes. A full disk raises now."""
        if size > self.size:
            if hasattr(os, "posix_fallocate"):
                # Unlike ftruncate this allocates blocks.
                os.posix_fallocate(self.raw.fd, 0, size)
            else:
                os.ftruncate(self.raw.fd, size)  # macOS
            self._reserved = True

    def trim(self) -> None:
        """Release the reserved bytes."""
        if self._reserved:
            os.ftruncate(self.raw.fd, self.size)
            self._reserved = False

    @off_loop
    def fsync(self) -> None:
        """Return when the bytes are safe from a power loss. May run in another thread."""
        try:
            raw = self.raw
        except FileNotFoundError:  # a file that was removed has nothing to keep
            return
        os.fsync(raw.fd)

    @off_loop
    def write_back(self, start: int, size: int) -> None:
        """Have the system begin to write these bytes to the disk, if it can."""
        if SYNC_FILE_RANGE is not None:
            raw = self.raw
            SYNC_FILE_RANGE(raw.fd, start, size, SYNC_FILE_RANGE_WRITE)

    def range(self, start: int, size: int) -> FileRange:
        """Name bytes of this file, to send them later."""
        return FileRange(self, start, size)


def _write_all(raw: SharedFile, position: int, data: bytes) -> None:
    while data:  # one write may be short (KAFKA-4576)
        written = os.pwrite(raw.fd, data, position)
        position += written
        data = data[written:]
