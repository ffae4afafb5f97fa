"""The cluster as described by metadata: a snapshot, and its update by a response."""

from collections.abc import Collection, Mapping, Sequence

import attrs

from clients.errors import BrokerError
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.messages.metadata import NO_TOPIC_ID, MetadataResponse, MetadataResponseTopic
from protocol.security_protocol import SecurityProtocol
from protocol.settings import SettingError
from protocol.topic_partition import TopicPartition

PROTOCOL_MARK = "://"

MOST_OLDER = 5
"""Number of consecutive responses with an older state of a topic before each broker is asked.

A broker that has fallen behind must not lead a client back to a deposed leader, which may not know
that yet, and would acknowledge records that are lost later. But a topic that was deleted and
created again starts over, and without topic ids that looks the same.
"""


@frozen
class BrokerEndpoint:
    """The address of a broker. A bootstrap address has a negative id, as its id is not known."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> tuple[str, int]:
        """The host and port to connect to."""
        return self.host, self.port

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@frozen
class PartitionView:
    """A partition in the metadata. `leader` is -1 if there is none."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@frozen
class ClusterView:
    """A snapshot.

    `errors` has the topics with an error in the last response. Such a topic is in `topics` as well
    if its partitions came with the error, or were known before.
    """

    brokers: Mapping[int, BrokerEndpoint] = attrs.field(factory=dict)
    controller_id: int = -1
    cluster_id: str | None = None
    topics: Mapping[str, Mapping[int, PartitionView]] = attrs.field(factory=dict)
    errors: Mapping[str, ErrorCode] = attrs.field(factory=dict)
    internal: frozenset[str] = frozenset()
    leaders: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    """Partitions that have a leader."""
    older: Mapping[str, int] = attrs.field(factory=dict)
    """Number of consecutive responses with an older state of a topic than `topics` has."""
    topic_ids: Mapping[str, bytes] = attrs.field(factory=dict)
    """Ids of topics, from brokers that tell them (KIP-516)."""

    def why_leaderless(self, partition: TopicPartition) -> str:
        """Say that a partition has no leader, and which brokers have to start if that is known."""
        known = self.topics.get(partition.topic, {}).get(partition.partition)
        # These were in sync when there was one.
        in_sync = known.isr if known else ()
        if not in_sync or not self.brokers.keys().isdisjoint(in_sync):
            return "it has no leader"
        brokers = " or ".join(map(str, in_sync))
        return f"it has no leader, as no broker that was in sync is there; start broker {brokers}"

    def leader_epoch(self, partition: TopicPartition) -> int:
        """Return the epoch of a partition's leader; -1 if it is not known."""
        known = self.topics.get(partition.topic, {}).get(partition.partition)
        return -1 if known is None else known.leader_epoch

    def no_leader(self, partition: TopicPartition) -> BrokerError:
        """Return the error of a request that needs the leader of a partition without one."""
        text = f"{partition}: {self.why_leaderless(partition)}"
        return BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, text, ApiKey.METADATA)

    def find_doubtful(self) -> frozenset[str]:
        """Return the topics of which each broker is to be asked now."""
        return frozenset(name for name, times in self.older.items() if times % MOST_OLDER == 0)

    def replicas(self, names: Collection[str]) -> set[int]:
        """Return the brokers that have replicas of some topics."""
        return {
            node
            for name in names
            for partition in self.topics.get(name, {}).values()
            for node in partition.replicas
        }

    def without_doubts(self, names: Collection[str]) -> "ClusterView":
        """Return the view as if some topics had had no response with an older state."""
        older = {name: times for name, times in self.older.items() if name not in names}
        return attrs.evolve(self, older=older)

    def without(self, names: Collection[str]) -> "ClusterView":
        """Return the view without what is known of some topics."""
        topics = {name: known for name, known in self.topics.items() if name not in names}
        leaders = {p: leader for p, leader in self.leaders.items() if p.topic not in names}
        return attrs.evolve(self.without_doubts(names), topics=topics, leaders=leaders)

    def updated(self, response: MetadataResponse, whole: bool) -> "ClusterView":
        """Return the view after a response; a `whole` response has all topics.

        A topic with an error keeps its known state: a broker that just starts must not make a
        client forget leaders. A partition likewise keeps its state of a newer leader epoch, and is
        kept if the response lacks it.
        """
        # A whole response replaces all topics: those that it lacks were deleted.
        topics = {} if whole else dict(self.topics)
        leaders = {} if whole else dict(self.leaders)
        internal = set(self.internal)

        # What a response does not name stays as it is.
        named = {topic.name for topic in response.topics}
        errors = {} if whole else {n: code for n, code in self.errors.items() if n not in named}
        older = {} if whole else {n: times for n, times in self.older.items() if n not in named}
        ids = {} if whole else dict(self.topic_ids)

        for topic in response.topics:
            code = ErrorCode.of(topic.error_code)
            if code is ErrorCode.NONE or topic.partitions:
                received = _partitions(topic)

                # An older state does not count: it is found out whether it is of another topic.
                known = self.topics.get(topic.name, {})
                if topic.topic_id != NO_TOPIC_ID:
                    # With another id it is another topic, and nothing of it is older.
                    if self.topic_ids.get(topic.name, topic.topic_id) != topic.topic_id:
                        known = {}
                    ids[topic.name] = topic.topic_id
                newest = _newest(known, received)
                times = self.older.get(topic.name, 0) + 1
                topics[topic.name] = newest
                if newest != received:
                    older[topic.name] = times
            elif topic.name in self.topics:
                topics[topic.name] = self.topics[topic.name]

            # Of this topic alone: a response may name one of many thousands.
            for index in self.topics.get(topic.name, ()):
                leaders.pop(TopicPartition(topic.name, index), None)
            for index, partition in topics.get(topic.name, {}).items():
                if partition.leader >= 0:
                    leaders[TopicPartition(topic.name, index)] = partition.leader

            # Partitions and an error may come together; both are kept.
            if code is not ErrorCode.NONE:
                errors[topic.name] = code
            if topic.is_internal:
                internal.add(topic.name)

        # Brokers are those of the response: one that is gone must not be asked.
        return ClusterView(
            brokers={
                broker.node_id: BrokerEndpoint(
                    broker.node_id, broker.host, broker.port, broker.rack
                )
                for broker in response.brokers
            },
            controller_id=response.controller_id,
            cluster_id=response.cluster_id,
            topics=topics,
            errors=errors,
            internal=frozenset(internal),
            leaders=leaders,
            older=older,
            topic_ids=ids,
        )


