"""ZooKeeper as a group's story has it: every call and reply late, every transaction watched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tests.groups.zookeeper.stories.figures import LATENCY_S, OFFSETS, OWNERS
from zk.api import (
    ConnectionLoss,
    Delete,
    Op,
    SessionExpired,
    SessionState,
    Stat,
    WatchEvent,
    ZkError,
)
from zk.memory import MemorySession, MemoryZooKeeper

if TYPE_CHECKING:
    from tests.groups.zookeeper.stories.story import Story


class Wire:
    """A session behind a wire that delays calls, replies and watch events, and keeps their order.

    A connection that breaks loses the replies on the way.
    """

    def __init__(self, session: MemorySession, story: Story) -> None:
        self.session = session
        self.slowness = 1
        self._story = story
        self._arrives_s = self._heard_s = 0.0
        self._breaks = 0
        self._watches: dict[Any, Callable[[WatchEvent], None]] = {}
        session.add_state_listener(self._state_changed)

    def _state_changed(self, state: SessionState) -> None:
        self._breaks += state is SessionState.SUSPENDED

    def _delay_s(self) -> float:
        return self._story.random.uniform(0, LATENCY_S * self.slowness)

    def _heard_at(self) -> float:
        self._heard_s = max(self._heard_s, self._story.now_s() + self._delay_s())
        return self._heard_s

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.session, name)
        if not asyncio.iscoroutinefunction(method):
            return method
        return lambda *arguments, **keywords: self._call(method, arguments, keywords)

    def remove_watch(self, watch: Callable[[WatchEvent], None]) -> None:
        if late := self._watches.pop(watch, None):
            self.session.remove_watch(late)

    def _call(self, method: Any, arguments: Any, keywords: Any) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Any] = loop.create_future()
        session_id = self.session.session_id
        number = self._story.calls_sent()
        if callable(arguments[-1]):  # a watch
            arguments = (*arguments[:-1], self._late(arguments[-1]))

        def arrive() -> None:
            self._story.call_arrives(number)
            result, error = None, None
            try:
                if self.session.session_id != session_id:
                    raise SessionExpired("of an earlier session")
                method(*arguments, **keywords).send(None)
            except StopIteration as done:
                result = done.value
            except ZkError as raised:
                error = raised
            loop.call_at(self._heard_at(), come_back, result, error, self._breaks)

        def come_back(result: Any, error: ZkError | None, breaks: int) -> None:
            if reply.done():  # nobody waits any more
                return
            if error is None and breaks != self._breaks:
                error = ConnectionLoss("the reply was lost")
            if isinstance(error, ConnectionLoss | SessionExpired):
                self._story.bites["call lost"] += 1
            if error:
                reply.set_exception(error)
            else:
                reply.set_result(result)

        self._arrives_s = max(self._arrives_s, loop.time() + self._delay_s())
        loop.call_at(self._arrives_s, arrive)
        return reply

    def _late(self, watch: Callable[[WatchEvent], None]) -> Callable[[WatchEvent], None]:
        """Return a delayed watch, the same for each watch: a session runs a callable once."""
        if watch not in self._watches:
            session_id = self.session.session_id

            def late(event: WatchEvent) -> None:
                asyncio.get_running_loop().call_at(self._heard_at(), tell, event)

            def tell(event: WatchEvent) -> None:
                if self.session.session_id == session_id or watch != self._watches.get(watch):
                    watch(event)

            self._watches[watch] = late
        return self._watches[watch]


class WatchedZooKeeper(MemoryZooKeeper):
    """A ZooKeeper that shows the story every transaction."""

    def __init__(self, story: Story) -> None:
        super().__init__(lambda: int(story.now_s() * 1000))
        self.story = story

    def commit(self, ops: Sequence[Op], session_id: int) -> list[str | Stat | None]:
        offsets = [op for op in ops if op.path.startswith(OFFSETS) and not isinstance(op, Delete)]
        before = {op.path: self.tree.get(op.path) for op in offsets}
        results = super().commit(ops, session_id)
        for op in offsets:
            if op.path.count("/") == 5:
                node = before[op.path]
                self.story.promises.check_commit(op, session_id, node.data if node else None)
        if any(op.path.startswith(OWNERS) for op in ops):
            self.story.promises.check_deliveries()
        return results
