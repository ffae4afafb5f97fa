"""Ask the kernel what waits in a socket: bytes to read, and bytes that the peer has not taken."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Protocol

with suppress(ModuleNotFoundError):  # Windows runs no broker, and imports it for the simulation
    import fcntl
    import termios

_INT = struct.Struct("i")


class HasDescriptor(Protocol):
    """A socket."""

    def fileno(self) -> int:
        """The descriptor; -1 if it is closed."""


def unread_bytes(sock: HasDescriptor) -> int:
    """Return how many bytes have arrived and are not read; 0 for a closed socket."""
    return _ask(sock, termios.FIONREAD)


def unacknowledged_bytes(sock: HasDescriptor) -> int:
    """Return how many bytes are written and not acknowledged; 0 for a closed socket."""
    return _ask(sock, termios.TIOCOUTQ)


def _ask(sock: HasDescriptor, request: int) -> int:
    try:
        answer = fcntl.ioctl(sock.fileno(), request, bytes(_INT.size))
    except (OSError, ValueError):
        return 0
    (count,) = _INT.unpack(answer)
    return int(count)
