"""Follow a directory of notifications in ZooKeeper, as every broker does.

A notification names what has changed and never carries it: each listener reads that again.

Notifications from before the start say nothing new, because all is read after the watch was set.
Neither do those that came while there was no session: with a new session all is read again, because
some notifications may be purged already.

Any broker purges notifications that are `PURGE_MS` older than the newest one. Both times are of
ZooKeeper's clock, so a broker with a wrong clock does no harm.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar

import attrs

from broker.process.zk_retry import retry_until_connected
from zk.api import NoNode, SessionState, WatchEvent, ZkError, ZkSession
from zk.failures import is_transient
from zk.znodes import ZnodeError, parse_sequence_number

T = TypeVar("T")

logger = logging.getLogger(__name__)

# Kafka's age (changeExpirationMs in ZkNodeChangeNotificationListener).
PURGE_MS = 15 * 60 * 1000

PAUSE_FOR_EACH_S = 1e-4
LONGEST_PAUSE_S = 1.0
"""Time between two looks, for each notification that is there, and at most."""

LOOK_INTERVAL_MS = 60_000
"""How often a broker looks for changes without a notification."""


@attrs.define(eq=False)
class ChangeNotifications:
    """Calls `notify(path, data)` for each new notification, in their order.

    `session_renewed` is called when anything may have changed. `what` is the word for the changes,
    in logs.
    """

    zk: ZkSession
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    directory: str
    what: str
    notify: Callable[[str, bytes | None], None]
    session_renewed: Callable[[], None] = lambda: None
    _session_id: int = 0
    # The number of the newest notification that counts; None before the first look.
    _last_change: int | None = None
    _looked_at_s: float = float("-inf")
    _created_ms: dict[str, int] = attrs.field(factory=dict)
    """The notifications that are there, by path; each is read once."""

    # ---- when to look

    async def start(self) -> None:
        """Begin to follow the notifications."""
        self._session_id = self.zk.session_id
        self.zk.add_state_listener(self._session_changed)
        await self.look()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self.spawn(self._connected())

    async def _connected(self) -> None:
        """Read what could not be read meanwhile. In a new session, read everything again."""
        is_new = self._session_id != self.zk.session_id
        self._session_id = self.zk.session_id

        # Set the watch before everything is read, so that no change falls in between.
        await self.look()
        if is_new:
            self.session_renewed()

    def _watched(self, event: WatchEvent) -> None:
        self.spawn(self._look_when_due())

    async def _look_when_due(self) -> None:
        """Look at once, or a while after the last look, by the number of notifications.

        A look lists all of them. Without the pause thousands of changes, one after the other, would
        cost each broker the square of their number.
        """
        now_s = asyncio.get_running_loop().time()
        pause_s = min(len(self._created_ms) * PAUSE_FOR_EACH_S, LONGEST_PAUSE_S)
        # Many changes in a row are listed together (fault scale-S4, was: now_s).
        due_s = max(now_s, self._looked_at_s + pause_s)
        if due_s > now_s:
            await asyncio.sleep(due_s - now_s)
        await self.look()

    async def look(self) -> None:
        """Handle new notifications, and watch for the next ones.

        Call this from time to time, too: when ZooKeeper refuses a read, its watch is lost.

        The read is repeated for as long as the session lasts. In the next session everything is
        read.
        """
        self._looked_at_s = asyncio.get_running_loop().time()
        try:
            await self._read_changes()
        except ZkError as error:
            # A lost session needs no line: the next one begins with a look.
            if not is_transient(error):
                logger.error("%s cannot be read, looking again: %r", self.what, error)

    # ---- notifications

    async def _read_changes(self) -> None:
        # List by number, and watch for more.
        directory = self.directory
        names, _ = await self._ask(lambda: self.zk.children(directory, watch=self._watched))
        numbered = sorted(_with_numbers(names))
        if self._last_change is None:
            # Those of before the start say nothing new.
            self._last_change = max((number for number, _ in numbered), default=-1)

        # Old ones are read too, once: their ages say what may be purged.
        paths = {f"{directory}/{name}": number for number, name in numbered}
        unread = [path for path in paths if path not in self._created_ms]
        nodes = await self._ask(lambda: self.zk.get_many(unread))

        # A change is counted once it is read, so that a failed read is repeated.
        for path, node in zip(unread, nodes, strict=True):
            is_new = paths[path] > self._last_change
            self._last_change = max(self._last_change, paths[path])
            if node is not None:
                data, stat = node
                self._created_ms[path] = stat.ctime_ms
                if is_new:
                    self.notify(path, data)

        # What other brokers have purged is known no more.
        for path in self._created_ms.keys() - paths.keys():
            del self._created_ms[path]
        await self._purge(self._created_ms)

    async def _ask(self, call: Callable[[], Awaitable[T]]) -> T:
        return await retry_until_connected(self.zk, call)

    async def _purge(self, created_ms: Mapping[str, int]) -> None:
        newest_ms = max(created_ms.values(), default=0)
        old = [path for path in created_ms if newest_ms - created_ms[path] > PURGE_MS]
        for path in old:
            # Another broker purges at the same time.
            with contextlib.suppress(NoNode):
                await self._ask(partial(self.zk.delete, path))


def _with_numbers(names: list[str]) -> list[tuple[int, str]]:
    numbered = []
    for name in names:
        # A node that somebody put there by hand has no number.
        with contextlib.suppress(ZnodeError):
            numbered.append((parse_sequence_number(name), name))
    return numbered
