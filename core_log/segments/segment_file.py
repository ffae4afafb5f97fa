"""A file of a segment on a real disk."""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
from collections.abc import Callable, Sequence
from typing import cast

from core_log.loop_guard import off_loop
from core_log.storage import BytesLike, FileRange

__all__ = ["FileRange", "SegmentFile"]

RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
SYNC_FILE_RANGE_WRITE = 2


def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Linux's, where the C library has it: it begins to write pages, and waits for nothing but room
    in the disk's queue."""
    try:
        found = ctypes.CDLL(None).sync_file_range
    except (AttributeError, OSError, TypeError):
        return None
    found.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return cast(Callable[[int, int, int, int], int], found)


SYNC_FILE_RANGE = _sync_file_range()


class SharedFile(io.FileIO):
    """A file that closes quietly when its last holder lets go.

    Readers may hold ranges of a segment that retention has dropped since, so nobody knows the
    right moment to close it but the reference count.
    """

    def __del__(self) -> None:
        self.close()


class SegmentFile:
    """The StorageFile of `directory.LogDirectory`. Its size is kept, not asked of the disk."""

    __slots__ = ("_fd", "_reserved", "raw", "size")

    def __init__(self, path: str, *, create: bool = True) -> None:
        self.raw = SharedFile(path, "r+", opener=_create if create else None)
        self._fd = self.raw.fileno()
        self.size = os.fstat(self._fd).st_size
        self._reserved = False

    def append(self, buffers: Sequence[BytesLike]) -> None:
        """Write all of `buffers` at the end, or nothing: a failed write is cut off again."""
        total = sum(map(len, buffers))
        try:
            written = os.pwritev(self._fd, buffers, self.size)
            if written < total:
                self._write_all(self.size + written, b"".join(buffers)[written:])
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self.size)
            raise
        self.size += total

    def write(self, position: int, data: bytes) -> None:
        """Write inside the file, or over its end."""
        self._write_all(position, data)
        self.size = max(self.size, position + len(data))

    def read(self, start: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only where the file ends."""
        if self._reserved:
            size = max(0, min(size, self.size - start))
        data = os.pread(self._fd, size, start)
        if len(data) == size or not data:
            return data
        parts = [data]
        while data and (size := size - len(data)):
            start += len(data)
            data = os.pread(self._fd, size, start)
            parts.append(data)
        return b"".join(parts)

    def is_cached(self, start: int, size: int) -> bool:
        """Whether these bytes begin and end in the page cache, asked by reads that do not wait.

        Where there are none (not on Linux, not on this file system), nobody can tell: they do.
        """
        probe = bytearray(1)
        try:
            for position in {start, start + max(size, 1) - 1}:
                os.preadv(self._fd, [probe], position, RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def truncate(self, size: int) -> None:
        """Cut the file, or lengthen it with zeros. The same size leaves its mtime (KAFKA-3802)."""
        if size != self.size:
            os.ftruncate(self._fd, size)
            self.size, self._reserved = size, False

    def reserve(self, size: int) -> None:
        """Have the disk keep room for a file of `size` bytes: a full disk says so now."""
        if size > self.size:
            os.posix_fallocate(self._fd, 0, size)
            self._reserved = True

    def trim(self) -> None:
        """Give back what is reserved."""
        if self._reserved:
            os.ftruncate(self._fd, self.size)
            self._reserved = False

    @off_loop
    def fsync(self) -> None:
        """Return when the bytes are safe from a power loss. May run in another thread."""
        os.fsync(self._fd)

    @off_loop
    def write_back(self, start: int, size: int) -> None:
        """Have the system begin to write these bytes to the disk, if it can be told to."""
        if SYNC_FILE_RANGE is not None:
            SYNC_FILE_RANGE(self._fd, start, size, SYNC_FILE_RANGE_WRITE)

    def range(self, start: int, size: int) -> FileRange:
        """Name bytes of this file, to be sent later."""
        return FileRange(self, start, size)

    def _write_all(self, position: int, data: bytes) -> None:
        while data:  # one write may be short (KAFKA-4576)
            written = os.pwrite(self._fd, data, position)
            position += written
            data = data[written:]


def _create(path: str, _flags: int) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
