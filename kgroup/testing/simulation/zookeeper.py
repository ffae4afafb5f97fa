"""A process's ZooKeeper session, over a network: calls and replies take their time and get lost.

The servers' side of it is `zk.memory`, whose sessions never lie: here a session is a connection
with two ends. Requests arrive in order; replies and watch events come back in one order, as
ZooKeeper promises. The client knows of a cut only by silence, the servers end a session they have
not heard for its time-out (so of a process that is killed, paused or cut off), and the client
learns of that when it is heard again. What was asked and not answered when a connection is lost
raises ConnectionLoss, carried out or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kgroup.testing.simulation.world import EPOCH_S
from zk.api import (
    ConnectionLoss,
    Delete,
    Op,
    SessionExpired,
    SessionState,
    Stat,
    StateListener,
    WatchEvent,
    ZkError,
)
from zk.memory import MemoryZooKeeper

if TYPE_CHECKING:
    from kgroup.testing.simulation.world import Process, World

HOST = "zk"
LATENCY_S = (0.0002, 0.004)
PINGS = 6  # in a session time-out
CALLS = (
    "get",
    "get_many",
    "exists",
    "children",
    "create",
    "set",
    "delete",
    "multi",
    "sync",
    "ensure_path",
    "delete_recursive",
)


class ObservedZooKeeper(MemoryZooKeeper):
    """Tells of each transaction."""

    committed: Callable[[], None] = staticmethod(lambda: None)

    def commit(self, ops: Sequence[Op], session_id: int) -> list[str | Stat | None]:
        results = super().commit(ops, session_id)
        self.committed()
        return results


class SimZooKeeper:
    """The ensemble: one tree, and sessions that end of silence."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.server = ObservedZooKeeper(lambda: int((EPOCH_S + world.now) * 1000))
        self.sessions: list[SimSession] = []

    def session(self, process: Process, timeout_ms: int) -> SimSession:
        """A session of a process."""
        session = SimSession(self, process, timeout_ms)
        self.sessions.append(session)
        return session

    def path_changed(self) -> None:
        """A path has been cut: connections across it carry nothing any more."""
        for session in self.sessions:
            if session.is_cut():
                self.server.suspend(session.served)

    def disconnect(self, process: Process) -> None:
        """The servers see the end of a process's connections."""
        for session in self.sessions:
            if session.process is process:
                self.server.suspend(session.served)

    def let_go(self) -> None:
        """The story is over: forget who watches."""
        self.sessions.clear()
        self.server = ObservedZooKeeper()

    def delete(self, path: str) -> None:
        """An operator deletes a node."""
        self.server.commit([Delete(path)], 0)

    def expire(self, session: SimSession) -> None:
        """End a session at the servers."""
        self.server.suspend(session.served)
        self.server.expire(session.served)


