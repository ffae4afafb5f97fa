"""UpdateMetadata: the controller tells a broker how the cluster looks."""

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
    """All live brokers, and the partitions that changed. Leader -2: being deleted."""

    controller_id: int = wire(INT32)
    controller_epoch: int = wire(INT32)
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
    """Whether the broker took it."""

    error_code: int = wire(INT16)


def error_response(request: UpdateMetadataRequest, code: ErrorCode) -> UpdateMetadataResponse:
    """The answer that refuses the request."""
    return UpdateMetadataResponse(error_code=code)


def partition_states(
    request: UpdateMetadataRequest,
) -> list[tuple[str, UpdateMetadataRequestPartitionState]]:
    """Every (topic, state), whether the version groups them by topic or not."""
    flat = [(s.topic_name, s) for s in request.ungrouped_partition_states]
    return flat + [(t.topic_name, s) for t in request.topic_states for s in t.partition_states]
