"""Which files of logs a process keeps open: it may have more partitions than descriptors.

A log's file is opened when it is used, and stays open for the next use. Beyond `most` open ones,
those are closed that were not used for the longest time, roughly: a file that was used since it was
looked at last gets a second chance. So a partition at rest costs no descriptor where these are
scarce, and one that is busy never opens anything.

Closing is letting go: a file that is in use in another thread, or on its way to a client, is closed
when that is over, and its descriptor does not become another file's meanwhile.

Some descriptors are spare. Work that may not stop half-way, such as a truncation, gets them when
nothing else is left (`must_end`): a lack of descriptors passes, while a log that is neither as it
was nor as it is to be has to wait for the next start.

A file that is closed with bytes that are not on disk is synced later by another descriptor. Linux
reports to that one an error that nobody was told of (from 4.13 on).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar
from weakref import ReferenceType

import attrs

from core_log.storage import NO_DESCRIPTOR

MOST_OPEN = 512
"""Files that are kept open in a process that does not know how many it may have."""
SECOND_CHANCES = 32
"""Files that are looked at, and kept, before one is closed: a bound for a turn of the loop."""
CLOSED_TOGETHER = 64
"""Files that are closed at once where the process has no descriptor left."""
SPARE = 16
"""Descriptors that are kept for work that must not end half-way."""

T = TypeVar("T")


class ReopenableFile(Protocol):
    """A file that can be closed, and opens again when it is used."""

    is_used: bool
    """True if it was used since `OpenFiles` looked at it last."""

    def let_go(self) -> None:
        """Close the file as soon as nobody is using it."""


@attrs.define(eq=False)
class OpenFiles:
    """The open files of a process by descriptor, in the order in which they were last looked at.

    Any thread may call this: each step is one operation of a dict.
    """

    most: int = MOST_OPEN
    _files: OrderedDict[int, ReferenceType[ReopenableFile]] = attrs.field(factory=OrderedDict)
    _spare: list[int] = attrs.field(factory=list)
    _of_thread: threading.local = attrs.field(factory=threading.local)

    def __len__(self) -> int:
        return len(self._files)

    def add(self, descriptor: int, file: ReferenceType[ReopenableFile]) -> None:
        """Note a file that was opened, and close others if there are too many."""
        self._files[descriptor] = file
        # A partition at rest has no file open (fault outside-O6).
        self.close_down_to(self.most)

    def discard(self, descriptor: int) -> None:
        """Note that a descriptor is about to be closed, or is to stay open."""
        self._files.pop(descriptor, None)

    def close_down_to(self, most: int) -> None:
        """Close files until there are at most so many."""
        chances = SECOND_CHANCES
        while len(self._files) > most:
            try:
                descriptor, reference = self._files.popitem(last=False)
            except KeyError:  # another thread took the last one
                return
            file = reference()
            if file is None:
                continue
            if file.is_used and chances:
                chances -= 1
                file.is_used = False
                self._files[descriptor] = reference
                continue
            file.let_go()

    def with_descriptor(self, open_file: Callable[[], T]) -> T:
        """Call what opens a file; if no descriptor is left, close files at rest, and call it again.

        Work that must end gets the spare descriptors then. Raises OSError.
        """
        try:
            return open_file()
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR:
                raise
        # Sockets, and others, have taken what was meant for files (fault outside-O6).
        self.close_down_to(max(0, len(self._files) - CLOSED_TOGETHER))
        while True:
            try:
                return open_file()
            except OSError as error:
                # A socket may be faster, and take the one that was given up.
                if error.errno not in NO_DESCRIPTOR or not self._give_up_spare():
                    raise

    @contextlib.contextmanager
    def must_end(self) -> Iterator[None]:
        """Let the block have the spare descriptors, in this thread."""
        self.keep_spare()
        before = self._is_to_end
        self._of_thread.is_to_end = True
        try:
            yield
        finally:
            self._of_thread.is_to_end = before
            self.keep_spare()

    def keep_spare(self) -> None:
        """Have `SPARE` descriptors in hand again, as far as there are any."""
        with contextlib.suppress(OSError):
            while len(self._spare) < SPARE:
                self._spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    @property
    def _is_to_end(self) -> bool:
        return getattr(self._of_thread, "is_to_end", False)

    def _give_up_spare(self) -> bool:
        """Close a spare descriptor for work that must end; return whether there was one."""
        if not self._is_to_end:
            return False
        try:
            os.close(self._spare.pop())
        except IndexError:
            return False
        return True


OPEN_FILES = OpenFiles()
"""Those of this process: the limit is the process's, whatever it runs."""


def open_descriptor(path: str, flags: int, mode: int = 0o666) -> int:
    """Open a file as `os.open` does. Raises OSError."""
    return OPEN_FILES.with_descriptor(lambda: os.open(path, flags | os.O_CLOEXEC, mode))
