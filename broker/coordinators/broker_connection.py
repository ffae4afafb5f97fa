"""The connections over which coordinators ask other brokers, and write to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import attrs


class CoordinatorConnection(Protocol):
    """The part of `clients.transport.connection.Connection` that coordinators use."""

    @property
    def closed(self) -> bool:
        """Return whether it can no longer send."""

    async def call(self, request: Any) -> Any:
        """Send a request and return its response. Raises ConnectionFailed."""


@attrs.define(eq=False)
class BrokerConnections:
    """One connection to each broker, opened when it is first used.

    `connect(broker_id)` opens one. `here` takes the requests to this broker, `broker_id`, without
    one.
    """

    connect: Callable[[int], Awaitable[CoordinatorConnection]]
    broker_id: int | None = None
    here: CoordinatorConnection | None = None
    _open: dict[int, CoordinatorConnection] = attrs.field(init=False, factory=dict)

    async def get(self, broker_id: int) -> CoordinatorConnection:
        """Return a connection to a broker. Raises ConnectionFailed."""
        if broker_id == self.broker_id and self.here is not None:
            return self.here
        connection = self._open.get(broker_id)
        if connection is None or connection.closed:
            connection = self._open[broker_id] = await self.connect(broker_id)
        return connection

    def drop(self, broker_id: int) -> None:
        """Open another connection to this broker the next time: a request to it has failed."""
        self._open.pop(broker_id, None)
