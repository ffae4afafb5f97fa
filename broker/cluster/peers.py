"""Connect to other brokers: to control them, to fetch from them, to write to internal topics."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from broker.cluster.metadata_cache import MetadataCache
from broker.settings.config import BrokerConfig
from clients.transport.connection import Connection, ConnectionFailed
from clients.transport.login import Login
from protocol.internal_topics import ADMIN_CLIENT_ID


@attrs.frozen
class Peers:
    """The other brokers in `cache`, by the listener between brokers.

    `login(listener)` returns how this broker logs in at a listener; None if it need not.
    """

    config: BrokerConfig
    cache: MetadataCache
    login: Callable[[str], Login | None] = lambda listener: None

    async def connect(self, host: str, port: int) -> Connection:
        """Connect to a broker to control it. Raises ConnectionFailed."""
        # The client id of Kafka's controller is the bare broker id.
        return await Connection.open(
            host,
            port,
            client_id=str(self.config.broker_id),
            request_timeout_ms=self.config.controller_socket_timeout_ms,
            login=self.login(self.config.inter_broker_listener),
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
            login=self.login(self.config.inter_broker_listener),
        )
