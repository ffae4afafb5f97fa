"""Remove partitions from the metadata that exist no more, though no controller says so.

A controller tells every broker of a deletion. A broker that does not hear it for a while may miss
that: its session ends, or the controller does. The next controller does not know the topic, and
takes nothing back that it does not know. So partitions that a controller has not named since it was
elected, or since this broker registered, are looked up in ZooKeeper, and go if they are not there.
Controllers name everything at first (ours), or soon (stock): mostly there is nothing to look up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable

import attrs

from broker.cluster.metadata_cache import MetadataCache
from broker.process.zk_retry import retry_until_connected
from protocol.topic_partition import TopicPartition
from zk.api import ZkError, ZkSession
from zk.znodes import TopicAssignment, ZnodeError

logger = logging.getLogger(__name__)

GHOST_CHECK_MS = 2000
"""How often partitions that no controller names are looked for."""
TOPICS_AT_ONCE = 200
"""Topics that are looked up at a time: a turn of the loop parses their nodes."""


@attrs.define(eq=False)
class GhostPartitions:
    """Looks up what the controller has not named. `deleted` gets the partitions that have gone."""

    zk: ZkSession
    cache: MetadataCache
    deleted: Callable[[list[TopicPartition]], None]
    touch: Callable[[Hashable], None]

    async def remove(self) -> None:
        """Look up some of the partitions that are not named; call this from time to time."""
        topics = self.cache.unnamed_topics(TOPICS_AT_ONCE)
        if not topics:
            return
        try:
            existing = await self._read(topics)
        except ZkError as error:
            logger.warning("%d topics cannot be looked up: %r", len(topics), error)
            return

        # The controller may have named them meanwhile: the cache leaves those.
        gone = []
        for topic, partitions in existing.items():
            gone += self.cache.confirm(topic, partitions)
        if gone:
            logger.warning(
                "%d partitions are removed from the metadata: they were deleted unheard, of %s",
                len(gone),
                ", ".join(sorted({partition.topic for partition in gone})[:10]),
            )
            self.deleted(gone)
        for topic in {partition.topic for partition in gone}:
            self.touch(("topic", topic))

    async def _read(self, topics: list[str]) -> dict[str, Collection[int]]:
        """Return the partitions that these topics have in ZooKeeper. Raises ZkError."""
        await retry_until_connected(self.zk, lambda: self.zk.sync(TopicAssignment.directory()))
        paths = list(map(TopicAssignment.path, topics))
        nodes = await retry_until_connected(self.zk, lambda: self.zk.get_many(paths))

        existing: dict[str, Collection[int]] = {}
        for topic, path, node in zip(topics, paths, nodes, strict=True):
            try:
                existing[topic] = TopicAssignment.decode(node[0], path).partitions if node else ()
            except ZnodeError as error:
                logger.warning("%s", error)
                # Nothing is known: all that the cache has stays.
                existing[topic] = [state.partition_index for state in self.cache.partitions(topic)]
        return existing
