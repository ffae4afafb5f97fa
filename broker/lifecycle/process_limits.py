"""What a broker takes from the machine it runs on: the time, a name, and bounds."""

from __future__ import annotations

import os
import resource
import socket
import time


def wall_clock_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Milliseconds of a clock that nobody sets, for intervals."""
    return time.monotonic_ns() // 1_000_000


def own_host_name() -> str:
    """What clients can reach this machine by, where the settings do not say: its full name, or
    the loopback address on a machine whose own name leads nowhere."""
    name = socket.getfqdn()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return "127.0.0.1"
    return name


def memory_bytes() -> int:
    """How much memory the machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def open_files_limit() -> int:
    """How many files this process may have open; sockets count."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else soft
