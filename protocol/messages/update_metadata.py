"""UpdateMetadata gives a broker the controller's view of the cluster.

v1 adds the endpoints of each broker, v2 racks, v3 listener names, v4 offline replicas (KIP-112).
v5 adds the broker epoch (KIP-380) and groups the partitions by topic.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT16, INT32, INT64, STRING, Array, message, nested, wire


@nested
class UpdateMetadataRequestPartitionState:
    """A partition state of UpdateMetadataRequest."""

    topic_name: str = wire(STRING, until=4, default="")
    partition_index: int = wire(INT32)
    controller_epoch: int = wire(INT32)
    leader: int = wire(INT32)
    leader_epoch: int = wire(INT32)
    isr: Sequence[int] = wire(Array(INT32))
    zk_version: int = wire(INT32)
    replicas: Sequence[int] = wire(Array(INT32))
    offline_replicas: Sequence[int] = wire(Array(INT32), since=4, default=())


@nested
class UpdateMetadataRequestTopicState:
    """A topic state of UpdateMetadataRequest."""

    topic_name: str = wire(STRING)
    partition_states: Sequence[UpdateMetadataRequestPartitionState] = wire(
        Array(UpdateMetadataRequestPartitionState)
    )


@nested
class UpdateMetadataRequestEndpoint:
    """An endpoint of UpdateMetadataRequest."""

    port: int = wire(INT32)
    host: str = wire(STRING)
    listener: str = wire(STRING, since=3, default="")
    security_protocol: int = wire(INT16)


@nested
class UpdateMetadataRequestLiveBroker:
    """A live broker of UpdateMetadataRequest."""

    id: int = wire(INT32)
    v0_host: str = wire(STRING, until=0, default="")
    v0_port: int = wire(INT32, until=0, default=0)
    endpoints: Sequence[UpdateMetadataRequestEndpoint] = wire(
        Array(UpdateMetadataRequestEndpoint), since=1, default=()
    )
    rack: str | None = wire(STRING, since=2, default=None, nullable=2)


@message(api=ApiKey.UPDATE_METADATA, versions="0-5", flexible="6+")
class UpdateMetadataRequest:
    """List all live brokers, and the partitions that changed.

    Leader -2 marks a partition of a topic that is being deleted.
    """

    controller_id: int = wire(INT32)
    controller_epoch: int = wire(INT32)
    # czxid of the broker's znode: a request for the broker's former session is refused.
    broker_epoch: int = wire(INT64, since=5, default=-1)
    ungrouped_partition_states: Sequence[UpdateMetadataRequestPartitionState] = wire(
        Array(UpdateMetadataRequestPartitionState), until=4, default=()
    )
    topic_states: Sequence[UpdateMetadataRequestTopicState] = wire(
        Array(UpdateMetadataRequestTopicState), since=5, default=()
    )
    live_brokers: Sequence[UpdateMetadataRequestLiveBroker] = wire(
        Array(UpdateMetadataRequestLiveBroker)
    )


@message(api=ApiKey.UPDATE_METADATA, versions="0-5", flexible="6+")
class UpdateMetadataResponse:
    """The result."""

    error_code: int = wire(INT16)


def error_response(request: UpdateMetadataRequest, code: ErrorCode) -> UpdateMetadataResponse:
    """Refuse the whole request."""
    return UpdateMetadataResponse(error_code=code)


def partition_states(
    request: UpdateMetadataRequest,
) -> list[tuple[str, UpdateMetadataRequestPartitionState]]:
    """List (topic, state) of all partitions, grouped by topic in this version or not."""
    ungrouped = [(state.topic_name, state) for state in request.ungrouped_partition_states]
    grouped = [
        (topic.topic_name, state)
        for topic in request.topic_states
        for state in topic.partition_states
    ]
    return ungrouped + grouped
