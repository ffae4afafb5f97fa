"""A disk in memory that can fill up, break and lose its power.

It passes the tests of the real directory, and offers tests three faults. When `free_bytes` runs
out, writes fail half done with ENOSPC, as on a full disk. A disk that `is_broken` fails each write
and fsync with EIO. `lose_power` keeps of each file its bytes at its last fsync, and of each
directory the names at its last fsync.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Callable, Sequence
from typing import IO

import attrs

from core_log.loop_guard import off_loop
from core_log.storage import BytesLike, FileRange

Survivor = Callable[[bytes, bytes], bytes]
"""What a power loss leaves of a file, from (its bytes at the last fsync, its bytes now)."""


@attrs.define(eq=False)
class Disk:
    """The state that the directories and files of one disk share."""

    free_bytes: int | None = None
    is_broken: bool = False
    now_ms: Callable[[], int] = lambda: 0
    locked: set[str] = attrs.field(factory=set)

    def take(self, wanted: int) -> int:
        """Use up space. Returns the bytes that were free, at most `wanted`."""
        self.check()
        if self.free_bytes is None:
            return wanted
        taken = min(wanted, self.free_bytes)
        self.free_bytes -= taken
        return taken

    def give_back(self, size: int) -> None:
        """Free space, if the disk has an end."""
        if self.free_bytes is not None:
            self.free_bytes += size

    def check(self) -> None:
        """Raise the error of a broken disk."""
        if self.is_broken:
            raise OSError(errno.EIO, "Input/output error")


@attrs.define(eq=False)
class MemoryFile:
    """The StorageFile of a MemoryDirectory: bytes, and a tail of zeros that takes no memory."""

    disk: Disk
    modified_ms: int
    # The bytes, the zeros behind them, and the file's length with reserved room.
    _now: bytearray = attrs.field(factory=bytearray, repr=False)
    _zeros: int = 0
    _reserved_to: int = 0
    # What a power loss leaves.
    _synced: bytes = attrs.field(default=b"", repr=False)
    _synced_zeros: int = 0
    # What tests set, or look at.
    _is_cold: bool = False
    written_back: list[tuple[int, int]] = attrs.field(factory=list, repr=False)

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return len(self._now) + self._zeros

    @property
    def length(self) -> int:
        """Bytes that the directory shows, with the reserved ones."""
        return max(self.size, self._reserved_to)

    def reopen(self) -> MemoryFile:
        """Turn reserved bytes into zeros, as opening the file does, and return it."""
        self._zeros = self.length - len(self._now)
        self._reserved_to = 0
        return self

    @property
    def raw(self) -> IO[bytes]:
        """A binary file object on a copy of the bytes there are now."""
        return io.BytesIO(self.read(0, self.size))

    def hold(self) -> None:
        """Do nothing: a file in memory is always open."""

    def append(self, buffers: Sequence[BytesLike]) -> None:
        """Write all of `buffers` at the end, or nothing."""
        before = self.size
        try:
            self.write(before, b"".join(buffers))
        except OSError:
            self.truncate(before)
            raise

    def write(self, position: int, data: bytes) -> None:
        """Write within the file, or across its end. A full disk takes the first bytes only."""
        end = max(self.size, position)
        over = max(0, min(len(data), len(self._now) - position))  # takes no new space
        written = over + self.disk.take(len(data) - over)
        # Bytes between the end and `position` are zeros.
        self._now.extend(bytes(max(0, position - len(self._now))))
        self._now[position : position + written] = data[:written]
        self._zeros = max(0, end - len(self._now))
        self.modified_ms = self.disk.now_ms()

        # As on a real disk the first bytes are written, and stay.
        if written < len(data):
            raise OSError(errno.ENOSPC, "No space left on device")

    def read(self, start: int, size: int) -> bytes:
        """Read up to `size` bytes; fewer only at the file's end."""
        self._is_cold = False
        size = max(0, min(size, self.size - start))
        return bytes(self._now[start : start + size]).ljust(size, b"\0")

    def truncate(self, size: int) -> None:
        """Shorten the file, or lengthen it with zeros."""
        if size != self.size:
            # Zeros take no space, so they give none back.
            self.disk.give_back(max(0, len(self._now) - size))
            del self._now[size:]
            self._zeros = size - len(self._now)
            self._reserved_to = 0
            self.modified_ms = self.disk.now_ms()

    def reserve(self, size: int) -> None:
        """Reserve room on the disk for a file of `size` bytes."""
        # This only looks whether there is room: nothing is taken.
        if self.disk.free_bytes is not None and size - self.size > self.disk.free_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")
        if size > self.size:
            self._reserved_to = size

    def trim(self) -> None:
        """Release the reserved bytes."""
        self._reserved_to = 0

    def remove(self) -> None:
        """Free the file's space. It stays readable for those who hold it."""
        self.disk.give_back(len(self._now))

    @off_loop
    def fsync(self) -> None:
        """Make the bytes safe from `lose_power`."""
        self.disk.check()
        self._synced = bytes(self._now)
        self._synced_zeros = self._zeros

    @off_loop
    def write_back(self, start: int, size: int) -> None:
        """Note the bytes that the disk was told to begin with."""
        self.written_back.append((start, size))

    def range(self, start: int, size: int) -> FileRange:
        """Name bytes of this file, to send them later."""
        return FileRange(self, start, size)

    def is_cached(self, start: int, size: int) -> bool:
        """True if a read would wait for no disk."""
        return not self._is_cold

    def grow_cold(self) -> None:
        """Leave the page cache until the next read."""
        self._is_cold = True

    def lose_power(self, survivor: Survivor) -> None:
        """Fall back to the bytes of the last fsync, or to what `survivor` leaves."""
        # What has survived is on the disk.
        self._synced = survivor(self._synced, bytes(self._now))
        self._now = bytearray(self._synced)
        self._zeros = self._synced_zeros


