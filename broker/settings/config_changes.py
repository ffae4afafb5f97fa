"""Notifications of changed settings: `/config/changes`, which every broker follows.

A notification names an entity, and whoever keeps settings of that kind reads them again: it never
carries the values. Those of before the start say nothing new, because what is kept is read after
the watch was set; nor do those that came while there was no session, because with a new one
everything is read again: some may be purged already. Any broker purges what is `PURGE_MS` older
than the newest; both times are of ZooKeeper's clock, so a broker's that is wrong does no harm.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar

import attrs

from broker.zk_retry import retry_until_connected
from zk.api import NoNode, SessionState, WatchEvent, ZkError, ZkSession
from zk.failures import is_transient
from zk.znodes import ConfigChange, ZnodeError, parse_sequence_number

T = TypeVar("T")

logger = logging.getLogger(__name__)

PURGE_MS = 15 * 60 * 1000

LOOK_INTERVAL_MS = 60_000
"""How often it is looked for changes that nobody told of."""

NOT_ENFORCED = ("clients", "users")


@attrs.define(eq=False)
class ConfigChanges:
    """`told` has, per kind of entity, who hears of its name; `renewed` is called when anything
    may have changed."""

    zk: ZkSession
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    told: Mapping[str, Callable[[str], None]] = attrs.field(factory=dict)
    renewed: Callable[[], None] = lambda: None
    _session_id: int = 0
    _last_change: int | None = None

    async def start(self) -> None:
        """Begin to follow."""
        self._session_id = self.zk.session_id
        self.zk.add_state_listener(self._session_changed)
        await self.look()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self.spawn(self._connected())

    async def _connected(self) -> None:
        """Take what could not be read meanwhile; in a new session, watch before all is read."""
        is_new = self._session_id != self.zk.session_id
        self._session_id = self.zk.session_id
        await self.look()
        if is_new:
            self.renewed()

    def _watched(self, event: WatchEvent) -> None:
        self.spawn(self.look())

    async def look(self) -> None:
        """Take what is new, and watch for what comes. To be called now and then without a watch
        too: what ZooKeeper refused to show would otherwise be the last that was heard.

        Asks for as long as the session lasts: with the next one everything is read.
        """
        try:
            await self._read_changes()
        except ZkError as error:
            if not is_transient(error):
                logger.error("configuration changes cannot be read, looking again: %r", error)

    async def _read_changes(self) -> None:
        """A change counts as taken when it is."""
        directory = ConfigChange.directory()
        names, _ = await self._ask(lambda: self.zk.children(directory, watch=self._watched))
        numbered = sorted(_numbered(names))
        if self._last_change is None:
            self._last_change = max((number for number, _ in numbered), default=-1)

        paths = [f"{directory}/{name}" for _, name in numbered]
        nodes = await self._ask(lambda: self.zk.get_many(paths))
        for (number, _), path, node in zip(numbered, paths, nodes, strict=True):
            if number > self._last_change:
                self._last_change = number
                if node is not None:
                    self._take(path, node[0])

        await self._purge(
            {p: node[1].ctime_ms for p, node in zip(paths, nodes, strict=True) if node}
        )

    async def _ask(self, call: Callable[[], Awaitable[T]]) -> T:
        return await retry_until_connected(self.zk, call)

    async def _purge(self, made_ms: Mapping[str, int]) -> None:
        newest_ms = max(made_ms.values(), default=0)
        for path in (each for each in made_ms if newest_ms - made_ms[each] > PURGE_MS):
            with contextlib.suppress(NoNode):
                await self._ask(partial(self.zk.delete, path))

    def _take(self, path: str, data: bytes | None) -> None:
        try:
            kind, _, entity = ConfigChange.decode(data, path).entity_path.partition("/")
        except ZnodeError as error:
            logger.warning("configuration change %s cannot be read: %s", path, error)
            return
        if kind in self.told:
            self.told[kind](entity)
        elif kind in NOT_ENFORCED:
            logger.warning("quotas of %s have no effect: quotas are not there yet", entity)


def _numbered(names: list[str]) -> list[tuple[int, str]]:
    found = []
    for name in names:
        with contextlib.suppress(ZnodeError):
            found.append((parse_sequence_number(name), name))
    return found
