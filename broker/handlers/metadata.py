"""Metadata: the cluster as this broker's cache has it; missing topics may be created."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.dispatch import RequestContext
from broker.metadata_cache import INTERNAL_TOPICS, MetadataCache
from protocol.errors import ApiError, ErrorCode
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.messages.update_metadata import UpdateMetadataRequestPartitionState

AutoCreate = Callable[[str], None]
"""Begin to create a topic with the broker's defaults; raises ApiError when it cannot be."""


def handle(
    cache: MetadataCache,
    cluster_id: str,
    auto_create: AutoCreate | None,
    request: MetadataRequest,
    context: RequestContext,
) -> MetadataResponse:
    """Answer from the cache. `auto_create` is None where auto.create.topics.enable is off."""
    every = request.topics is None or (context.api_version == 0 and not request.topics)
    names = cache.topics() if every else [topic.name for topic in request.topics or ()]
    create = auto_create if request.allow_auto_topic_creation and not every else None
    return MetadataResponse(
        brokers=_brokers(cache, context.listener),
        cluster_id=cluster_id,
        controller_id=cache.controller_id,
        topics=[_topic(cache, name, create, context) for name in dict.fromkeys(names)],
    )


def _brokers(cache: MetadataCache, listener: str) -> list[MetadataResponseBroker]:
    return [
        MetadataResponseBroker(node_id=broker.id, host=found[0], port=found[1], rack=broker.rack)
        for broker in cache.brokers.values()
        if (found := broker.endpoints.get(listener))
    ]


def _topic(
    cache: MetadataCache, name: str, create: AutoCreate | None, context: RequestContext
) -> MetadataResponseTopic:
    if not cache.has_topic(name):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not cache.brokers:
            # Just started, and told of nothing yet: a client that hears that a topic is not there
            # may give up what it was to send.
            code = ErrorCode.LEADER_NOT_AVAILABLE
        elif create is not None:
            try:
                create(name)
                code = ErrorCode.LEADER_NOT_AVAILABLE
            except ApiError as error:
                code = error.code
        return MetadataResponseTopic(
            error_code=code, name=name, is_internal=name in INTERNAL_TOPICS, partitions=[]
        )
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[_partition(cache, state, context) for state in cache.partitions(name)],
    )


def _partition(
    cache: MetadataCache, state: UpdateMetadataRequestPartitionState, context: RequestContext
) -> MetadataResponsePartition:
    code, leader = ErrorCode.NONE, state.leader
    replicas, isr = tuple(state.replicas), tuple(state.isr)
    if context.api_version == 0:  # its clients expect to know each broker that is named
        replicas, isr = _live(cache, replicas), _live(cache, isr)
        if len(replicas) < len(state.replicas) or len(isr) < len(state.isr):
            code = ErrorCode.REPLICA_NOT_AVAILABLE
    if cache.endpoint(leader, context.listener) is None:
        alive = leader in cache.brokers
        code = ErrorCode.LEADER_NOT_AVAILABLE
        if alive and context.api_version >= 6:
            code = ErrorCode.LISTENER_NOT_FOUND
        leader, isr = -1, isr if alive else ()
    return MetadataResponsePartition(
        error_code=code,
        partition_index=state.partition_index,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=tuple(state.offline_replicas),
    )


def _live(cache: MetadataCache, ids: Iterable[int]) -> tuple[int, ...]:
    return tuple(i for i in ids if i in cache.brokers)
