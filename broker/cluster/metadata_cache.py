"""The cluster as the controller last described it: live brokers, partitions and their leaders."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable
from itertools import islice

import attrs

from broker.controller.topic_names import TopicNames
from protocol.frozen import frozen
from protocol.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from protocol.messages import update_metadata
from protocol.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataRequestPartitionState,
)
from protocol.security_protocol import SecurityProtocol
from protocol.special_values import LEADER_DURING_DELETE
from protocol.topic_name import is_legal
from protocol.topic_partition import TopicPartition
from zk.znodes import Endpoint

logger = logging.getLogger(__name__)

KEYED_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
"""Those whose partition is found from a group, or a transactional id, and the number of all."""


@frozen
class LiveBroker:
    """A live broker, and its endpoints by the names of their listeners."""

    id: int
    endpoints: dict[str, Endpoint]
    rack: str | None


@attrs.define(eq=False)
class MetadataCache:
    """The cluster, which only UpdateMetadata changes and every handler reads.

    `updates` counts the changes. `changed_in` has, per topic, the last of them that clients can
    see.
    """

    updates: int = 0
    changed_in: dict[str, int] = attrs.field(factory=dict)
    controller_id: int = -1
    brokers: dict[int, LiveBroker] = attrs.field(factory=dict)
    names: TopicNames = attrs.field(factory=TopicNames)
    _topics: dict[str, dict[int, UpdateMetadataRequestPartitionState]] = attrs.field(factory=dict)
    _key_counts: dict[str, int] = attrs.field(factory=dict)
    # Epochs of the controller and of this broker, and what was not named since they began.
    _reign: tuple[int, int] = (-1, -1)
    _unnamed: dict[str, set[int]] = attrs.field(factory=dict)

    # ---- changes

    def update(self, request: UpdateMetadataRequest) -> tuple[set[str], list[TopicPartition]]:
        """Apply a request of the current controller.

        Return the topics that it names, and the partitions that are being deleted.
        """
        self.updates += 1
        self.controller_id = request.controller_id

        # A controller that is new, or new to this broker, may not know of earlier deletions.
        reign = (request.controller_epoch, request.broker_epoch)
        if reign != self._reign:
            self._reign = reign
            self._unnamed = {topic: set(states) for topic, states in self._topics.items()}

        # A changed broker changes the metadata of all topics.
        brokers = {broker.id: _live_broker(broker) for broker in request.live_brokers}
        if brokers != self.brokers:
            self.brokers = brokers
            self.changed_in = dict.fromkeys(self._topics, self.updates)

        # Take the states that are named; all others stay.
        touched: set[str] = set()
        deleted: list[TopicPartition] = []
        for topic, state in update_metadata.partition_states(request):
            if topic not in touched and not is_legal(topic):
                logger.warning(
                    "the controller names a topic %r: its name is illegal, it is ignored", topic
                )
                continue
            touched.add(topic)
            self._name(topic, state.partition_index)

            # Leader -2: the topic is being deleted.
            if state.leader == LEADER_DURING_DELETE:
                deleted.append(TopicPartition(topic, state.partition_index))
                self._remove(topic, state.partition_index)
            else:
                self._add_topic(topic)[state.partition_index] = state

        # Topics that were removed have no entry.
        for topic in touched & self._topics.keys():
            self.changed_in[topic] = self.updates
        for topic in touched & KEYED_TOPICS:
            self._keep_key_count(topic)
        return touched, deleted

    def _name(self, topic: str, partition_id: int) -> None:
        """Note that the controller knows the partition."""
        unnamed = self._unnamed.get(topic)
        if unnamed is not None:
            unnamed.discard(partition_id)
            if not unnamed:
                del self._unnamed[topic]

    def unnamed_topics(self, limit: int) -> list[str]:
        """Return topics with partitions that the controller has not named since it began."""
        return list(islice(self._unnamed, limit))

    def confirm(self, topic: str, existing: Container[int]) -> list[TopicPartition]:
        """Remove the partitions of a topic that were not named and do not exist; return them.

        The others count as named.
        """
        gone = [
            TopicPartition(topic, partition_id)
            for partition_id in sorted(self._unnamed.pop(topic, ()))
            if partition_id not in existing
        ]
        if gone:
            self.updates += 1
        for partition in gone:
            # Deleted while the controller could not be heard (fault core-R4).
            self._remove(topic, partition.partition)
        if topic in self._topics:
            self.changed_in[topic] = self.updates
        # It was created again: its keys are spread anew.
        if gone and topic in KEYED_TOPICS:
            self._key_counts.pop(topic, None)
            self._keep_key_count(topic)
        return gone

    def _add_topic(self, topic: str) -> dict[int, UpdateMetadataRequestPartitionState]:
        """Return the topic's partitions; add the topic if it is missing."""
        partitions = self._topics.get(topic)
        if partitions is None:
            partitions = self._topics[topic] = {}
            self.names.add(topic)
        return partitions

    def _remove(self, topic: str, partition_id: int) -> None:
        partitions = self._topics.get(topic, {})
        partitions.pop(partition_id, None)

        # A topic is there as long as one of its partitions is.
        if not partitions:
            self._topics.pop(topic, None)
            self.names.discard(topic)
            self.changed_in.pop(topic, None)
            self._key_counts.pop(topic, None)

    # ---- topics and partitions

    def topics(self) -> list[str]:
        """Return all topic names."""
        return list(self._topics)

    def has_topic(self, topic: str) -> bool:
        """True if any partition of the topic is known."""
        return topic in self._topics

    def partition_count(self, topic: str) -> int:
        """Return the number of known partitions of the topic."""
        return len(self._topics.get(topic, ()))

    def key_partition_count(self, topic: str) -> int:
        """Return by how many partitions of an internal topic keys are shared out; 0 if not known.

        It is the first complete number, for as long as the broker lives or the topic is there: with
        another one most groups and transactional ids would be looked for where they are not.
        """
        return self._key_counts.get(topic, 0)

    def _keep_key_count(self, topic: str) -> None:
        partitions = self._topics.get(topic, {})
        kept = self._key_counts.get(topic, 0)
        if len(partitions) <= kept or max(partitions) >= len(partitions):
            return
        # More partitions do not move the keys that are there (fault groups-4).
        if kept:
            _warn_of_growth(topic, kept, len(partitions))
            return
        self._key_counts[topic] = len(partitions)

    def partition_indexes(self, topic: str) -> Container[int]:
        """Return the ids of the topic's partitions."""
        return self._topics.get(topic, ())

    def partitions(self, topic: str) -> Iterable[UpdateMetadataRequestPartitionState]:
        """Return the states of the topic's partitions, in the order of their ids."""
        return (state for _, state in sorted(self._topics.get(topic, {}).items()))

    def partition_state(
        self, partition: TopicPartition
    ) -> UpdateMetadataRequestPartitionState | None:
        """Return the state of the partition, if it is known."""
        return self._topics.get(partition.topic, {}).get(partition.partition)

    # ---- brokers

    def racks(self) -> dict[int, str | None]:
        """Return the rack of each live broker; None for a broker without one."""
        return {broker.id: broker.rack for broker in self.brokers.values()}

    def endpoint(self, broker_id: int, listener: str) -> Endpoint | None:
        """Return a live broker's endpoint under this listener name; None if it has none."""
        broker = self.brokers.get(broker_id)
        return broker.endpoints.get(listener) if broker else None

    def leader_endpoint(
        self, partition: TopicPartition, listener: str
    ) -> tuple[int, Endpoint] | None:
        """Return the id and endpoint of the partition's live leader."""
        state = self.partition_state(partition)
        if state is None:
            return None

        # No endpoint: there is no leader (-1), or its broker is not alive.
        endpoint = self.endpoint(state.leader, listener)
        return (state.leader, endpoint) if endpoint else None


