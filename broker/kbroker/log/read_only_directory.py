"""A directory of logs that is only read, while a broker may be using it.

`core_log.directory.LogDirectory` creates what is missing and opens files for writing. Here nothing
is created, opened for writing or locked. A file may be deleted at any time: FileNotFoundError.
"""

from __future__ import annotations

import os

from core_log.directory import ReadableDirectory


class ReadOnlyFile:
    """A file at the size it had when it was opened; later appends are not read."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._fd).st_size

    def read(self, start: int, size: int) -> bytes:
        """Return up to `size` bytes; fewer only at the end of the file."""
        parts: list[bytes] = []
        while size > 0 and (data := os.pread(self._fd, size, start)):
            parts.append(data)
            start += len(data)
            size -= len(data)
        return b"".join(parts)

    def __del__(self) -> None:
        # The constructor may have failed before it had a file.
        if hasattr(self, "_fd"):
            os.close(self._fd)


class ReadOnlyDirectory(ReadableDirectory):
    """An existing directory. Raises OSError if `path` is none."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(path)

        # Fail here and not at the first file.
        os.scandir(self.path).close()

    def child(self, name: str) -> ReadOnlyDirectory:
        """Open a sub-directory. Raises OSError."""
        return ReadOnlyDirectory(self._path_of(name))

    def open(self, name: str) -> ReadOnlyFile:
        """Open a file. Raises OSError."""
        return ReadOnlyFile(self._path_of(name))

    open_segment = open  # the broker's own recovery code calls it
