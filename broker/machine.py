"""What a broker takes from the machine it runs on: the time, and a name to be reached by."""

from __future__ import annotations

import socket
import time


def wall_clock_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def own_host_name() -> str:
    """What clients can reach this machine by, where the settings do not say: its full name, or
    the loopback address on a machine whose own name leads nowhere."""
    name = socket.getfqdn()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return "127.0.0.1"
    return name