def _warn_of_growth(topic: str, kept: int, count: int) -> None:
    logger.warning(
        "%s has %d partitions now, and had %d when this broker began: its keys stay in the first "
        "%d as long as the broker lives; a broker that is started again looks for most of them "
        "where they are not. Take the new partitions out of the topic's node in ZooKeeper.",
        topic,
        count,
        kept,
        kept,
    )


def _live_broker(broker: update_metadata.UpdateMetadataRequestLiveBroker) -> LiveBroker:
    endpoints = {endpoint.listener: endpoint for endpoint in map(_endpoint, broker.endpoints)}

    # Version 0 has a host and a port, and no names of listeners.
    if not endpoints:
        endpoints = {"PLAINTEXT": Endpoint("PLAINTEXT", broker.v0_host, broker.v0_port)}
    return LiveBroker(broker.id, endpoints, broker.rack)


def _endpoint(endpoint: update_metadata.UpdateMetadataRequestEndpoint) -> Endpoint:
    """Read an endpoint; without a listener (versions 1 and 2) the protocol's name stands for it."""
    try:
        protocol = SecurityProtocol(endpoint.security_protocol).name
    except ValueError:
        # A protocol of a later Kafka: such a listener may still have a name.
        protocol = ""
    return Endpoint(endpoint.listener or protocol, endpoint.host, endpoint.port, protocol)
