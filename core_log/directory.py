"""A directory of logs on a real disk.

A child renames itself (a deleted partition becomes `…-delete`), and whoever holds the child goes
on using it under the new name: nothing is written under the old one afterwards (KAFKA-5099).
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from core_log.loop_guard import off_loop
from core_log.segments.segment_file import SegmentFile

LOCK_NAME = ".lock"

T = TypeVar("T")


class ReadableDirectory:
    """What is in the directory at `path`: this changes nothing. Raises OSError where it is none."""

    path: str
    next_path: str | None = None
    """What it is about to be called, or is called already."""

    @property
    def name(self) -> str:
        """The last part of the path."""
        return os.path.basename(self.path)

    @off_loop
    def files(self) -> list[str]:
        """The names of the files in it, sorted."""
        with os.scandir(self.path) as entries:
            return sorted(entry.name for entry in entries if entry.is_file())

    @off_loop
    def children(self) -> list[str]:
        """The names of the directories in it, sorted."""
        with os.scandir(self.path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())

    def size(self, name: str) -> int | None:
        """The size of a file, None if there is none."""
        return self._found(name, lambda path: os.stat(path).st_size)

    def modified_ms(self, name: str) -> int:
        """When a file was last written to."""
        found = self._found(name, lambda path: os.stat(path).st_mtime_ns)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._of(name))
        return found // 1_000_000

    def read(self, name: str) -> bytes | None:
        """A small file's bytes, None if there is none."""
        return self._found(name, lambda path: Path(path).read_bytes())

    def _found(self, name: str, ask: Callable[[str], T]) -> T | None:
        """What `ask` finds at the path of a file, None if there is none. The directory may be
        renamed by another thread meanwhile."""
        before = self.path
        try:
            return ask(f"{before}/{name}")
        except FileNotFoundError:
            now = self.next_path or self.path
        if now == before:
            return None
        try:
            return ask(f"{now}/{name}")
        except FileNotFoundError:
            return None

    def _of(self, name: str) -> str:
        return f"{self.path}/{name}"


class LogDirectory(ReadableDirectory):
    """The real Directory. Made if it is missing, unless it should be there and `create` is False;
    the path is kept absolute (KAFKA-5759)."""

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True) -> None:
        self.path = os.path.realpath(path)
        self._name_is_new = not os.path.isdir(self.path)
        if create:
            os.makedirs(self.path, exist_ok=True)
        self._lock_fd: int | None = None

    def child(self, name: str) -> LogDirectory:
        """The directory of that name in it; made if there is none."""
        return LogDirectory(self._of(name))

    @off_loop
    def rename_to(self, name: str) -> None:
        """Give this directory another name beside its siblings."""
        renamed = os.path.join(os.path.dirname(self.path), name)
        self.next_path = renamed
        try:
            os.rename(self.path, renamed)
            self.path = renamed
        finally:
            self.next_path = None
        self._name_is_new = True

    @off_loop
    def remove_child(self, name: str) -> None:
        """Remove a directory and all in it. Nothing happens if there is none."""
        if os.path.isdir(self._of(name)):
            shutil.rmtree(self._of(name))

    def open_segment(self, name: str) -> SegmentFile:
        """Open a file; made empty if there is none."""
        found = self._found(name, SegmentFile)
        if found is None:  # the directory is gone
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._of(name))
        return found

    def open_existing(self, name: str) -> SegmentFile:
        """Open a file that another process may be removing. Raises FileNotFoundError."""
        return SegmentFile(self._of(name), create=False)

    def set_modified_ms(self, name: str, modified_ms: int) -> None:
        """Have a file say that it was last written to then."""
        modified_ns = modified_ms * 1_000_000
        os.utime(self._of(name), ns=(modified_ns, modified_ns))

    @off_loop
    def rename(self, old: str, new: str) -> None:
        """Rename a file, over another one if need be."""
        os.replace(self._of(old), self._of(new))

    def remove(self, name: str) -> None:
        """Remove a file. Nothing happens if there is none."""
        if self.size(name) is not None:
            self._unlink(name)

    @off_loop
    def _unlink(self, name: str) -> None:
        Path(self._of(name)).unlink(missing_ok=True)

    @off_loop
    def write_atomic(self, name: str, data: bytes) -> None:
        """Replace a small file: after a crash it holds the old bytes or the new ones, whole.

        The bytes are on disk before the rename, or a power loss could leave an empty file under
        the name (KAFKA-1539).
        """
        temporary = self._of(name + ".tmp")
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._of(name))

    @off_loop
    def fsync_dir(self) -> None:
        """Make what was created, renamed and removed here safe, and this directory's own name."""
        _fsync_directory(self.path)
        if self._name_is_new:
            _fsync_directory(os.path.dirname(self.path))
            self._name_is_new = False

    def lock(self) -> None:
        """Take the directory for this process. Raises BlockingIOError when another one has it.

        A JVM broker takes the POSIX lock of `.lock`; that one does not hold between two servers
        of one process, so flock is taken besides.
        """
        fd = os.open(self._of(LOCK_NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        self._lock_fd = fd

    def unlock(self) -> None:
        """Give the directory back."""
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None


def _fsync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
