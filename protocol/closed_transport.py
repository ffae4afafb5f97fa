"""What a transport of asyncio needs when its connection is lost, or may be."""

from __future__ import annotations

from typing import Protocol


class Transport(Protocol):
    """What of a transport is needed here."""

    def abort(self) -> None:
        """Close it, and drop what is not written yet."""


def break_cycle(transport: object) -> None:
    """Take the callback of reads from a transport whose connection is lost.

    A count of references then lets it go: it refers to itself by that. It would be kept, with its
    socket, until the process looks through all its objects for cycles, which a broker does seldom.
    Others have none.
    """
    getattr(transport, "__dict__", {}).pop("_read_ready_cb", None)


def abort(transport: Transport) -> None:
    """Abort a transport, which may be closed already.

    One that has written its rest after it was closed has no loop any more, and raises
    AttributeError.
    """
    # Who closes a connection would get that error (fault strangers-185, was: True).
    is_open = getattr(transport, "_loop", transport) is not None
    if is_open:
        transport.abort()
