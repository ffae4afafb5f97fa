"""The values that the admin client takes and returns: topics, settings, groups, offsets."""

from collections.abc import Mapping, Sequence

import attrs

from clients.cluster_view import BrokerEndpoint, ClusterView, PartitionView
from clients.errors import BrokerError
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.messages.describe_groups import DescribeGroupsResponseGroup
from protocol.sasl.exchange import SCRAM_SHA_256, SCRAM_SHA_512
from protocol.sasl.iterations import DEFAULT_ITERATIONS, MAX_STORED_ITERATIONS, MIN_ITERATIONS
from protocol.topic_partition import TopicPartition


def _known_scram_mechanism(instance: object, attribute: "attrs.Attribute[str]", value: str) -> None:
    if value not in (SCRAM_SHA_256, SCRAM_SHA_512):
        raise ValueError(f"{value!r} is none of {SCRAM_SHA_256}, {SCRAM_SHA_512}")


TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4

SettingValue = str | float | bool
"""The value of a topic's or broker's setting; brokers get the text of a number, true or false."""


# --- topics


@frozen
class NewTopic:
    """A topic to create; -1 takes the broker's default (brokers from 2.4 on).

    `assignments` (partition to broker ids) replaces the two numbers.
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, SettingValue] = attrs.field(factory=dict)
    assignments: Mapping[int, Sequence[int]] = attrs.field(factory=dict)


@frozen
class NewPartitions:
    """The new number of a topic's partitions; `added` has the replicas of each new partition.

    Without `added` the controller chooses the replicas.
    """

    total_count: int
    added: Sequence[Sequence[int]] = ()


# --- users


@frozen
class ScramCredentialInfo:
    """A credential that a user has: the mechanism, and the iterations of its hash."""

    mechanism: str
    iterations: int


@frozen
class ScramUpsertion:
    """A password to give to a user for SCRAM-SHA-256 or SCRAM-SHA-512.

    Raises ValueError for another mechanism, an empty password, or impossible iterations.
    """

    user: str
    mechanism: str = attrs.field(validator=_known_scram_mechanism)
    password: str = attrs.field(repr=False, validator=attrs.validators.min_len(1))
    iterations: int = attrs.field(
        default=DEFAULT_ITERATIONS,
        validator=[
            attrs.validators.ge(MIN_ITERATIONS),
            attrs.validators.le(MAX_STORED_ITERATIONS),
        ],
    )


@frozen
class ScramDeletion:
    """A credential to take away from a user. Raises ValueError for another mechanism."""

    user: str
    mechanism: str = attrs.field(validator=_known_scram_mechanism)


UserChange = ScramUpsertion | ScramDeletion


# --- settings


@frozen
class ConfigResource:
    """An owner of settings: a topic by name, a broker by id, or all brokers."""

    resource_type: int
    name: str

    @classmethod
    def topic(cls, name: str) -> "ConfigResource":
        """Return the resource of a topic's settings."""
        return cls(TOPIC_RESOURCE, name)

    @classmethod
    def broker(cls, node_id: int) -> "ConfigResource":
        """Return the resource of a broker's own settings."""
        return cls(BROKER_RESOURCE, str(node_id))

    @classmethod
    def broker_defaults(cls) -> "ConfigResource":
        """Return the resource of the settings for all brokers that do not have their own."""
        return cls(BROKER_RESOURCE, "")


# --- topics and replicas as they are


@frozen
class TopicDescription:
    """A topic's partitions with leader (-1: none), replicas and in-sync replicas."""

    name: str
    internal: bool
    partitions: Mapping[int, PartitionView]
    topic_id: bytes | None = None
    """Its id, from brokers that tell it: a topic that is made again has another one."""

    @classmethod
    def of(cls, name: str, view: ClusterView) -> "TopicDescription":
        """Describe a topic of the view."""
        topic_id = view.topic_ids.get(name)
        return cls(name, name in view.internal, view.topics[name], topic_id)


@frozen
class PartitionReassignment:
    """A partition that is being moved: its replicas, and those being added and removed."""

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


@frozen
class ReplicaDescription:
    """A replica's log: its bytes, and how many offsets it is behind the leader's.

    `is_future` is true for a copy that is being moved to another directory of the same broker.
    """

    size_bytes: int
    offset_lag: int
    is_future: bool


@frozen
class LogDirDescription:
    """A broker's log directory. The error KAFKA_STORAGE_ERROR means that it is offline."""

    error: ErrorCode
    replicas: Mapping[TopicPartition, ReplicaDescription]
    is_full: bool = False
    """True if its disk has no room, so that appends are refused; brokers of this project say so."""


# --- the cluster


@frozen
class ClusterDescription:
    """The cluster as a broker sees it."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[BrokerEndpoint, ...]

    @classmethod
    def of(cls, view: ClusterView) -> "ClusterDescription":
        """Describe the view's cluster, with brokers sorted by id."""
        brokers = tuple(view.brokers[node_id] for node_id in sorted(view.brokers))
        return cls(view.cluster_id, view.controller_id, brokers)


# --- transactions


@frozen
class TransactionListing:
    """A transactional id at its coordinator, with the state of its last transaction."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: BrokerEndpoint


@frozen
class TransactionDescription:
    """The last transaction of a transactional id, as its coordinator has it.

    `start_ms` is None before the first one. `partitions` are those whose marker is not written yet,
    none after the end; topics that the client may not describe are left out.
    """

    coordinator: BrokerEndpoint
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: frozenset[TopicPartition]


@frozen
class ProducerState:
    """A producer that numbers its batches, as the leader of a partition knows it.

    `coordinator_epoch` is that of the last marker, None before the first.
    `transaction_start_offset` is None where no transaction is open.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int | None = None
    transaction_start_offset: int | None = None


@frozen
class FencedProducer:
    """The epoch of a transactional id that no producer has: all that had one are fenced."""

    producer_id: int
    producer_epoch: int


# --- groups and offsets

CLASSIC_GROUP = "classic"
CONSUMER_GROUP = "consumer"


@frozen
class GroupListing:
    """A group at its coordinator. `protocol_type` is empty for a group that only commits.

    Brokers from 2.6 on tell the `state`, those from 3.7 on the `type`: classic, consumer, share.
    """

    group_id: str
    protocol_type: str
    coordinator: BrokerEndpoint
    state: str | None = None
    type: str | None = None


@frozen
class GroupMemberId:
    """A member by its id; a static member may be named by its instance id alone."""

    member_id: str
    instance_id: str | None = None


@frozen
class GroupDescription:
    """State and members of a group at its coordinator.

    A group of the protocol `consumer` is described as a classic one: its members' subscriptions
    and assignments are encoded as classic members encode them.
    """

    coordinator: BrokerEndpoint
    group: DescribeGroupsResponseGroup
    type: str = CLASSIC_GROUP


@frozen
class ListedOffset:
    """An offset, and the timestamp of its record if it was looked up by time.

    Offset -1: no record has that time or a later one. `error` is set if the partition had none.
    """

    offset: int
    timestamp_ms: int
    leader_epoch: int
    error: ErrorCode = ErrorCode.NONE
    detail: str = ""
    """Which leader did not respond, and why, or why there is none, where that is the error."""

    def failure(self, what: object = "") -> BrokerError:
        """Return the error as an exception, which names `what`, and has the detail."""
        detail = ": ".join(filter(None, (str(what), self.detail)))
        return BrokerError(self.error, detail, ApiKey.LIST_OFFSETS)
