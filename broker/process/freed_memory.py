"""Keep some freed memory for the next requests, and give the rest back to the system.

What malloc has freed it keeps, as far as something else lies above it on its heap. So a broker that
was flooded once would be as large as then for ever. Large blocks (`LARGE_BLOCK_BYTES`) do not lie
on the heap at all, and all threads share one heap: what is made in a thread is freed on the loop.
Pages inside the heap that are free are given back from time to time (`FreedMemory`).

All of this is glibc's; with another C library it does nothing.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

import attrs

# From glibc's malloc.h.
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -2, -3, -8

KEPT_BYTES = 32 * 1024 * 1024
"""Freed memory that is kept between two requests, at most."""
LET_BE_BYTES = KEPT_BYTES * 3 // 4
"""Growth of the process for which nothing is given back. It is less than what malloc keeps, for the
process is not quite as small at each look as it was once."""
LARGE_BLOCK_BYTES = 4 * 1024 * 1024
"""Blocks of this size have pages of their own, which go back when they are freed. A fresh megabyte
costs some 250 page faults, more than all other work on a produced megabyte, so those of usual
requests are smaller."""

FIRST_PAUSE_MS = 5_000
LONGEST_PAUSE_MS = 20_000
"""Pauses between two times at which pages are given back: longer and longer while they are needed
again each time."""


def keep_freed_memory() -> None:
    """Have malloc reuse the memory of usual requests instead of returning it each time."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return

    # The free end of the heap is kept, and the heap grows in large steps.
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
    mallopt(M_TOP_PAD, KEPT_BYTES // 2)
    mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
    # Else smaller blocks beside them keep their memory, once it is freed (fault scale-S2).
    mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
    # Each thread would have a heap of its own (fault scale-S2).
    mallopt(M_ARENA_MAX, 1)


def resident_bytes() -> int:
    """Return the memory of this process that is in use, or was; 0 where nobody says."""
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def give_back() -> None:
    """Give the free pages of the heap back to the system, but for some at its end."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(KEPT_BYTES // 2))


@attrs.define(eq=False)
class FreedMemory:
    """Gives memory back while the process is larger than it was.

    Call `look` every FIRST_PAUSE_MS. `resident_bytes()` returns the size of the process,
    `give_back()` makes it smaller, if it can, in some milliseconds.
    """

    resident_bytes: Callable[[], int]
    give_back: Callable[[], None]
    monotonic_ms: Callable[[], int]
    _least: int = attrs.field(init=False)
    _pause_ms: int = FIRST_PAUSE_MS
    _next_ms: int = 0

    def __attrs_post_init__(self) -> None:
        self._least = self.resident_bytes()

    def look(self) -> None:
        """Give back what is free if the process is larger by more than LET_BE_BYTES than once."""
        size = self.resident_bytes()
        self._least = min(self._least, size)
        if size <= self._least + LET_BE_BYTES:
            self._pause_ms = FIRST_PAUSE_MS
            return
        # It was larger after the last time too: it may need all that, so not each time anew.
        now_ms = self.monotonic_ms()
        if now_ms < self._next_ms:
            return

        self.give_back()
        self._pause_ms = min(2 * self._pause_ms, LONGEST_PAUSE_MS)
        self._next_ms = now_ms + self._pause_ms
