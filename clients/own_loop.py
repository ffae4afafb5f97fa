"""The event loop, and process, that a client belongs to: the first on which it is used."""

from __future__ import annotations

import asyncio

import attrs

from clients.errors import OtherLoop
from clients.own_process import OwnProcess


@attrs.define(eq=False)
class OwnLoop:
    """Knows the loop of a client, and its process."""

    _loop: asyncio.AbstractEventLoop | None = None
    _process: OwnProcess | None = None

    def check(self) -> None:
        """Raise OtherLoop if this is another loop than that of the first call.

        Raises OtherProcess in a forked child.
        """
        loop = asyncio.get_running_loop()
        if self._loop is None or self._process is None:
            self._loop = loop
            self._process = OwnProcess()

        # The same loop in a child shares its selector and its sockets with the parent
        # (fault users-14).
        self._process.check()

        # What one loop completes wakes nobody on another, and buffers have no lock
        # (fault scale-C6).
        if loop is not self._loop:
            state = "which has ended" if self._loop.is_closed() else "which still runs"
            raise OtherLoop(
                f"this client belongs to another event loop, {state}: a client serves the loop on "
                "which it was first used; use the clients of kgroup.blocking from several threads"
            )
