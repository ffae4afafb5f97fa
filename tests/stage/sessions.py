"""The two stages of the tests of sessions: a ZooKeeper in memory, and a real one behind relays.

Both have the same calls. On the real one each session goes through a `Relay` of its own, which can
be closed or left silent.
"""

import asyncio
import contextlib
import inspect
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Protocol

from kazoo.client import KazooClient

from tests.stage.network import Relay
from tests.stage.waiting import until
from zk.api import SessionState, WatchEvent, ZkSession
from zk.memory import MemorySession, MemoryZooKeeper
from zk.session import KazooSession

PATIENCE_S = 20.0
SESSION_MS = 15_000  # longer than a busy machine or a slow disk holds anything up
SHORT_SESSION_MS = 2000  # for tests that see it expire

Scenario = Callable[..., Awaitable[Any]]


class SessionStage(Protocol):
    """The calls of both stages."""

    def run(self, scenario: Scenario) -> Any:
        """Run `scenario` with as many started sessions as it has parameters."""

    async def suspend(self, session: Any) -> None: ...
    async def resume(self, session: Any) -> None: ...
    async def expire(self, session: Any) -> None:
        """Leave the session in the state CONNECTED, as another session."""


class MemoryStage:
    """Sessions of a ZooKeeper in memory; a failure is a call of it."""

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
    """Sessions of a running ZooKeeper; a failure is one of the relay between."""

    def __init__(self, connect_string: str, session_timeout_ms: int = SESSION_MS) -> None:
        self._address, _, self._chroot = connect_string.partition("/")
        self._session_timeout_ms = session_timeout_ms
        self._relays: dict[ZkSession, Relay] = {}

    def run(self, scenario: Scenario) -> Any:
        async def with_sessions() -> Any:
            async with contextlib.AsyncExitStack() as stack:
                sessions = [await self._open(stack) for _ in inspect.signature(scenario).parameters]
                return await scenario(*sessions)

        return asyncio.run(with_sessions())

    async def _open(self, stack: contextlib.AsyncExitStack) -> KazooSession:
        relay = await Relay.open(self._address)
        stack.push_async_callback(relay.end)
        session = KazooSession(
            f"{relay.address}/{self._chroot}",
            session_timeout_ms=self._session_timeout_ms,
            connection_timeout_ms=SESSION_MS,
        )
        self._relays[session] = relay
        await session.start()
        stack.push_async_callback(session.close)
        return session

    async def suspend(self, session: ZkSession) -> None:
        self._relays[session].close()
        await reached(session, SessionState.SUSPENDED)

    async def resume(self, session: ZkSession) -> None:
        self._relays[session].open_again()
        await reached(session, SessionState.CONNECTED)

    def silence(self, session: ZkSession) -> None:
        """Let nothing through to the server, and nothing from it."""
        self._relays[session].silence()

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
        self._relays[session].close()
        self._relays[session].open_again()
        await until(lambda: session.session_id not in (0, expired_id), "a new session")


class Events:
    """Watch events in the order they came: `zk.get(path, watch=events)`."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[WatchEvent] = asyncio.Queue()

    def __call__(self, event: WatchEvent) -> None:
        self._queue.put_nowait(event)

    async def next(self) -> WatchEvent:
        """Wait for an event and take it."""
        return await asyncio.wait_for(self._queue.get(), PATIENCE_S)

    def so_far(self) -> list[WatchEvent]:
        """Take the events that have come."""
        return [self._queue.get_nowait() for _ in range(self._queue.qsize())]


async def reached(session: ZkSession, state: SessionState) -> None:
    """Wait until the session is in this state."""
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
