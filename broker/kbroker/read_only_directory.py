"""A directory of logs that is looked at and never changed, whoever may be using it.

`core_log.directory.LogDirectory` makes what is missing, and opens files to write; here nothing is
made, opened for writing or locked. What it finds may be gone the next moment: FileNotFoundError.
"""

from __future__ import annotations

import os
from pathlib import Path


class ReadOnlyFile:
    """A file as long as it was when it was opened: what is appended meanwhile is not looked at."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._fd).st_size

    def read(self, start: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only where the file ends."""
        parts: list[bytes] = []
        while size > 0 and (data := os.pread(self._fd, size, start)):
            parts.append(data)
            start, size = start + len(data), size - len(data)
        return b"".join(parts)

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            os.close(self._fd)


class ReadOnlyDirectory:
    """A directory that is there. Raises OSError if it is none."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(path)
        os.scandir(self.path).close()

    @property
    def name(self) -> str:
        """The last part of the path."""
        return os.path.basename(self.path)

    def files(self) -> list[str]:
        """The names of the files in it, sorted."""
        with os.scandir(self.path) as entries:
            return sorted(entry.name for entry in entries if entry.is_file())

    def children(self) -> list[str]:
        """The names of the directories in it, sorted."""
        with os.scandir(self.path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())

    def child(self, name: str) -> ReadOnlyDirectory:
        """The directory of that name in it."""
        return ReadOnlyDirectory(os.path.join(self.path, name))

    def open(self, name: str) -> ReadOnlyFile:
        """A file of it."""
        return ReadOnlyFile(os.path.join(self.path, name))

    open_segment = open  # for code that reads as a broker does

    def size(self, name: str) -> int | None:
        """The size of a file, None if there is none."""
        try:
            return os.stat(os.path.join(self.path, name)).st_size
        except FileNotFoundError:
            return None

    def modified_ms(self, name: str) -> int:
        """When a file was last written to."""
        return os.stat(os.path.join(self.path, name)).st_mtime_ns // 1_000_000

    def read(self, name: str) -> bytes | None:
        """A small file's bytes, None if there is none."""
        try:
            return Path(self.path, name).read_bytes()
        except FileNotFoundError:
            return None
