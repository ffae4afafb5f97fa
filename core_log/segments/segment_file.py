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


class SharedFile(io.FileIO):
    """A file that closes quietly when its last holder lets go.

    Readers may hold ranges of a segment that retention has removed, so only the reference count
    knows when to close it.
    """

    def __del__(self) -> None:
        # FileIO would warn of a file that nobody closed.
        self.close()


class SegmentFile:
    """The StorageFile of `directory.LogDirectory`. It knows its size without the disk."""

    __slots__ = ("_fd", "_reserved", "raw", "size")

    def __init__(self, path: str, *, create: bool = True) -> None:
        self.raw = SharedFile(path, "r+", opener=_create if create else None)
        self._fd = self.raw.fileno()
        self.size = os.fstat(self._fd).st_size
        self._reserved = False

    def append(self, buffers: Sequence[BytesLike]) -> None:
        """Write all of `buffers` at the end, or nothing: a failed write is taken back."""
        total = sum(map(len, buffers))
        try:
            # One call as a rule. After a short write the rest shows what is wrong.
            written = os.pwritev(self._fd, buffers, self.size)
            if written < total:
                self._write_all(self.size + written, b"".join(buffers)[written:])
        except OSError:
            # If this fails too, the first error is the one to raise.
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self.size)
            raise
        self.size += total

    def write(self, position: int, data: bytes) -> None:
        """Write within the file, or across its end."""
        self._write_all(position, data)
        self.size = max(self.size, position + len(data))

    def read(self, start: int, size: int) -> bytes:
        """Read up to `size` bytes; fewer only at the file's end."""
        # Reserved bytes read as zeros, and are no part of the file.
        if self._reserved:
            size = max(0, min(size, self.size - start))
        data = os.pread(self._fd, size, start)
        if len(data) == size or not data:
            return data

        # A read may be short before the file ends (KAFKA-4576): go on.
        parts = [data]
        while data and (size := size - len(data)):
            start += len(data)
            data = os.pread(self._fd, size, start)
            parts.append(data)
        return b"".join(parts)

    def is_cached(self, start: int, size: int) -> bool:
        """True if these bytes begin and end in the page cache, by reads that do not wait.

        True also where no such reads exist (not on Linux, not on this file system).
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
        """Shorten the file, or lengthen it with zeros. The same size leaves mtime (KAFKA-3802)."""
        if size != self.size:
            os.ftruncate(self._fd, size)
            self.size = size
            # ftruncate has released the reserved bytes too.
            self._reserved = False

    def reserve(self, size: int) -> None:
        """Reserve room on the disk for a file of `size` bytes. A full disk raises now."""
        if size > self.size:
            # Unlike ftruncate this allocates blocks.
            os.posix_fallocate(self._fd, 0, size)
            self._reserved = True

    def trim(self) -> None:
        """Release the reserved bytes."""
        if self._reserved:
            os.ftruncate(self._fd, self.size)
            self._reserved = False

    @off_loop
    def fsync(self) -> None:
        """Return when the bytes are safe from a power loss. May run in another thread."""
        os.fsync(self._fd)

    @off_loop
    def write_back(self, start: int, size: int) -> None:
        """Have the system begin to write these bytes to the disk, if it can."""
        if SYNC_FILE_RANGE is not None:
            SYNC_FILE_RANGE(self._fd, start, size, SYNC_FILE_RANGE_WRITE)

    def range(self, start: int, size: int) -> FileRange:
        """Name bytes of this file, to send them later."""
        return FileRange(self, start, size)

    def _write_all(self, position: int, data: bytes) -> None:
        while data:  # one write may be short (KAFKA-4576)
            written = os.pwrite(self._fd, data, position)
            position += written
            data = data[written:]


def _create(path: str, _flags: int) -> int:
    # The mode "r+" alone would not create the file.
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
