"""The cluster as its metadata describes it: one snapshot, and what a response makes of it."""

from collections.abc import Mapping, Sequence

import attrs

from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from protocol.settings import SettingError
from protocol.topic_partition import TopicPartition

MOST_OLDER = 5
"""So often in a row a topic has to be told in an older state before that is believed.

A broker that has fallen behind must not lead a client back to a leader that was deposed: that may
not know it yet, and acknowledge what is then lost. But a topic that was deleted and made again
begins anew, and without topic ids that looks the same.
"""


@attrs.frozen
class BrokerEndpoint:
    """Where a broker listens. A bootstrap address, whose id is not known yet, has a negative id."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> tuple[str, int]:
        """What it is connected to by."""
        return self.host, self.port

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@attrs.frozen
class PartitionView:
    """A partition as the metadata has it. `leader` is -1 when there is none."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@attrs.frozen
class ClusterView:
    """One snapshot. Topics that answered with an error are in `errors` and not in `topics`."""

    brokers: Mapping[int, BrokerEndpoint] = attrs.field(factory=dict)
    controller_id: int = -1
    cluster_id: str | None = None
    topics: Mapping[str, Mapping[int, PartitionView]] = attrs.field(factory=dict)
    errors: Mapping[str, ErrorCode] = attrs.field(factory=dict)
    internal: frozenset[str] = frozenset()
    leaders: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    """Led partitions only."""
    older: Mapping[str, int] = attrs.field(factory=dict)
    """How often in a row a topic has been told in an older state than `topics` has it."""

    def updated(self, response: MetadataResponse, whole: bool) -> "ClusterView":
        """The view after a response; a `whole` one names every topic there is.

        A topic that answers with a retriable error keeps what was known of it: a broker that is
        just starting must not make a client forget its leaders. Likewise a partition keeps what was
        known of a newer leader epoch, and of its existence.
        """
        topics = {} if whole else dict(self.topics)
        internal = set(self.internal)
        errors: dict[str, ErrorCode] = {}
        older: dict[str, int] = {}
        for topic in response.topics:
            code = ErrorCode.of(topic.error_code)
            if code is ErrorCode.NONE or topic.partitions:
                told = _partitions(topic)
                newest = _newest(self.topics.get(topic.name, {}), told)
                times = self.older.get(topic.name, 0) + 1
                if newest == told or times == MOST_OLDER:
                    topics[topic.name] = told
                else:
                    topics[topic.name], older[topic.name] = newest, times
            if code is not ErrorCode.NONE:
                errors[topic.name] = code
            if topic.is_internal:
                internal.add(topic.name)
        leaders = {
            TopicPartition(name, index): partition.leader
            for name, partitions in topics.items()
            for index, partition in partitions.items()
            if partition.leader >= 0
        }
        return ClusterView(
            brokers={
                b.node_id: BrokerEndpoint(b.node_id, b.host, b.port, b.rack)
                for b in response.brokers
            },
            controller_id=response.controller_id,
            cluster_id=response.cluster_id,
            topics=topics,
            errors=errors,
            internal=frozenset(internal),
            leaders=leaders,
            older=older,
        )


def is_address(host: str, port: int) -> bool:
    """True if a connection can be tried: a resolver takes the name, and the port is one."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return bool(host) and "\0" not in host and 0 < port < 65536


def parse_bootstrap(servers: str | Sequence[str]) -> list[BrokerEndpoint]:
    """Read `host:port[,host:port...]`; IPv6 hosts stand in brackets. Raises SettingError."""
    if isinstance(servers, str):
        servers = servers.split(",")
    endpoints = []
    for node_id, server in enumerate(filter(None, map(str.strip, servers)), start=1):
        host, _, port = server.rpartition(":")
        host = host.strip("[]")
        if not port.isdecimal() or not is_address(host, int(port)):
            raise SettingError("bootstrap.servers", f"{server!r} is not host:port")
        endpoints.append(BrokerEndpoint(-node_id, host, int(port)))
    if not endpoints:
        raise SettingError("bootstrap.servers", "names no broker, and zookeeper.connect is absent")
    return endpoints


def _partitions(topic: MetadataResponseTopic) -> dict[int, PartitionView]:
    return {
        p.partition_index: PartitionView(
            p.leader_id, p.leader_epoch, tuple(p.replica_nodes), tuple(p.isr_nodes)
        )
        for p in sorted(topic.partitions, key=lambda p: p.partition_index)
    }


def _newest(
    known: Mapping[int, PartitionView], told: Mapping[int, PartitionView]
) -> dict[int, PartitionView]:
    """Each partition by the newer leader epoch; releases before 2.1 tell none (-1)."""
    newer = {
        index: partition
        for index, partition in known.items()
        if index not in told or 0 <= told[index].leader_epoch < partition.leader_epoch
    }
    return dict(sorted({**told, **newer}.items()))
