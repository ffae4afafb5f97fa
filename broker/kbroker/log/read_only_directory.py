"""A directory of logs that is looked at and never changed, whoever may be using it.

`core_log.directory.LogDirectory` makes what is missing, and opens files to write; here nothing is
made, opened for writing or locked. What it finds may be gone the next moment: FileNotFoundError.
"""

from __future__ import annotations

import os

from core_log.directory import ReadableDirectory


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


class ReadOnlyDirectory(ReadableDirectory):
    """A directory that is there. Raises OSError if it is none."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(path)
        os.scandir(self.path).close()

    def child(self, name: str) -> ReadOnlyDirectory:
        """The directory of that name in it."""
        return ReadOnlyDirectory(self._path_of(name))

    def open(self, name: str) -> ReadOnlyFile:
        """A file of it."""
        return ReadOnlyFile(self._path_of(name))

    open_segment = open  # for code that reads as a broker does
