"""A partition whose leader one goes after, wherever it moves, and the groups around it.

The cluster is kept between calls: the brokers it names may outlive those it was found by, and a
leader once known is not taken back for an older one.
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
"""What a broker answers while a group's coordinator moves."""


@attrs.define(eq=False)
class FollowedPartition:
    """Finds its leader, and the coordinator of any group. `close` ends its connections."""

    partition: TopicPartition
    settings: ClusterConfig
    _cluster: Cluster = attrs.field(init=False)

    @_cluster.default
    def _new_cluster(self) -> Cluster:
        return Cluster(self.settings.bootstrap_servers, config=self.settings)

    async def leader(self, timeout_ms: int) -> BrokerEndpoint:
        """The leader as told now; as it was, while nobody can be asked. Raises as
        `Cluster.leader`."""
        self._cluster.ask_another()
        with contextlib.suppress(ConnectionFailed, NoBrokersAvailable):
            await self._cluster.refresh([self.partition.topic])
        return await self._cluster.leader(self.partition, timeout_ms=timeout_ms)

    async def ask_coordinator(
        self, group: str, ask: Ask[T], errors: Callable[[T], list[ErrorCode]]
    ) -> T:
        """The answer of a group's coordinator, waiting for there to be one that answers.

        Raises DeadlineExceeded, UnsupportedApi; BrokerError where none can ever be.
        """

        async def once() -> T:
            answer = await self._cluster.ask_coordinator(group, ask)
            for code in UNSETTLED.intersection(errors(answer)):
                if code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    self._cluster.forget_coordinator(group)
                raise BrokerError(code, f"group {group}")
            return answer

        return await self._cluster.retrying(once, f"group {group}")

    async def close(self) -> None:
        """What comes later begins anew."""
        cluster, self._cluster = self._cluster, self._new_cluster()
        await cluster.close()
