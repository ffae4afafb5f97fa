"""Build the cluster wing: what a broker knows of the cluster, and does for it."""

from __future__ import annotations

from broker.cluster.automatic_topics import AutomaticTopics
from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.producer_ids import ProducerIds
from broker.cluster.topic_creation import TopicCreator
from broker.process.process import Process
from broker.settings.config import BrokerConfig
from protocol.frozen import frozen
from zk.api import ZkSession


@frozen
class ClusterWing:
    """The parts of the wing that handlers use."""

    id: str
    cache: MetadataCache
    creator: TopicCreator
    automatic_topics: AutomaticTopics
    producer_ids: ProducerIds


def assemble(
    *,
    cluster_id: str,
    config: BrokerConfig,
    process: Process,
    zk: ZkSession,
    cache: MetadataCache,
) -> ClusterWing:
    """Build the wing over the metadata that the controller sends."""
    creator = TopicCreator(zk, racks=cache.racks, touch=process.touch, rng=process.rng)
    return ClusterWing(
        id=cluster_id,
        cache=cache,
        creator=creator,
        automatic_topics=AutomaticTopics(creator, cache, config),
        producer_ids=ProducerIds(zk, config.broker_id, process.spawn, process.touch),
    )
