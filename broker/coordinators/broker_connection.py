"""What coordinators use of a connection to another broker."""

from __future__ import annotations

from typing import Any, Protocol


class BrokerConnection(Protocol):
    """What is used of `clients.transport.connection.Connection`."""

    @property
    def closed(self) -> bool:
        """Return whether it can no longer send."""

    async def call(self, request: Any) -> Any:
        """Send a request and return its response. Raises ConnectionFailed."""
