"""The two ZooKeepers that the tests of a session run against, with the failures of a network.

This is not a test module. `MemoryStage` and `RealStage` have the same calls. In the real one each
session goes through a `Link` of its own, a TCP relay that can be closed or left silent.
"""

import asyncio
import contextlib
import inspect
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Protocol

import attrs
from kazoo.client import KazooClient

from tests.stage.waiting import until
from zk.api import SessionState, WatchEvent, ZkSession
from zk.memory import MemorySession, MemoryZooKeeper
from zk.session import KazooSession

PATIENCE_S = 20.0
SESSION_MS = 15_000  # longer than a busy machine or a slow disk holds anything up
SHORT_SESSION_MS = 2000  # for tests that see it expire

Scenario = Callable[..., Awaitable[Any]]


class SessionStage(Protocol):
    def run(self, scenario: Scenario) -> Any:
        """Run `scenario` with as many started sessions as it has parameters."""

    async def suspend(self, session: Any) -> None: ...
    async def resume(self, session: Any) -> None: ...
    async def expire(self, session: Any) -> None:
        """Leave the session in the state CONNECTED, as another session."""


class MemoryStage:
    def __init__(self) -> None:
        self.zookeeper = MemoryZooKeeper(lambda: time.monotonic_ns() // 1_000_000)

    def run(self, scenario: Scenario) -> Any:
        async def with_sessions() -> Any:
            sessions = [self.zookeeper.session() for _ in inspect.signature(scenario).parameters]
            for session in sessions:
                await session.start()
            return await scenario(*sessions)

        return asyncio.run(with_sessions())

    async def suspend(self, session: MemorySession) -> None:
        self.zookeeper.suspend(session)

    async def resume(self, session: MemorySession) -> None:
        self.zookeeper.resume(session)

    async def expire(self, session: MemorySession) -> None:
        self.zookeeper.expire(session)


class RealStage:
    def __init__(self, connect_string: str, session_timeout_ms: int = SESSION_MS) -> None:
        self._address, _, self._chroot = connect_string.partition("/")
        self._session_timeout_ms = session_timeout_ms
        self._links: dict[ZkSession, Link] = {}

    def run(self, scenario: Scenario) -> Any:
        async def with_sessions() -> Any:
            async with contextlib.AsyncExitStack() as stack:
                sessions = [await self._open(stack) for _ in inspect.signature(scenario).parameters]
                return await scenario(*sessions)

        return asyncio.run(with_sessions())

    async def _open(self, stack: contextlib.AsyncExitStack) -> KazooSession:
        link = await Link.open(self._address)
        stack.push_async_callback(link.end)
        session = KazooSession(
            f"{link.address}/{self._chroot}",
            session_timeout_ms=self._session_timeout_ms,
            connection_timeout_ms=SESSION_MS,
        )
        self._links[session] = link
        await session.start()
        stack.push_async_callback(session.close)
        return session

    async def suspend(self, session: ZkSession) -> None:
        self._links[session].close()
        await reached(session, SessionState.SUSPENDED)

    async def resume(self, session: ZkSession) -> None:
        self._links[session].open_again()
        await reached(session, SessionState.CONNECTED)

    def silence(self, session: ZkSession) -> None:
        """Let nothing through to the server, and nothing from it."""
        self._links[session].silence()

    async def expire(self, session: ZkSession) -> None:
        """Stay silent until an observer sees that the server has expired the session."""
        expired_id = session.session_id
        observer, events = KazooSession(f"{self._address}/{self._chroot}"), Events()
        await observer.start()
        await session.create("/canary", None, ephemeral=True)
        await observer.exists("/canary", watch=events)
        self.silence(session)
        await events.next()
        await observer.close()
        self._links[session].close()
        self._links[session].open_again()
        await until(lambda: session.session_id not in (0, expired_id), "a new session")


@attrs.define(eq=False)
class Link:
    """A relay to a server, on the tests' own loop."""

    server: asyncio.Server
    pipes: set[asyncio.StreamWriter]
    is_open: bool = True
    is_silent: bool = False
    is_mute: bool = False
    swallowed_bytes: int = 0

    @classmethod
    async def open(cls, target: str) -> "Link":
        host, _, port = target.rpartition(":")
        tasks: set[asyncio.Task[None]] = set()

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if not link.is_open:
                writer.close()
                return
            out_reader, out_writer = await asyncio.open_connection(host, int(port))
            for source, sink in ((reader, out_writer), (out_reader, writer)):
                task = asyncio.ensure_future(link.pump(source, sink, source is reader))
                tasks.add(task)
                task.add_done_callback(tasks.discard)

        link = cls(await asyncio.start_server(relay, "127.0.0.1", 0), set())
        return link

    @property
    def address(self) -> str:
        host, port = self.server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    async def pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, is_from_client: bool
    ) -> None:
        self.pipes.add(sink)
        with contextlib.suppress(OSError), contextlib.closing(sink):
            while data := await source.read(65536):
                if self.is_silent or (self.is_mute and is_from_client):
                    self.swallowed_bytes += len(data)
                else:
                    sink.write(data)
        self.pipes.discard(sink)

    def close(self) -> None:
        """Break all connections, and every new one."""
        self.is_open = False
        for pipe in self.pipes:
            pipe.transport.abort()

    def silence(self) -> None:
        """Stay connected, and let nothing through."""
        self.is_silent = True

    def mute(self) -> None:
        """Stay connected, and let nothing through to the server."""
        self.is_mute = True

    def open_again(self) -> None:
        self.is_open, self.is_silent, self.is_mute = True, False, False

    async def end(self) -> None:
        self.close()
        self.server.close()


class Events:
    """Watch events in the order they came: `zk.get(path, watch=events)`."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[WatchEvent] = asyncio.Queue()

    def __call__(self, event: WatchEvent) -> None:
        self._queue.put_nowait(event)

    async def next(self) -> WatchEvent:
        return await asyncio.wait_for(self._queue.get(), PATIENCE_S)

    def so_far(self) -> list[WatchEvent]:
        return [self._queue.get_nowait() for _ in range(self._queue.qsize())]


async def reached(session: ZkSession, state: SessionState) -> None:
    await until(lambda: session.state is state, f"the state {state}")


@contextlib.contextmanager
def an_administrator(hosts: str) -> Iterator[KazooClient]:
    """Yield a client that sets ACLs, which the system itself never does."""
    client = KazooClient(hosts)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()
