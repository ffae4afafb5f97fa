"""UpdateMetadata: take the controller's picture of the cluster, and wake who waited for it."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from broker.dispatch import RequestContext
from broker.metadata_cache import MetadataCache
from broker.replica_manager import ReplicaManager
from protocol.errors import ErrorCode
from protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from protocol.topic_partition import TopicPartition


def handle(
    cache: MetadataCache,
    replicas: ReplicaManager,
    touch: Callable[[Hashable], None],
    on_deleted: Callable[[list[TopicPartition]], None],
    request: UpdateMetadataRequest,
    context: RequestContext,
) -> UpdateMetadataResponse:
    """Update the cache, unless the controller is one of the past."""
    if not replicas.take_controller_epoch(request.controller_epoch):
        return UpdateMetadataResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
    touched, deleted = cache.update(request)
    if deleted:
        on_deleted(deleted)
    for topic in touched:
        touch(("topic", topic))
    return UpdateMetadataResponse(error_code=ErrorCode.NONE)
