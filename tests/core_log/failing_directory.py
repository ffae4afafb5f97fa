"""A directory with one operation that fails, half done if it can be."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import IO

import attrs

from core_log.memory_directory import MemoryDirectory, MemoryFile
from core_log.storage import BytesLike, FileRange


@attrs.define(eq=False)
class Fault:
    """Fails operation number `at` with the error `number`; `struck` says which one that was.

    Without `of_reads`, operations that need no room on the disk do not count.
    """

    number: int
    at: int = -1
    of_reads: bool = True
    count: int = 0
    struck: tuple[str, str] | None = None

    def strikes(self, path: str, operation: str) -> bool:
        """Count an operation; whether it is the one."""
        self.count += 1
        if self.count - 1 != self.at:
            return False
        self.struck = path, operation
        return True

    def check(self, path: str, operation: str) -> None:
        """Count an operation that is done or not. Raises OSError."""
        if self.strikes(path, operation):
            raise self.error()

    def check_read(self, path: str, operation: str) -> None:
        """Fail at an operation that writes nothing."""
        if self.of_reads:
            self.check(path, operation)

    def error(self) -> OSError:
        """Build the error that the system raises."""
        return OSError(self.number, os.strerror(self.number))


@attrs.define(eq=False)
class FailingFile:
    """The StorageFile of a FailingDirectory."""

    file: MemoryFile
    path: str
    fault: Fault

    @property
    def size(self) -> int:
        return self.file.size

    @property
    def raw(self) -> IO[bytes]:
        return self.file.raw

    def hold(self) -> None:
        self.file.hold()

    def append(self, buffers: Sequence[BytesLike]) -> None:
        self.fault.check(self.path, "append")
        self.file.append(buffers)

    def write(self, position: int, data: bytes) -> None:
        if self.fault.strikes(self.path, "write"):
            self.file.write(position, data[: len(data) // 2])
            raise self.fault.error()
        self.file.write(position, data)

    def read(self, start: int, size: int) -> bytes:
        return self.file.read(start, size)

    def is_cached(self, start: int, size: int) -> bool:
        return self.file.is_cached(start, size)

    def truncate(self, size: int) -> None:
        self.fault.check(self.path, "truncate")
        self.file.truncate(size)

    def reserve(self, size: int) -> None:
        self.fault.check(self.path, "reserve")
        self.file.reserve(size)

    def trim(self) -> None:
        self.file.trim()

    def fsync(self) -> None:
        self.fault.check(self.path, "fsync")
        self.file.fsync()

    def range(self, start: int, size: int) -> FileRange:
        return self.file.range(start, size)


@attrs.define(eq=False)
class FailingDirectory:
    """The Directory around one in memory."""

    directory: MemoryDirectory
    fault: Fault

    @property
    def path(self) -> str:
        return self.directory.path

    @property
    def name(self) -> str:
        return self.directory.name

    def files(self) -> list[str]:
        self.fault.check_read(self.path, "files")
        return self.directory.files()

    def children(self) -> list[str]:
        self.fault.check_read(self.path, "children")
        return self.directory.children()

    def child(self, name: str) -> FailingDirectory:
        self.fault.check(self.path, f"child {name}")
        return FailingDirectory(self.directory.child(name), self.fault)

    def rename_to(self, name: str) -> None:
        self.fault.check(self.path, f"rename to {name}")
        self.directory.rename_to(name)

    def remove_child(self, name: str) -> None:
        self.fault.check_read(self.path, f"remove {name}")
        self.directory.remove_child(name)

    def open_segment(self, name: str) -> FailingFile:
        self.fault.check(self.path, f"open {name}")
        return FailingFile(self.directory.open_segment(name), self.path, self.fault)

    def open_existing(self, name: str) -> FailingFile:
        self.fault.check_read(self.path, f"open {name}")
        return FailingFile(self.directory.open_existing(name), self.path, self.fault)

    def size(self, name: str) -> int | None:
        self.fault.check_read(self.path, f"size of {name}")
        return self.directory.size(name)

    def modified_ms(self, name: str) -> int:
        self.fault.check_read(self.path, f"time of {name}")
        return self.directory.modified_ms(name)

    def set_modified_ms(self, name: str, modified_ms: int) -> None:
        self.fault.check_read(self.path, f"set time of {name}")
        self.directory.set_modified_ms(name, modified_ms)

    def rename(self, old: str, new: str) -> None:
        self.fault.check(self.path, f"rename {old} to {new}")
        self.directory.rename(old, new)

    def remove(self, name: str) -> None:
        self.fault.check_read(self.path, f"remove {name}")
        self.directory.remove(name)

    def read(self, name: str) -> bytes | None:
        self.fault.check_read(self.path, f"read {name}")
        return self.directory.read(name)

    def write_atomic(self, name: str, data: bytes) -> None:
        if self.fault.strikes(self.path, f"write {name}"):
            self.directory.write_atomic(f"{name}.tmp", data[: len(data) // 2])
            raise self.fault.error()
        self.directory.write_atomic(name, data)

    def fsync_dir(self) -> None:
        self.fault.check(self.path, "fsync")
        self.directory.fsync_dir()

    def lock(self) -> None:
        self.fault.check(self.path, "lock")
        self.directory.lock()

    def unlock(self) -> None:
        self.directory.unlock()


def copied(root: MemoryDirectory) -> MemoryDirectory:
    """Copy the files to another disk, on which nothing is locked."""
    copy = MemoryDirectory(root.name)
    _copy(root, copy)
    return copy


def _copy(source: MemoryDirectory, copy: MemoryDirectory) -> None:
    for name in source.files():
        copy.write_atomic(name, source.read(name) or b"")
    for name in source.children():
        _copy(source.child(name), copy.child(name))