class SimSession:
    """The ZkSession of a process."""

    def __init__(self, zookeeper: SimZooKeeper, process: Process, timeout_ms: int) -> None:
        self.zookeeper = zookeeper
        self.process = process
        self.session_timeout_ms = timeout_ms
        self.session_id = 0
        self.state = SessionState.SUSPENDED
        self.served = zookeeper.server.session(timeout_ms)
        self.heard_at_s = 0.0  # by the servers
        self._answered_at_s = 0.0
        self._arrives_s = self._answers_s = 0.0
        self._connection = 0  # its number: what came of an earlier one is lost
        self._waiting: dict[asyncio.Future[Any], None] = {}
        self._watches: dict[Any, Callable[[WatchEvent], None]] = {}
        self._listeners: list[StateListener] = []
        self._pinging: asyncio.Task[None] | None = None

    # ---- ZkSession

    @property
    def silence_ms(self) -> int:
        return int((self._now() - self._answered_at_s) * 1000)

    @property
    def suspended_since_ms(self) -> int | None:
        connected = self.state is SessionState.CONNECTED
        return None if connected else int(self._answered_at_s * 1000)

    def add_state_listener(self, listener: StateListener) -> None:
        self._listeners.append(listener)

    def remove_state_listener(self, listener: StateListener) -> None:
        self._listeners.remove(listener)

    def remove_watch(self, watch: Callable[[WatchEvent], None]) -> None:
        if late := self._watches.pop(watch, None):
            self.served.remove_watch(late)

    async def start(self) -> None:
        ends = self._now() + self.session_timeout_ms / 1000
        while self.is_cut():
            if self._now() >= ends:
                raise ConnectionLoss("no session with ZooKeeper")
            await asyncio.sleep(0.1)
        await asyncio.sleep(self._latency_s())
        await self.served.start()
        self._connected()
        self._become(SessionState.CONNECTED)
        self._pinging = self.process.loop.create_task(self._ping(), name="ZooKeeper session")
        self.zookeeper.world.nature.spawn(self._watch_over(), f"session of {self.process}")

    async def close(self) -> None:
        if self.state is SessionState.CLOSED:
            return
        if self._pinging is not None:
            self._pinging.cancel()
        self._lose()
        self._become(SessionState.CLOSED)
        self.session_id = 0
        if not self.is_cut():
            await self.served.close()

    def __getattr__(self, name: str) -> Any:
        if name not in CALLS:
            raise AttributeError(name)
        method = getattr(self.served, name)
        return lambda *arguments, **keywords: self._call(method, arguments, keywords)

    # ---- calls

    async def _call(self, method: Any, arguments: Any, keywords: Any) -> Any:
        if self.state is SessionState.CLOSED:
            raise SessionExpired("the session is closed")
        if self.state is not SessionState.CONNECTED:
            raise ConnectionLoss("the session is suspended")
        arguments, keywords = self._with_late_watches(arguments, keywords)
        reply = self.process.loop.create_future()
        self._waiting[reply] = None
        self._arrives_s = max(self._arrives_s, self._now() + self._latency_s())
        self.zookeeper.world.nature.loop.call_at(
            self._arrives_s, self._arrive, self._connection, method, arguments, keywords, reply
        )
        try:
            return await reply
        finally:
            self._waiting.pop(reply, None)

    def _arrive(
        self, connection: int, method: Any, arguments: Any, keywords: Any, reply: Any
    ) -> None:
        if connection != self._connection or self.served.state is not SessionState.CONNECTED:
            return
        self._heard()
        result, error = None, None
        try:
            method(*arguments, **keywords).send(None)
        except StopIteration as done:
            result = done.value
        except ZkError as raised:
            error = raised
        self._send_back(self._take_reply, reply, result, error)

    def _take_reply(self, reply: asyncio.Future[Any], result: Any, error: ZkError | None) -> None:
        if not reply.done():
            if error is not None:
                reply.set_exception(error)
            else:
                reply.set_result(result)

    def _with_late_watches(
        self, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        def late(argument: Any) -> Any:
            return self._late(argument) if callable(argument) else argument

        return tuple(map(late, arguments)), {k: late(v) for k, v in keywords.items()}

    def _late(self, watch: Callable[[WatchEvent], None]) -> Callable[[WatchEvent], None]:
        """The same callable for the same watch: set twice, it runs once."""
        if watch not in self._watches:
            self._watches[watch] = lambda event: self._send_back(watch, event)
        return self._watches[watch]

    def _send_back(self, take: Callable[..., None], *arguments: Any) -> None:
        self._answers_s = max(self._answers_s, self._now() + self._latency_s())
        self.process.loop.call_at(
            self._answers_s, self._come_back, self._connection, take, arguments
        )

    def _come_back(self, connection: int, take: Callable[..., None], arguments: Any) -> None:
        if connection == self._connection and self.state is not SessionState.CLOSED:
            self._answered_at_s = self._now()
            take(*arguments)

    # ---- the connection

    def is_cut(self) -> bool:
        """Return whether the process and the servers can't talk, in one direction or both."""
        network, host = self.zookeeper.world.network, self.process.host
        return network.is_cut(host, HOST) or network.is_cut(HOST, host)

    async def _ping(self) -> None:
        """Be heard; lose the connection, and find another one."""
        pause_s = self.session_timeout_ms / PINGS / 1000
        while True:
            await asyncio.sleep(pause_s if self.state is SessionState.CONNECTED else pause_s / 4)
            cut, served = self.is_cut(), self.served
            if not cut and served.state is SessionState.CONNECTED and not served.server_expired:
                self._heard()
                self._answered_at_s = self._now()
                continue
            silent = self.silence_ms * 3 >= self.session_timeout_ms * 2
            if self.state is SessionState.CONNECTED and (silent or not cut):
                self._lose()
                self._become(SessionState.SUSPENDED)
            if not cut:
                await asyncio.sleep(2 * self._latency_s())
                self._reconnect()

    def _reconnect(self) -> None:
        if self.is_cut() or self.state is SessionState.CLOSED:
            return
        expired = self.served.server_expired
        if expired:
            self._watches.clear()
            self.session_id = 0
            self._become(SessionState.EXPIRED)
        self._connected()
        self.zookeeper.server.resume(self.served)
        self.session_id = self.served.session_id
        self._become(SessionState.CONNECTED)

    def _connected(self) -> None:
        self._connection += 1
        self._heard()
        self._answered_at_s = self._now()
        self.session_id = self.served.session_id

    def _lose(self) -> None:
        """Lose what is in flight: its result will never be known."""
        self._connection += 1
        waiting, self._waiting = list(self._waiting), {}
        for reply in waiting:
            if not reply.done():
                reply.set_exception(ConnectionLoss("the connection to ZooKeeper was lost"))

    def _heard(self) -> None:
        self.heard_at_s = self._now()

    async def _watch_over(self) -> None:
        """At the servers: end the session of who is not heard."""
        timeout_s = self.session_timeout_ms / 1000
        while self.state is not SessionState.CLOSED:
            silence_s = self._now() - self.heard_at_s
            if silence_s < timeout_s:
                await asyncio.sleep(timeout_s - silence_s + 0.001)
                continue
            if not self.served.server_expired:
                self.zookeeper.world.story.tell("zookeeper", f"ends the session of {self.process}")
                self.zookeeper.expire(self)
            if not self.process.alive:
                return
            await asyncio.sleep(timeout_s)

    # ---- small parts

    def _become(self, state: SessionState) -> None:
        self.state = state
        for listener in tuple(self._listeners):
            listener(state)

    def _latency_s(self) -> float:
        return self.zookeeper.world.rng.uniform(*LATENCY_S)

    def _now(self) -> float:
        return self.zookeeper.world.now
