"""Follow the leader of a partition, wherever it moves, and the coordinators of groups.

The cluster is kept between calls: the brokers that it names may outlive the bootstrap addresses,
and a known leader is not replaced by an older one.
"""

import contextlib
from collections.abc import Callable
from typing import TypeVar

import attrs

from clients.cluster import Cluster
from clients.cluster_view import BrokerEndpoint
from clients.config import ClusterConfig
from clients.errors import BrokerError, ConnectionFailed, NoBrokersAvailable
from clients.transport.connections import Ask
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition

T = TypeVar("T")

UNSETTLED = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Error codes of a broker while a group's coordinator moves."""


@attrs.define(eq=False)
class FollowedPartition:
    """A partition whose leader is followed. It also finds coordinators; `close` closes all."""

    partition: TopicPartition
    settings: ClusterConfig
    _cluster: Cluster = attrs.field(init=False)

    @_cluster.default
    def _new_cluster(self) -> Cluster:
        return Cluster(self.settings.bootstrap_servers, config=self.settings)

    async def leader(self, timeout_ms: int) -> BrokerEndpoint:
        """Return the present leader, or the last known one while no broker can be asked.

        Raises as `Cluster.leader`.
        """
        # The last response led to a broker that does not lead, so ask another one.
        self._cluster.ask_another()
        with contextlib.suppress(ConnectionFailed, NoBrokersAvailable):
            await self._cluster.refresh([self.partition.topic])
        return await self._cluster.leader(self.partition, timeout_ms=timeout_ms)

    async def ask_coordinator(
        self, group_id: str, ask: Ask[T], errors: Callable[[T], list[ErrorCode]]
    ) -> T:
        """Ask a group's coordinator until one responds that is settled.

        Raises DeadlineExceeded, UnsupportedApi; BrokerError if no coordinator can exist.
        """

        async def once() -> T:
            result = await self._cluster.ask_coordinator(group_id, ask)

            for code in UNSETTLED.intersection(errors(result)):
                # A coordinator that still loads is the right one; any other is looked up again.
                if code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    self._cluster.forget_coordinator(group_id)
                raise BrokerError(code, f"group {group_id}")

            return result

        return await self._cluster.retrying(once, f"group {group_id}")

    async def close(self) -> None:
        """Close the connections. A later call starts with a new cluster."""
        cluster = self._cluster
        self._cluster = self._new_cluster()
        await cluster.close()
