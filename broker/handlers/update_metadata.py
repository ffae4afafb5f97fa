"""UpdateMetadata: take the controller's metadata, and wake the requests that wait for it."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from broker.cluster.metadata_cache import MetadataCache
from broker.network.request_context import RequestContext
from broker.replication.control_gate import ControlGate
from protocol.errors import ErrorCode
from protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from protocol.topic_partition import TopicPartition


def handle(
    cache: MetadataCache,
    gate: ControlGate,
    touch: Callable[[Hashable], None],
    on_deleted: Callable[[list[TopicPartition]], None],
    request: UpdateMetadataRequest,
    context: RequestContext,
    *,
    stop_removed: Callable[[UpdateMetadataRequest], None] = lambda request: None,
) -> UpdateMetadataResponse:
    """Update the cache, unless the request is refused.

    `stop_removed` stops the replicas that this broker has no more.
    """
    refusal = gate.refusal(request, context)
    if refusal is not None:
        return UpdateMetadataResponse(error_code=refusal)

    touched, deleted = cache.update(request)
    # The settings and committed offsets of deleted topics go with them.
    if deleted:
        on_deleted(deleted)

    stop_removed(request)
    # Requests that create or delete topics wait for the metadata.
    for topic in touched:
        touch(("topic", topic))
    return UpdateMetadataResponse(error_code=ErrorCode.NONE)
