"""The event loop that a client belongs to: the first on which it is used."""

from __future__ import annotations

import asyncio

import attrs

from clients.errors import OtherLoop


@attrs.define(eq=False)
class OwnLoop:
    """Knows the loop of a client."""

    _loop: asyncio.AbstractEventLoop | None = None

    def check(self) -> None:
        """Raise OtherLoop if this is another loop than that of the first call."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop

        # What one loop completes wakes nobody on another, and buffers have no lock
        # (fault scale-C6).
        if loop is not self._loop:
            state = "which has ended" if self._loop.is_closed() else "which still runs"
            raise OtherLoop(
                f"this client belongs to another event loop, {state}: a client serves the loop on "
                "which it was first used; use the clients of kgroup.blocking from several threads"
            )
