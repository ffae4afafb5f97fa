"""A way to a broker on which requests of transactions come twice.

A request is served and its connection reset, so the client sends it again; or a copy of it comes
late, by a connection of its own (`tests/transactions/repeats.py` says which may).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from random import Random

import attrs

from protocol.api_key import ApiKey
from tests.chaos.network import HOST
from tests.transactions.repeats import LATE, TWICE

LATE_S = 1.0
"""How late a copy is, on an average."""


@attrs.define(eq=False)
class Repeater:
    """Ways to brokers. Use it as an async context manager.

    - `share`: of the requests that may come twice, those that do; 0 for none.
    - `late`: a copy of which of them may be served at any time later.
    - `repeated`: how often each was.
    """

    rng: Random
    share: float = 0.0
    late: frozenset[ApiKey] = LATE
    repeated: Counter[str] = attrs.field(factory=Counter)
    _servers: list[asyncio.Server] = attrs.field(factory=list)
    _copying: set[asyncio.Task[None]] = attrs.field(factory=set)

    async def __aenter__(self) -> Repeater:
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        for task in self._copying:
            task.cancel()

    async def open(self, target_port: int) -> int:
        """Return a new port that leads to the target's."""

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                far_reader, far_writer = await asyncio.open_connection(HOST, target_port)
            except OSError:
                writer.transport.abort()
                return
            async with asyncio.TaskGroup() as tasks:
                there = self._pass_requests(reader, far_writer, target_port)
                passing = tasks.create_task(there)
                await _pass_bytes(far_reader, writer)
                # A copy on its way belongs to a request that nobody waits for any more.
                passing.cancel()
                far_writer.transport.abort()

        server = await asyncio.start_server(accept, HOST, 0)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _pass_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target_port: int
    ) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await reader.readexactly(4)
                frame += await reader.readexactly(int.from_bytes(frame, "big"))
                if await self._is_lost(frame, target_port):
                    writer.transport.abort()
                    return
                writer.write(frame)
                await writer.drain()
        writer.close()

    async def _is_lost(self, frame: bytes, target_port: int) -> bool:
        """Repeat a request, or not; return whether its response is lost."""
        key = int.from_bytes(frame[4:6], "big")
        if key not in TWICE or self.rng.random() >= self.share:
            return False

        name = ApiKey(key).name
        if key in self.late and self.rng.random() < 0.5:
            copying = self._send(frame, target_port, self.rng.expovariate(1 / LATE_S))
            task = asyncio.get_running_loop().create_task(copying)
            self._copying.add(task)
            task.add_done_callback(self._copying.discard)
            self.repeated[f"{name} late"] += 1
            return False

        self.repeated[f"{name} again"] += 1
        await self._send(frame, target_port)
        return True

    @staticmethod
    async def _send(frame: bytes, target_port: int, after_s: float = 0.0) -> None:
        """Send a copy; return when it is served."""
        await asyncio.sleep(after_s)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection(HOST, target_port)
            try:
                writer.write(frame)
                size = await reader.readexactly(4)
                await reader.readexactly(int.from_bytes(size, "big"))
            finally:
                writer.transport.abort()


async def _pass_bytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()
