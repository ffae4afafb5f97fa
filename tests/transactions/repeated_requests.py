"""Requests that come twice, in the simulated network.

A response is lost with its connection, so the client sends its request again. Or the connection is
lost for the client alone, and what it has sent comes late: behind the repeated request, behind a
marker, or in a later transaction. Or a copy of a request comes late, by a connection of its own
(`repeats.py` says which may).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import attrs

from kgroup.testing.simulation.cluster import Cluster
from kgroup.testing.simulation.transport import Transport
from tests.transactions.repeats import LATE, TWICE, frames

SHARE = 0.1
"""Of the requests that may come twice."""
HELD = 0.3
"""Of these, the share of those that come late by the connection that is lost."""
LOST_AFTER_S = (0.05, 0.5)
"""Until a connection is lost; a request is served by then, or never."""
LATE_S = (0.1, 8.0)
HELD_S = (0.2, 4.0)
"""Until a request arrives whose connection its client has lost."""
CONNECTED_S = 0.5


class _Unread(asyncio.Protocol):
    """The end of the connection of a copy."""


@attrs.define(eq=False)
class RepeatedRequests:
    """What clients of `cluster` write, some of it twice, from `begin` to `end`."""

    cluster: Cluster
    rng: Random
    copies: int = 0
    lost: int = 0
    held: int = 0
    _tasks: set[asyncio.Task[None]] = attrs.field(factory=set)

    def begin(self) -> None:
        """Begin to lose responses, and to copy requests."""
        self.cluster.network.on_write = self._written

    def end(self) -> None:
        """Let everything come once; copies that are late are not sent any more."""
        self.cluster.network.on_write = lambda transport, data: None
        for task in self._tasks:
            task.cancel()

    def _written(self, transport: Transport, data: bytes) -> None:
        if transport.process not in self.cluster.clients:
            return
        for key, frame in frames(data):
            if key not in TWICE or self.rng.random() >= SHARE:
                continue
            if self.rng.random() < HELD:
                self._hold(transport)
                continue
            if key in LATE and self.rng.random() < 0.5:
                self._spawn(self._send(transport, frame, self.rng.uniform(*LATE_S)))
            else:
                self._spawn(self._lose_response(transport, self.rng.uniform(*LOST_AFTER_S)))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.cluster.world.nature.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _hold(self, transport: Transport) -> None:
        """Let what is written now, and before, arrive late; its client loses the connection."""
        until_s = self.cluster.world.now + self.rng.uniform(*HELD_S)
        transport.stalled_until = max(transport.stalled_until, until_s)
        self._spawn(self._lose(transport, self.rng.uniform(*LOST_AFTER_S)))

    async def _lose(self, transport: Transport, after_s: float) -> None:
        await asyncio.sleep(after_s)
        if not transport.ended:
            transport.reset(loses=True)
            self.held += 1

    async def _lose_response(self, transport: Transport, after_s: float) -> None:
        """Hold up what the broker sends, and then reset the connection."""
        answering = transport.peer
        until_s = self.cluster.world.now + after_s
        answering.stalled_until = max(answering.stalled_until, until_s)
        await asyncio.sleep(after_s)
        for end in (transport, answering):
            if not end.ended:
                end.reset(loses=True)
        self.lost += 1

    async def _send(self, transport: Transport, frame: bytes, after_s: float) -> None:
        """Send a copy."""
        await asyncio.sleep(after_s)
        host, port = transport.get_extra_info("peername")
        nature = self.cluster.world.nature
        try:
            async with asyncio.timeout(CONNECTED_S):
                connection, _ = await self.cluster.network.connect(nature, _Unread, host, port)
        except OSError:
            return
        connection.write(frame)
        self.copies += 1
