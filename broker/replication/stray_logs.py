"""Name the logs of a broker that belong to no replica of it, so that somebody looks at them.

The first LeaderAndIsr does not tell: a controller that takes over sends the partitions whose state
it changes later than the others, and a stock one sends what it likes. So the topics of the logs
without a partition are looked up in ZooKeeper, some time after it, before a log is called a stray.
"""

from __future__ import annotations

import logging

import attrs

from broker.process.zk_retry import retry_until_connected
from broker.replication.replica_manager import ReplicaManager
from protocol.topic_partition import TopicPartition
from zk.api import ZkError, ZkSession
from zk.znodes import TopicAssignment, ZnodeError

logger = logging.getLogger(__name__)

STRAY_CHECK_MS = 60_000
"""How often logs without a partition are looked up."""
STRAYS_NAMED = 20
"""Most logs that one line of the log names."""
LOGS_AT_ONCE = 200
"""Logs that are looked up at a time: a turn of the loop parses their topics' nodes."""


@attrs.define(eq=False)
class StrayLogs:
    """Looks for strays among the logs of `replicas`, and names each once."""

    replicas: ReplicaManager
    zk: ZkSession
    _judged: set[TopicPartition] = attrs.field(factory=set)

    async def report(self) -> None:
        """Name the strays among some of the logs that were not looked at; call it regularly."""
        if not self.replicas.is_leadership_known:
            return
        unserved = self.replicas.logs.logs.keys() - self.replicas.partitions.keys() - self._judged
        looked_at = sorted(unserved)[:LOGS_AT_ONCE]
        if not looked_at:
            return
        try:
            strays = await self._without_replica(looked_at)
        except ZkError as error:
            logger.warning("%d logs cannot be looked up: %r", len(looked_at), error)
            return

        # A stray may be deleted by hand, and its partition come here again.
        self._judged.update(strays)
        if strays:
            logger.warning(
                "%d logs belong to no replica of this broker, by ZooKeeper: %s%s; they are kept, "
                "and may be removed while the broker is stopped",
                len(strays),
                ", ".join(map(str, strays[:STRAYS_NAMED])),
                ", …" if len(strays) > STRAYS_NAMED else "",
            )

    async def _without_replica(self, logs: list[TopicPartition]) -> list[TopicPartition]:
        """Return those that ZooKeeper does not assign to this broker. Raises ZkError."""
        topics = sorted({partition.topic for partition in logs})
        paths = list(map(TopicAssignment.path, topics))
        nodes = await retry_until_connected(self.zk, lambda: self.zk.get_many(paths))

        kept = set(self.replicas.partitions)
        for topic, path, node in zip(topics, paths, nodes, strict=True):
            try:
                assigned = TopicAssignment.decode(node[0], path).partitions if node else {}
            except ZnodeError:
                # Nobody can say whose they are.
                kept.update(partition for partition in logs if partition.topic == topic)
                continue
            kept.update(
                TopicPartition(topic, index)
                for index, replicas in assigned.items()
                if self.replicas.local_id in replicas
            )
        strays = set(logs)
        # Live partitions are no strays, whenever the controller names them (fault core-R9).
        strays -= kept
        return sorted(strays)
