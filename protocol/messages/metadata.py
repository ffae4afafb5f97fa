"""Metadata describes the cluster: its brokers, its controller, its topics and their leaders.

v1 adds the controller, racks and internal topics, v2 the cluster id, v3 the throttle time, v4
`allow_auto_topic_creation`, v5 offline replicas (KIP-112), v7 leader epochs (KIP-320), v8 the
authorized operations (KIP-430). v6 adds no field (KIP-219), v9 is v8 in the flexible encoding. v10
adds the ids of topics (KIP-516), v11 leaves the cluster's authorized operations to DescribeCluster.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import BOOL, INT16, INT32, STRING, UUID, Array, message, nested, wire

NO_TOPIC_ID = bytes(16)
"""The id of a topic that has none."""

NOT_ASKED = -(2**31)
"""The authorized operations if the request does not ask for them."""


@nested
class MetadataRequestTopic:
    """A topic of MetadataRequest: its name, though from v10 on it may be null."""

    topic_id: bytes = wire(UUID, since=10, default=NO_TOPIC_ID)
    name: str | None = wire(STRING, nullable=10)


@message(api=ApiKey.METADATA, versions="0-11", flexible="9+")
class MetadataRequest:
    """Ask for topics; null means all topics (in v0 an empty list does)."""

    topics: Sequence[MetadataRequestTopic] | None = wire(Array(MetadataRequestTopic), nullable=1)
    allow_auto_topic_creation: bool = wire(BOOL, since=4, default=True)
    include_cluster_authorized_operations: bool = wire(BOOL, since=8, until=10, default=False)
    include_topic_authorized_operations: bool = wire(BOOL, since=8, default=False)


@nested
class MetadataResponseBroker:
    """A broker of MetadataResponse."""

    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, since=1, default=None, nullable=1)


@nested
class MetadataResponsePartition:
    """A partition of MetadataResponse."""

    error_code: int = wire(INT16)
    partition_index: int = wire(INT32)
    leader_id: int = wire(INT32)  # -1: no leader
    leader_epoch: int = wire(INT32, since=7, default=-1)
    replica_nodes: Sequence[int] = wire(Array(INT32))
    isr_nodes: Sequence[int] = wire(Array(INT32))
    offline_replicas: Sequence[int] = wire(Array(INT32), since=5, default=())


@nested
class MetadataResponseTopic:
    """A topic of MetadataResponse."""

    error_code: int = wire(INT16)
    name: str = wire(STRING)
    topic_id: bytes = wire(UUID, since=10, default=NO_TOPIC_ID)
    is_internal: bool = wire(BOOL, since=1, default=False)
    partitions: Sequence[MetadataResponsePartition] = wire(Array(MetadataResponsePartition))
    # A bit for the number of each operation that the client may do.
    topic_authorized_operations: int = wire(INT32, since=8, default=NOT_ASKED)


@message(api=ApiKey.METADATA, versions="0-11", flexible="9+")
class MetadataResponse:
    """The cluster as the responding broker knows it."""

    throttle_time_ms: int = wire(INT32, since=3, default=0)
    brokers: Sequence[MetadataResponseBroker] = wire(Array(MetadataResponseBroker))
    cluster_id: str | None = wire(STRING, since=2, default=None, nullable=2)
    controller_id: int = wire(INT32, since=1, default=-1)
    topics: Sequence[MetadataResponseTopic] = wire(Array(MetadataResponseTopic))
    # As `topic_authorized_operations`.
    cluster_authorized_operations: int = wire(INT32, since=8, until=10, default=NOT_ASKED)


def error_response(request: MetadataRequest, code: ErrorCode) -> MetadataResponse:
    """Return the same error for every topic of `request`."""
    return MetadataResponse(
        brokers=[],
        topics=[
            MetadataResponseTopic(
                error_code=code, name=topic.name or "", topic_id=topic.topic_id, partitions=[]
            )
            for topic in request.topics or ()
        ],
    )
