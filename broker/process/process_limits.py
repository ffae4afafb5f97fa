"""The clocks and the limits that the machine gives to a broker."""

from __future__ import annotations

import os
import time

DESCRIPTOR_RESERVE = 256
"""File descriptors that are kept for logs and ZooKeeper, but at most a quarter of all that the
process may have open. A log that cannot open a file fails; a client that is refused tries again."""


def wall_clock_ms() -> int:
    """Return milliseconds since 1970, by a clock that people set."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Return milliseconds of a clock that nobody sets, for intervals."""
    return time.monotonic_ns() // 1_000_000


def monotonic_ns() -> int:
    """Return nanoseconds of a clock that nobody sets, for what a request takes."""
    return time.perf_counter_ns()


def log_files_limit() -> int:
    """Return how many files of logs a broker may keep open: as many as are left to connections."""
    most = open_files_limit()
    return max(1, (most - descriptor_reserve(most)) // 2)


def descriptor_reserve(most: int) -> int:
    """Return how many of `most` descriptors connections leave to everything else."""
    return min(DESCRIPTOR_RESERVE, most // 4)


def memory_bytes() -> int:
    """Return the size of the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def open_files_limit() -> int:
    """Return how many files this process may have open; sockets count."""
    import resource  # not on Windows, which runs no broker and imports it for the simulation

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else soft
