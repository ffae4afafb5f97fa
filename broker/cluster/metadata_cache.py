"""The cluster as the controller last told it: live brokers, partitions and who leads them."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable

import attrs

from broker.cluster.topic_names import TopicNames
from protocol.messages import update_metadata
from protocol.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataRequestPartitionState,
)
from protocol.topic_name import is_legal
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

LEADER_DURING_DELETE = -2
SECURITY_PROTOCOLS = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}
"""The listener an endpoint belongs to where its name is not carried (versions 1 and 2)."""
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})


@attrs.frozen
class LiveBroker:
    """A live broker: listener name → (host, port)."""

    id: int
    endpoints: dict[str, tuple[str, int]]
    rack: str | None


@attrs.define(eq=False)
class MetadataCache:
    """Changed only by UpdateMetadata, read by every handler.
    `updates` counts how often, and `changed_in` says with which of them a topic was last another
    one to clients."""

    updates: int = 0
    changed_in: dict[str, int] = attrs.field(factory=dict)
    controller_id: int = -1
    brokers: dict[int, LiveBroker] = attrs.field(factory=dict)
    names: TopicNames = attrs.field(factory=TopicNames)
    _topics: dict[str, dict[int, UpdateMetadataRequestPartitionState]] = attrs.field(factory=dict)

    def update(self, request: UpdateMetadataRequest) -> tuple[set[str], list[TopicPartition]]:
        """Take a request of a current controller; return the topics it touched and the
        partitions it says are being deleted."""
        self.updates += 1
        self.controller_id = request.controller_id
        brokers = {b.id: _live_broker(b) for b in request.live_brokers}
        if brokers != self.brokers:
            self.brokers = brokers
            self.changed_in = dict.fromkeys(self._topics, self.updates)
        touched: set[str] = set()
        deleted: list[TopicPartition] = []
        for topic, state in update_metadata.partition_states(request):
            if topic not in touched and not is_legal(topic):
                logger.warning("the controller names a topic %r; it is passed over", topic)
                continue
            touched.add(topic)
            if state.leader == LEADER_DURING_DELETE:
                deleted.append(TopicPartition(topic, state.partition_index))
                self._forget(topic, state.partition_index)
            else:
                self._partitions(topic)[state.partition_index] = state
        for topic in touched & self._topics.keys():
            self.changed_in[topic] = self.updates
        return touched, deleted

    def _partitions(self, topic: str) -> dict[int, UpdateMetadataRequestPartitionState]:
        """Those of a topic, which is known from now on."""
        partitions = self._topics.get(topic)
        if partitions is None:
            partitions = self._topics[topic] = {}
            self.names.add(topic)
        return partitions

    def _forget(self, topic: str, partition: int) -> None:
        partitions = self._topics.get(topic, {})
        partitions.pop(partition, None)
        if not partitions:
            self._topics.pop(topic, None)
            self.names.discard(topic)
            self.changed_in.pop(topic, None)

    def topics(self) -> list[str]:
        """All topic names."""
        return list(self._topics)

    def has_topic(self, topic: str) -> bool:
        """Whether any partition of the topic is known."""
        return topic in self._topics

    def partition_count(self, topic: str) -> int:
        """How many partitions of the topic are known."""
        return len(self._topics.get(topic, ()))

    def partition_indexes(self, topic: str) -> Container[int]:
        """The numbers of the topic's partitions."""
        return self._topics.get(topic, ())

    def partitions(self, topic: str) -> Iterable[UpdateMetadataRequestPartitionState]:
        """The states of a topic's partitions, by number."""
        return (state for _, state in sorted(self._topics.get(topic, {}).items()))

    def partition_state(self, tp: TopicPartition) -> UpdateMetadataRequestPartitionState | None:
        """What is known of a partition."""
        return self._topics.get(tp.topic, {}).get(tp.partition)

    def racks(self) -> dict[int, str | None]:
        """Where each live broker stands; None of one that does not say."""
        return {broker.id: broker.rack for broker in self.brokers.values()}

    def endpoint(self, broker_id: int, listener: str) -> tuple[str, int] | None:
        """(host, port) of a live broker's listener."""
        broker = self.brokers.get(broker_id)
        return broker.endpoints.get(listener) if broker else None

    def leader_endpoint(self, tp: TopicPartition, listener: str) -> tuple[int, str, int] | None:
        """(node id, host, port) of the live leader of a partition."""
        state = self.partition_state(tp)
        found = self.endpoint(state.leader, listener) if state else None
        return (state.leader, *found) if state and found else None


def _live_broker(broker: update_metadata.UpdateMetadataRequestLiveBroker) -> LiveBroker:
    endpoints = {
        e.listener or SECURITY_PROTOCOLS.get(e.security_protocol, ""): (e.host, e.port)
        for e in broker.endpoints
    }
    if not endpoints:
        endpoints = {"PLAINTEXT": (broker.v0_host, broker.v0_port)}
    return LiveBroker(broker.id, endpoints, broker.rack)
