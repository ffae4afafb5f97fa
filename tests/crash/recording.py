"""A disk that records all operations on it, so that any moment can be rebuilt.

`Disk` holds files and directories as numbered nodes, as a file system holds inodes: a name is an
entry of a directory, so that what a file holds and what it is called reach the platter apart from
each other. Whatever goes through `RecordingDirectory` and `RecordingFile`, the Directory and
StorageFile of these tests, becomes an Operation; `Tree.apply` does one. Operations done again one
by one, all or some of them (`power_loss.py`), are a disk that crashed.

An atomic write is its five steps here: the temporary file is made, written, synced, renamed; and
as on a real disk nothing but a sync of the directory makes the rename safe.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from typing import IO

import attrs

from core_log.storage import BytesLike, FileRange

ROOT = 0


@attrs.frozen
class Write:
    """Bytes into a file; a gap before them is filled with zeros."""

    node: int
    position: int
    data: bytes = attrs.field(repr=lambda data: f"{len(data)} bytes")


@attrs.frozen
class Resize:
    """A file is shortened, or lengthened with zeros."""

    node: int
    size: int


@attrs.frozen
class Link:
    """A new name in directory `node`, for a new file or directory."""

    node: int
    name: str
    target: int
    is_directory: bool = False

    @property
    def names(self) -> set[str]:
        """The names it is about."""
        return {self.name}


@attrs.frozen
class Move:
    """Another name in directory `node` for what `old` was."""

    node: int
    old: str
    new: str

    @property
    def names(self) -> set[str]:
        """The names it is about."""
        return {self.old, self.new}


@attrs.frozen
class Unlink:
    """A name is taken out of directory `node`."""

    node: int
    name: str

    @property
    def names(self) -> set[str]:
        """The names it is about."""
        return {self.name}


@attrs.frozen
class Sync:
    """An fsync of a file, or of a directory: its own operations before are safe."""

    node: int


NameOperation = Link | Move | Unlink
Operation = Write | Resize | NameOperation | Sync


@attrs.define(eq=False)
class Tree:
    """What is on a disk: the bytes of each file, the names in each directory, by node."""

    files: dict[int, bytes] = attrs.field(factory=dict)
    names: dict[int, dict[str, int]] = attrs.field(factory=lambda: {ROOT: {}})

    def copy(self) -> Tree:
        """Another one, that changes apart from this one."""
        return Tree(dict(self.files), {node: dict(names) for node, names in self.names.items()})

    def apply(self, operation: Operation) -> None:
        """Do it. What names say that are not there, because an earlier step is left out, is not
        done."""
        match operation:
            case Write(node, position, data):
                self.files[node] = written(self.files[node], position, data)
            case Resize(node, size):
                self.files[node] = self.files[node][:size].ljust(size, b"\0")
            case Link(node, name, target, is_directory):
                self.make(target, is_directory)
                self.names[node][name] = target
            case Move(node, old, new):
                if old in self.names[node]:
                    self.names[node][new] = self.names[node].pop(old)
            case Unlink(node, name):
                self.names[node].pop(name, None)

    def make(self, node: int, is_directory: bool) -> None:
        """Have the node, though no name may lead to it."""
        if is_directory:
            self.names.setdefault(node, {})
        else:
            self.files.setdefault(node, b"")

    def paths(self, node: int = ROOT, prefix: str = "") -> Iterator[tuple[str, bytes | None]]:
        """All that has a name: the path and the bytes of each file, None for a directory."""
        for name, target in sorted(self.names[node].items()):
            if target in self.names:
                yield prefix + name, None
                yield from self.paths(target, f"{prefix}{name}/")
            else:
                yield prefix + name, self.files[target]


def written(before: bytes, position: int, data: bytes) -> bytes:
    """Return a file's bytes after a write."""
    head = before[:position].ljust(position, b"\0")
    return head + data + before[position + len(data) :]


@attrs.define(eq=False)
class Disk:
    """The disk as those who use it see it, and what they did to it since it was `at first`."""

    now_ms: Callable[[], int]
    tree: Tree = attrs.field(factory=Tree)
    operations: list[Operation] = attrs.field(factory=list)
    modified_ms: dict[int, int] = attrs.field(factory=dict)
    _nodes: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._nodes = max([ROOT, *self.tree.files, *self.tree.names])

    @property
    def root(self) -> RecordingDirectory:
        """The directory that has all others."""
        return RecordingDirectory(self, ROOT, "logs", None)

    def do(self, operation: Operation) -> None:
        """Do it, and remember that it was done."""
        self.operations.append(operation)
        self.tree.apply(operation)
        if isinstance(operation, Write | Resize):
            self.modified_ms[operation.node] = self.now_ms()

    def link(self, directory: int, name: str, *, is_directory: bool = False) -> int:
        """Make something new under a name; its node."""
        self._nodes += 1
        self.do(Link(directory, name, self._nodes, is_directory))
        return self._nodes


