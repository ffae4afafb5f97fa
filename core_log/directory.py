"""A directory of logs on a real disk.

A child can rename itself (a deleted partition becomes `…-delete`). Whoever holds the child goes on
with it under the new name, and nothing is written under the old one (KAFKA-5099).
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from core_log.loop_guard import off_loop
from core_log.open_files import OPEN_FILES, open_descriptor
from core_log.segments.segment_file import SegmentFile

LOCK_NAME = ".lock"
FILE_MODE = 0o644

T = TypeVar("T")


class ReadableDirectory:
    """A directory at `path` that is only read. Raises OSError if there is none."""

    path: str
    next_path: str | None = None
    """The path during a rename, when either may be the valid one."""

    @property
    def name(self) -> str:
        """Last part of the path."""
        return os.path.basename(self.path)

    @off_loop
    def files(self) -> list[str]:
        """List the names of its files, sorted."""
        with OPEN_FILES.with_descriptor(lambda: os.scandir(self.path)) as entries:
            return sorted(entry.name for entry in entries if entry.is_file())

    @off_loop
    def children(self) -> list[str]:
        """List the names of the directories in it, sorted."""
        with OPEN_FILES.with_descriptor(lambda: os.scandir(self.path)) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())

    def size(self, name: str) -> int | None:
        """Return the size of a file, None if there is none."""
        return self._look_up(name, lambda path: os.stat(path).st_size)

    def modified_ms(self, name: str) -> int:
        """Return when a file was last written to. Raises FileNotFoundError."""
        modified_ns = self._look_up(name, lambda path: os.stat(path).st_mtime_ns)
        if modified_ns is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._path_of(name))
        return modified_ns // 1_000_000

    def read(self, name: str) -> bytes | None:
        """Read a small file, None if there is none."""
        return self._look_up(name, _read_whole)

    def _look_up(self, name: str, read: Callable[[str], T]) -> T | None:
        """Call `read` with the path of a file. Returns None if there is no such file.

        Another thread may rename the directory meanwhile: then the new path is tried too.
        """
        before = self.path
        try:
            return read(f"{before}/{name}")
        except FileNotFoundError:
            # Look under the name that a rename gives it, or has given it.
            now = self.next_path or self.path
        if now == before:
            return None

        try:
            return read(f"{now}/{name}")
        except FileNotFoundError:
            return None

    def _path_of(self, name: str) -> str:
        return f"{self.path}/{name}"


class LogDirectory(ReadableDirectory):
    """The real Directory, at an absolute path (KAFKA-5759).

    It is created if it is missing, unless `create` is False. Links in the path are followed, unless
    `resolve` is False.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, create: bool = True, resolve: bool = True
    ) -> None:
        self.path = os.path.realpath(path) if resolve else os.path.abspath(path)
        # `fsync_dir` syncs a new name in its parent, too.
        self._name_is_new = not os.path.isdir(self.path)
        if create:
            os.makedirs(self.path, exist_ok=True)
        self._lock_fd: int | None = None

    def child(self, name: str) -> LogDirectory:
        """Return the directory of that name in it. It is created if there is none."""
        # A link is renamed, and not what it leads to.
        # (fault strangers-115, was: LogDirectory(self._path_of(name)))
        return LogDirectory(self._path_of(name), resolve=False)

    @off_loop
    def rename_to(self, name: str) -> None:
        """Give this directory another name beside its siblings."""
        renamed = os.path.join(os.path.dirname(self.path), name)
        # Either path may be valid from here on: readers try both.
        self.next_path = renamed
        try:
            os.rename(self.path, renamed)
            self.path = renamed
        finally:
            self.next_path = None
        self._name_is_new = True

    @off_loop
    def remove_child(self, name: str) -> None:
        """Remove a directory and all in it, and a link to it. Nothing happens if there is none."""
        path = self._path_of(name)
        if os.path.isdir(path):
            shutil.rmtree(os.path.realpath(path))
        if os.path.islink(path):
            os.unlink(path)

    def open_segment(self, name: str) -> SegmentFile:
        """Open a file. It is created if there is none."""
        return SegmentFile(self, name)

    def open_existing(self, name: str) -> SegmentFile:
        """Open a file that another process may be removing. Raises FileNotFoundError."""
        return SegmentFile(self, name, create=False)

    def open_at(self, name: str, flags: int) -> int:
        """Open a file, wherever a rename has the directory now. Raises OSError."""
        while True:
            before = self.path
            descriptor = self._look_up(name, lambda path: open_descriptor(path, flags, FILE_MODE))
            if descriptor is None:
                error = os.strerror(errno.ENOENT)
                raise FileNotFoundError(errno.ENOENT, error, self._path_of(name))
            # The directory that has the name now may be another topic's, or another disk's copy.
            if self.path == before:
                return descriptor
            os.close(descriptor)

    def set_modified_ms(self, name: str, modified_ms: int) -> None:
        """Set the time when a file was last written to."""
        modified_ns = modified_ms * 1_000_000
        os.utime(self._path_of(name), ns=(modified_ns, modified_ns))

    @off_loop
    def rename(self, old: str, new: str) -> None:
        """Rename a file, over another one if there is one."""
        os.replace(self._path_of(old), self._path_of(new))

    def remove(self, name: str) -> None:
        """Remove a file. Nothing happens if there is none."""
        # A new segment looks for leftovers on the event loop: mostly there are none.
        if self.size(name) is not None:
            self._unlink(name)

    @off_loop
    def _unlink(self, name: str) -> None:
        Path(self._path_of(name)).unlink(missing_ok=True)

    @off_loop
    def write_atomic(self, name: str, data: bytes) -> None:
        """Replace a small file: after a crash it holds the old bytes or the new ones, whole.

        The bytes are on disk before the rename. Otherwise a power loss could leave an empty file
        under the name (KAFKA-1539).
        """
        temporary = self._path_of(name + ".tmp")
        # A leftover of a crash has this name, and is overwritten.
        with open(temporary, "wb", opener=open_descriptor) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._path_of(name))

    @off_loop
    def fsync_dir(self) -> None:
        """Make created, renamed and removed names safe from a power loss, and its own name too."""
        _fsync_directory(self.path)
        if self._name_is_new:
            _fsync_directory(os.path.dirname(self.path))
            self._name_is_new = False

    def lock(self) -> None:
        """Lock the directory for this process. Raises BlockingIOError if another one holds it.

        A JVM broker takes the POSIX lock of `.lock`. That one does not hold between two servers of
        one process, so flock is taken too.
        """
        import fcntl  # not on Windows, which runs no broker and imports it for the simulation

        fd = open_descriptor(self._path_of(LOCK_NAME), os.O_RDWR | os.O_CREAT, FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            # This releases the lock that was taken, if one was.
            os.close(fd)
            raise
        self._lock_fd = fd

    def unlock(self) -> None:
        """Unlock the directory."""
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None


def _read_whole(path: str) -> bytes:
    with open(path, "rb", opener=open_descriptor) as file:
        return file.read()


def _fsync_directory(path: str) -> None:
    fd = open_descriptor(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