@attrs.define(eq=False)
class MemoryDirectory:
    """The Directory in memory. The first one is the root, the others are its children."""

    name: str = "memory"
    disk: Disk = attrs.field(factory=Disk, repr=False)
    parent: MemoryDirectory | None = attrs.field(default=None, repr=False)
    # The present names, and those that a power loss leaves.
    _files: dict[str, MemoryFile] = attrs.field(factory=dict, repr=False)
    _children: dict[str, MemoryDirectory] = attrs.field(factory=dict, repr=False)
    _synced_files: dict[str, MemoryFile] = attrs.field(factory=dict, repr=False)
    _synced_children: dict[str, MemoryDirectory] = attrs.field(factory=dict, repr=False)

    @property
    def path(self) -> str:
        """Path of the directory, to show to people."""
        return f"{self.parent.path if self.parent else ''}/{self.name}"

    @off_loop
    def files(self) -> list[str]:
        """List the names of its files, sorted."""
        return sorted(self._files)

    @off_loop
    def children(self) -> list[str]:
        """List the names of the directories in it, sorted."""
        return sorted(self._children)

    def child(self, name: str) -> MemoryDirectory:
        """Return the directory of that name in it. It is created if there is none."""
        if name not in self._children:
            self._children[name] = MemoryDirectory(name, self.disk, self)
        return self._children[name]

    @off_loop
    def rename_to(self, name: str) -> None:
        """Give this directory another name beside its siblings."""
        assert self.parent is not None
        self.parent._children[name] = self.parent._children.pop(self.name)
        self.name = name

    @off_loop
    def remove_child(self, name: str) -> None:
        """Remove a directory and all in it. Nothing happens if there is none."""
        child = self._children.pop(name, None)
        if child is not None:
            child.remove_all()

    def remove_all(self) -> None:
        """Free the space of all files in it and in its directories."""
        for name in self.files():
            self.remove(name)
        for name in self.children():
            self.remove_child(name)

    def open_segment(self, name: str) -> MemoryFile:
        """Open a file. It is created if there is none."""
        return self._files.setdefault(name, MemoryFile(self.disk, self.disk.now_ms())).reopen()

    def open_existing(self, name: str) -> MemoryFile:
        """Open a file that another process may be removing. Raises FileNotFoundError."""
        return self._existing(name).reopen()

    def size(self, name: str) -> int | None:
        """Return the size of a file, None if there is none."""
        return self._files[name].length if name in self._files else None

    def modified_ms(self, name: str) -> int:
        """Return when a file was last written to. Raises FileNotFoundError."""
        return self._existing(name).modified_ms

    def set_modified_ms(self, name: str, modified_ms: int) -> None:
        """Set the time when a file was last written to."""
        self._existing(name).modified_ms = modified_ms

    @off_loop
    def rename(self, old: str, new: str) -> None:
        """Rename a file, over another one if there is one. Raises FileNotFoundError."""
        # A missing file raises before the other one is removed.
        self._existing(old)
        # The file that had the name gives its space back.
        if new != old:
            self.remove(new)
        self._files[new] = self._files.pop(old)

    def remove(self, name: str) -> None:
        """Remove a file. Nothing happens if there is none."""
        if name in self._files:
            self._unlink(name)

    @off_loop
    def _unlink(self, name: str) -> None:
        self._files.pop(name).remove()

    def read(self, name: str) -> bytes | None:
        """Read a small file, None if there is none."""
        file = self._files.get(name)
        return None if file is None else file.read(0, file.size)

    @off_loop
    def write_atomic(self, name: str, data: bytes) -> None:
        """Replace a small file: after a crash it holds the old bytes or the new ones, whole."""
        # The old file stays until the new one is whole.
        file = MemoryFile(self.disk, self.disk.now_ms())
        file.append([data])
        file.fsync()
        self.remove(name)
        self._files[name] = file

    @off_loop
    def fsync_dir(self) -> None:
        """Make created, renamed and removed names safe from a power loss, and its own name too."""
        self.disk.check()
        self._synced_files = dict(self._files)
        self._synced_children = dict(self._children)

        # The parent knows this directory by its present name only.
        if self.parent is not None:
            siblings = self.parent._synced_children
            for name in [name for name, child in siblings.items() if child is self]:
                del siblings[name]
            siblings[self.name] = self

    def lock(self) -> None:
        """Lock the directory. Raises BlockingIOError if it is locked."""
        if self.path in self.disk.locked:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        self.disk.locked.add(self.path)

    def unlock(self) -> None:
        """Unlock the directory."""
        self.disk.locked.discard(self.path)

    def lose_power(self, survivor: Survivor = lambda synced, now: synced) -> None:
        """Fall back to what is safe. `survivor` may leave more of a file, even torn."""
        self.disk.locked.clear()
        # Names that were not synced are undone.
        self._files = dict(self._synced_files)
        self._children = dict(self._synced_children)

        # So are bytes that were not synced, unless `survivor` leaves them.
        for file in self._files.values():
            file.lose_power(survivor)
        for name, child in self._children.items():
            child.name = name
            child.lose_power(survivor)

    def _existing(self, name: str) -> MemoryFile:
        if name not in self._files:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", name)
        return self._files[name]