@attrs.define(eq=False)
class RecordingFile:
    """The StorageFile of a RecordingDirectory."""

    disk: Disk
    node: int
    size: int
    _reserved: bool = False

    @property
    def raw(self) -> IO[bytes]:
        """A binary file object on a copy of the bytes there are now."""
        return io.BytesIO(self.read(0, self.size))

    def hold(self) -> None:
        """Do nothing: a file here is always open."""

    def append(self, buffers: Sequence[BytesLike]) -> None:
        """Write all of `buffers` at the end."""
        self.write(self.size, b"".join(buffers))

    def write(self, position: int, data: bytes) -> None:
        """Write inside the file, or over its end."""
        self.disk.do(Write(self.node, position, bytes(data)))
        self.size = max(self.size, position + len(data))

    def read(self, start: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only where the file ends."""
        return self.disk.tree.files[self.node][start : min(start + size, self.size)]

    def is_cached(self, start: int, size: int) -> bool:
        """Return True: all of it is in memory."""
        return True

    def truncate(self, size: int) -> None:
        """Cut the file, or lengthen it with zeros."""
        if size != self.size:
            self.disk.do(Resize(self.node, size))
            self.size, self._reserved = size, False

    def reserve(self, size: int) -> None:
        """Have the disk keep room; who opens the file finds zeros there."""
        if size > self.size:
            self.disk.do(Resize(self.node, size))
            self._reserved = True

    def trim(self) -> None:
        """Give back what is reserved."""
        if self._reserved:
            self.disk.do(Resize(self.node, self.size))
            self._reserved = False

    def fsync(self) -> None:
        """Make the bytes safe."""
        self.disk.do(Sync(self.node))

    def range(self, start: int, size: int) -> FileRange:
        """Name bytes of this file, to be sent later."""
        return FileRange(self, start, size)


@attrs.define(eq=False)
class RecordingDirectory:
    """The Directory of a Disk. It is as careless as the real one: its own new name is made safe
    by the first `fsync_dir` of the object that made it, and of no other."""

    disk: Disk
    node: int
    name: str
    parent: RecordingDirectory | None
    _name_is_new: bool = False

    @property
    def path(self) -> str:
        """Where it is, to be shown to people."""
        return f"{self.parent.path if self.parent else ''}/{self.name}"

    @property
    def _names(self) -> dict[str, int]:
        return self.disk.tree.names[self.node]

    def files(self) -> list[str]:
        """The names of the files in it, sorted."""
        return sorted(name for name, node in self._names.items() if node in self.disk.tree.files)

    def children(self) -> list[str]:
        """The names of the directories in it, sorted."""
        return sorted(name for name, node in self._names.items() if node in self.disk.tree.names)

    def child(self, name: str) -> RecordingDirectory:
        """The directory of that name in it; made if there is none."""
        is_new = name not in self._names
        if is_new:
            self.disk.link(self.node, name, is_directory=True)
        return RecordingDirectory(self.disk, self._names[name], name, self, is_new)

    def rename_to(self, name: str) -> None:
        """Give this directory another name beside its siblings."""
        assert self.parent is not None
        self.disk.do(Move(self.parent.node, self.name, name))
        self.name, self._name_is_new = name, True

    def remove_child(self, name: str) -> None:
        """Remove a directory and all in it, file by file."""
        node = self._names.get(name)
        if node is not None:
            for inner in sorted(self.disk.tree.names[node]):
                self.disk.do(Unlink(node, inner))
            self.disk.do(Unlink(self.node, name))

    def open_segment(self, name: str) -> RecordingFile:
        """Open a file; made empty if there is none."""
        node = self._names.get(name)
        if node is None:
            node = self.disk.link(self.node, name)
        return RecordingFile(self.disk, node, len(self.disk.tree.files[node]))

    def open_existing(self, name: str) -> RecordingFile:
        """Open a file. Raises FileNotFoundError."""
        if name not in self._names:
            raise FileNotFoundError(name)
        return self.open_segment(name)

    def size(self, name: str) -> int | None:
        """The size of a file, None if there is none."""
        node = self._names.get(name)
        return None if node is None else len(self.disk.tree.files[node])

    def modified_ms(self, name: str) -> int:
        """When a file was last written to."""
        return self.disk.modified_ms.get(self._names[name], self.disk.now_ms())

    def set_modified_ms(self, name: str, modified_ms: int) -> None:
        """Have a file say that it was last written to then; no crash is about that."""
        self.disk.modified_ms[self._names[name]] = modified_ms

    def rename(self, old: str, new: str) -> None:
        """Rename a file, over another one if need be. Raises FileNotFoundError."""
        if old not in self._names:
            raise FileNotFoundError(old)
        self.disk.do(Move(self.node, old, new))

    def remove(self, name: str) -> None:
        """Remove a file. Nothing happens if there is none."""
        if name in self._names:
            self.disk.do(Unlink(self.node, name))

    def read(self, name: str) -> bytes | None:
        """A small file's bytes, None if there is none."""
        node = self._names.get(name)
        return None if node is None else self.disk.tree.files[node]

    def write_atomic(self, name: str, data: bytes) -> None:
        """Replace a small file, in the steps of the real directory."""
        temporary = self.open_segment(name + ".tmp")
        temporary.truncate(0)
        temporary.write(0, data)
        temporary.fsync()
        self.disk.do(Move(self.node, name + ".tmp", name))

    def fsync_dir(self) -> None:
        """Make safe what was created, renamed and removed here, and this directory's own name."""
        self.disk.do(Sync(self.node))
        if self._name_is_new and self.parent is not None:
            self.disk.do(Sync(self.parent.node))
            self._name_is_new = False

    def lock(self) -> None:
        """Do nothing: there is no other process."""

    def unlock(self) -> None:
        """Do nothing: there is no other process."""
