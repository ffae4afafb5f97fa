"""Let a transport of asyncio go when its connection is lost, as a count of references does."""

from __future__ import annotations


def break_cycle(transport: object) -> None:
    """Take the callback of reads from a transport whose connection is lost.

    The transport refers to itself by that. It would be kept, with its socket, until the process
    looks through all its objects for cycles, which a broker does seldom. Others have none.
    """
    getattr(transport, "__dict__", {}).pop("_read_ready_cb", None)
