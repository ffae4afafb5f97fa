"""What the admin client is asked with and answers: topics, configs, groups, offsets as values."""

from collections.abc import Mapping, Sequence

import attrs

from clients.cluster_view import BrokerEndpoint, ClusterView, PartitionView
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribeGroupsResponseGroup
from protocol.topic_partition import TopicPartition

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4


@attrs.frozen
class NewTopic:
    """A topic to create; -1 takes the broker's default (brokers from 2.4 on).

    `assignments` (partition to broker ids) replaces the two numbers.
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = attrs.field(factory=dict)
    assignments: Mapping[int, Sequence[int]] = attrs.field(factory=dict)


@attrs.frozen
class NewPartitions:
    """How many partitions a topic shall have in all; `added` has the replicas of each new one.

    Without `added` the controller places them.
    """

    total_count: int
    added: Sequence[Sequence[int]] = ()


@attrs.frozen
class ConfigResource:
    """What settings belong to: a topic by name, a broker by id, or all brokers."""

    resource_type: int
    name: str

    @classmethod
    def topic(cls, name: str) -> "ConfigResource":
        """A topic's settings."""
        return cls(TOPIC_RESOURCE, name)

    @classmethod
    def broker(cls, node_id: int) -> "ConfigResource":
        """A broker's settings."""
        return cls(BROKER_RESOURCE, str(node_id))

    @classmethod
    def broker_defaults(cls) -> "ConfigResource":
        """What counts for each broker that has no setting of its own."""
        return cls(BROKER_RESOURCE, "")


@attrs.frozen
class TopicDescription:
    """A topic's partitions with leader (-1: none), replicas and in-sync replicas."""

    name: str
    internal: bool
    partitions: Mapping[int, PartitionView]

    @classmethod
    def of(cls, name: str, view: ClusterView) -> "TopicDescription":
        """One that the view has."""
        return cls(name, name in view.internal, view.topics[name])


@attrs.frozen
class PartitionReassignment:
    """A partition on the move: all its replicas now, those that come, those that go."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@attrs.frozen(order=True)
class TopicPartitionReplica:
    """One broker's replica of a partition."""

    topic_partition: TopicPartition
    broker: int

    def __str__(self) -> str:
        return f"{self.topic_partition}-{self.broker}"


@attrs.frozen
class ReplicaDescription:
    """A replica's log: its bytes, and how many offsets it is behind the leader's.

    `is_future`: it is a copy under way to another directory of the same broker.
    """

    size_bytes: int
    offset_lag: int
    is_future: bool


@attrs.frozen
class LogDirDescription:
    """A broker's log directory. KAFKA_STORAGE_ERROR: it is offline."""

    error: ErrorCode
    replicas: Mapping[TopicPartition, ReplicaDescription]


@attrs.frozen
class ClusterDescription:
    """The cluster as a broker sees it."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[BrokerEndpoint, ...]

    @classmethod
    def of(cls, view: ClusterView) -> "ClusterDescription":
        """Brokers by their ids."""
        brokers = tuple(view.brokers[node_id] for node_id in sorted(view.brokers))
        return cls(view.cluster_id, view.controller_id, brokers)


@attrs.frozen
class GroupListing:
    """A group that a coordinator keeps. `protocol_type` is empty for a group that only commits."""

    group_id: str
    protocol_type: str
    coordinator: BrokerEndpoint


@attrs.frozen
class GroupDescription:
    """A group's state and members as its coordinator has them."""

    coordinator: BrokerEndpoint
    group: DescribeGroupsResponseGroup


@attrs.frozen
class ListedOffset:
    """An offset, and the timestamp of its record if it was looked up by time.

    Offset -1: no record is that young. `error` is set where the partition could not answer.
    """

    offset: int
    timestamp_ms: int
    leader_epoch: int
    error: ErrorCode = ErrorCode.NONE