def is_address(host: str, port: int) -> bool:
    """Return whether a connection can be tried: a resolver takes the name, the port is in range."""
    # The idna codec refuses what a resolver refuses: labels that are empty or too long.
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return bool(host) and "\0" not in host and 0 < port < 65536


def parse_bootstrap(servers: str | Sequence[str]) -> list[BrokerEndpoint]:
    """Parse `host:port[,host:port...]`; IPv6 hosts are in brackets. Raises SettingError.

    A protocol before a host is taken, and does not count: `security.protocol` says how brokers are
    spoken to, as for clients of Java and kafka-python.
    """
    endpoints = []

    for node_id, server in enumerate(_servers(servers), start=1):
        # Many files have PLAINTEXT://host:port (fault broker-8, was: server).
        address = server.rpartition(PROTOCOL_MARK)[2]
        # The last colon divides, since IPv6 addresses have colons too.
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        if not port.isdecimal() or not is_address(host, int(port)):
            raise SettingError("bootstrap.servers", f"{server!r} is not host:port")
        endpoints.append(BrokerEndpoint(-node_id, host, int(port)))

    if not endpoints:
        raise SettingError("bootstrap.servers", "names no broker, and zookeeper.connect is absent")
    return endpoints


def named_protocols(servers: str | Sequence[str]) -> dict[str, SecurityProtocol]:
    """Return the servers that name a security protocol. A listener's name is none."""
    protocols = {
        server: SecurityProtocol.__members__.get(server.partition(PROTOCOL_MARK)[0].upper())
        for server in _servers(servers)
    }
    return {server: protocol for server, protocol in protocols.items() if protocol is not None}


def _servers(servers: str | Sequence[str]) -> list[str]:
    if isinstance(servers, str):
        servers = servers.split(",")
    return [server.strip() for server in servers if server.strip()]


def _partitions(topic: MetadataResponseTopic) -> dict[int, PartitionView]:
    return {
        partition.partition_index: PartitionView(
            partition.leader_id,
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
        )
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
    }


def _newest(
    previous: Mapping[int, PartitionView], received: Mapping[int, PartitionView]
) -> dict[int, PartitionView]:
    """Merge partitions by the newer leader epoch; releases before 2.1 send none (-1)."""
    # A partition that the response lacks stays, as topics never lose partitions.
    newer = {
        index: partition
        for index, partition in previous.items()
        if index not in received or 0 <= received[index].leader_epoch < partition.leader_epoch
    }

    return dict(sorted({**received, **newer}.items()))
