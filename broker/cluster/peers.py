"""Connect to other brokers: to control them, to fetch from them, to hand over before shutdown."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import attrs

from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.registration import Registration
from broker.lifecycle.controlled_shutdown import ControlledShutdown, ShutdownConfig
from broker.replication.partition import Partition
from broker.replication.replica_fetchers import FetcherConfig, ReplicaFetchers
from broker.replication.replication_quota import ReplicationQuota
from broker.settings.config import BrokerConfig
from clients.transport.connection import Connection, ConnectionFailed
from core_log.log_work import LogWork
from zk.api import ZkSession


@attrs.frozen
class Peers:
    """The other brokers in `cache`, by the listener between brokers."""

    config: BrokerConfig
    cache: MetadataCache
    zk: ZkSession
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    now_ms: Callable[[], int]

    async def connect(self, host: str, port: int) -> Connection:
        """Connect to a broker to control it. Raises ConnectionFailed."""
        return await Connection.open(
            host,
            port,
            client_id=str(self.config.broker_id),
            request_timeout_ms=self.config.controller_socket_timeout_ms,
        )

    async def connect_to_leader(self, leader: int) -> Connection:
        """Connect to a broker to fetch from it. Raises ConnectionFailed."""
        endpoint = self.cache.endpoint(leader, self.config.inter_broker_listener)
        if endpoint is None:
            raise ConnectionFailed(f"broker {leader}", -1, "the controller has not named it")
        return await Connection.open(
            *endpoint,
            client_id=f"broker-{self.config.broker_id}-fetcher",
            request_timeout_ms=self.config.replica_socket_timeout_ms,
        )

    def create_fetchers(
        self,
        quota: ReplicationQuota,
        work: LogWork,
        appended: Callable[[Partition], None],
    ) -> ReplicaFetchers:
        """Return the fetchers for this broker's followers."""
        config = self.config
        return ReplicaFetchers(
            config.broker_id,
            FetcherConfig(
                config.replica_fetch_max_bytes,
                config.replica_fetch_response_max_bytes,
                config.replica_fetch_wait_max_ms,
                config.replica_fetch_min_bytes,
                config.replica_fetch_backoff_ms,
                config.num_replica_fetchers,
            ),
            self.connect_to_leader,
            self.spawn,
            self.now_ms,
            quota,
            work,
            appended,
        )

    def controlled_shutdown(self, registration: Registration) -> ControlledShutdown:
        """Return the controlled shutdown of this broker."""
        return ControlledShutdown(
            self.zk,
            self.config.broker_id,
            lambda: registration.epoch,
            self.config.inter_broker_listener,
            self.connect,
            ShutdownConfig(
                self.config.controlled_shutdown_enable,
                self.config.controlled_shutdown_max_retries,
                self.config.controlled_shutdown_retry_backoff_ms,
            ),
        )
