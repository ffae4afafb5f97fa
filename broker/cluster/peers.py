"""Connect to other brokers: to control them, to fetch from them, to write to internal topics."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from broker.cluster.metadata_cache import MetadataCache
from broker.settings.config import BrokerConfig
from clients.transport.connection import Connection, ConnectionFailed
from clients.transport.login import Login
from protocol.frozen import frozen
from protocol.internal_topics import ADMIN_CLIENT_ID


@frozen
class Peers:
    """The other brokers in `cache`, by the listener between brokers.

    `login(listener)` returns how this broker logs in at a listener; None if it need not.
    `tls(listener)` returns the context for connecting to a listener; None if it has no TLS.
    """

    config: BrokerConfig
    cache: MetadataCache
    tls: Callable[[str], ssl.SSLContext | None] = lambda listener: None
    login: Callable[[str], Login | None] = lambda listener: None

    async def connect_to_control(self, host: str, port: int) -> Connection:
        """Connect to a broker to control it, by its listener for that. Raises ConnectionFailed."""
        return await self._connect(self.config.controller_listener, host, port)

    async def connect_to_controller(self, host: str, port: int) -> Connection:
        """Connect to the controller, by its listener between brokers. Raises ConnectionFailed."""
        return await self._connect(self.config.inter_broker_listener, host, port)

    async def _connect(self, listener: str, host: str, port: int) -> Connection:
        # The client id of Kafka's controller is the bare broker id.
        return await Connection.open(
            host,
            port,
            client_id=str(self.config.broker_id),
            request_timeout_ms=self.config.controller_socket_timeout_ms,
            tls=self.tls(listener),
            login=self.login(listener),
        )

    async def connect_to_leader(self, leader: int) -> Connection:
        """Connect to a broker to fetch from it. Raises ConnectionFailed."""
        # The metadata has no address of a broker that is not registered.
        endpoint = self.cache.endpoint(leader, self.config.inter_broker_listener)
        if endpoint is None:
            raise ConnectionFailed(f"broker {leader}", -1, "the controller has not named it")
        return await Connection.open(
            endpoint.host,
            endpoint.port,
            client_id=f"broker-{self.config.broker_id}-fetcher",
            request_timeout_ms=self.config.replica_socket_timeout_ms,
            tls=self.tls(self.config.inter_broker_listener),
            login=self.login(self.config.inter_broker_listener),
        )

    async def connect_to_write(self, leader: int) -> Connection:
        """Connect to a broker, or to this one, to write to internal topics.

        Raises ConnectionFailed.
        """
        endpoint = self.cache.endpoint(leader, self.config.inter_broker_listener)
        if endpoint is None:
            raise ConnectionFailed(f"broker {leader}", -1, "the controller has not named it")
        # Only this client id may write to them.
        return await Connection.open(
            endpoint.host,
            endpoint.port,
            client_id=ADMIN_CLIENT_ID,
            tls=self.tls(self.config.inter_broker_listener),
            login=self.login(self.config.inter_broker_listener),
        )
