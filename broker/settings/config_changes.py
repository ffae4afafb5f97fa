"""Follow the notifications of changed settings in `/config/changes`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import attrs

from broker.process.change_notifications import ChangeNotifications
from zk.api import ZkSession
from zk.znodes import ConfigChange, ZnodeError

logger = logging.getLogger(__name__)


@attrs.define(eq=False)
class ConfigChanges:
    """Notifies `listeners`, one per kind of entity, of the name of a changed entity.

    `session_renewed` is called when anything may have changed.
    """

    zk: ZkSession
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    listeners: Mapping[str, Callable[[str], None]] = attrs.field(factory=dict)
    session_renewed: Callable[[], None] = lambda: None
    _notifications: ChangeNotifications = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._notifications = ChangeNotifications(
            self.zk,
            self.spawn,
            ConfigChange.directory(),
            "configuration changes",
            self._notify,
            self.session_renewed,
        )

    async def start(self) -> None:
        """Begin to follow the notifications."""
        await self._notifications.start()

    async def look(self) -> None:
        """Handle new notifications; call this from time to time (`ChangeNotifications.look`)."""
        await self._notifications.look()

    def _notify(self, path: str, data: bytes | None) -> None:
        try:
            kind, _, entity = ConfigChange.decode(data, path).entity_path.partition("/")
        except ZnodeError as error:
            logger.warning("configuration change %s cannot be read: %s", path, error)
            return
        if kind in self.listeners:
            self.listeners[kind](entity)
