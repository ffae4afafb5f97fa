"""CreatePartitions: give topics more partitions, and wait until this broker shows their leaders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from functools import partial

from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.partition_creation import add_partitions
from broker.controller.controller import Controller
from broker.controller.topic_changes import ReplicaRoom, plan_partitions
from broker.network.deferred import Deferred
from broker.network.dispatch import Outcome
from broker.network.fair_line import owner_of
from broker.network.pending_responses import Remaining, respond_or_wait
from broker.network.request_context import RequestContext, refused_topics, take_mutations
from protocol.acls import Operation
from protocol.errors import ApiError, ErrorCode, let_go
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
    CreatePartitionsResponse,
    CreatePartitionsResponseResult,
    error_response,
)
from zk.api import ZkSession

FIRST_VERSION_OF_QUOTAS = 3
"""From this version on a client knows THROTTLING_QUOTA_EXCEEDED."""
PARTITIONS_AT_ONCE = 2_000
"""Partitions of the topics of a request, old and new, that waits for no other request."""


def handle(
    controller: Controller,
    zk: ZkSession,
    cache: MetadataCache,
    deferred: Deferred,
    timeout_ms: int,
    request: CreatePartitionsRequest,
    context: RequestContext,
) -> Outcome:
    """Add the partitions of each topic independently.

    The request's time counts for leaders to be shown; there are `timeout_ms` at least to write.
    """
    if not controller.is_active:
        return error_response(request, ErrorCode.NOT_CONTROLLER)

    refused = refused_topics(context, Operation.ALTER, (topic.name for topic in request.topics))
    late = partial(error_response, request, ErrorCode.REQUEST_TIMED_OUT)
    create = partial(_create, controller, zk, cache, request, refused, context)
    sizes = (max(topic.count, cache.partition_count(topic.name)) for topic in request.topics)
    if sum(sizes) > PARTITIONS_AT_ONCE:
        # Each takes a turn for every topic, of 0.1 s and more (fault strangers-9).
        create = partial(deferred.in_line, create, owner_of(context))
    work = create()
    # Of what is refused, or only validated, a client with a time of 0 hears too
    # (fault outside-O9, was: request.timeout_ms).
    wait_ms = max(request.timeout_ms, timeout_ms)
    return deferred.respond(work, wait_ms, late, only_asks=request.validate_only)


async def _create(
    controller: Controller,
    zk: ZkSession,
    cache: MetadataCache,
    request: CreatePartitionsRequest,
    refused: Collection[str],
    context: RequestContext,
) -> Outcome:
    # Write what can be created.
    counts = Counter(topic.name for topic in request.topics)
    errors: dict[str, ApiError] = {}
    # All topics of the request share it.
    room = ReplicaRoom()
    for topic in request.topics:
        try:
            if counts[topic.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
            if topic.name in refused:
                reason = "The topic authorization is failed."
                raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, reason)
            _check(controller, topic)
            if not request.validate_only:
                added = max(topic.count - cache.partition_count(topic.name), 0)
                take_mutations(context, added, FIRST_VERSION_OF_QUOTAS)

            # The new replicas are spread over the racks.
            racks = {broker.id: broker.rack for broker in cache.brokers.values()}
            plan = partial(plan_partitions, topic, racks=racks, room=room)
            await add_partitions(zk, topic.name, plan, validate_only=request.validate_only)
        except ApiError as error:
            errors[topic.name] = error
            let_go(error)

    # Wait until the metadata shows leaders of the new partitions.
    new_counts = {topic.name: topic.count for topic in request.topics if topic.name not in errors}
    # Nothing is written, so no leader will show.
    if request.validate_only:
        return _response(errors, dict.fromkeys(new_counts, ErrorCode.NONE))
    remaining = Remaining([*new_counts], lambda name: _is_led(cache, name, new_counts[name]))
    try_complete = partial(_try_complete, remaining, errors, new_counts)
    keys = [("topic", name) for name in new_counts]
    return respond_or_wait(try_complete, keys, request.timeout_ms)


def _check(controller: Controller, topic: CreatePartitionsRequestTopic) -> None:
    """Refuse partitions for a topic that is deleted or reassigned. Raises ApiError.

    While replicas move, nothing says how many replicas a new partition should have.
    """
    if controller.is_deleting(topic.name):
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
    if controller.is_reassigning(topic.name):
        raise ApiError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"A partition reassignment is in progress for the topic '{topic.name}'.",
        )


def _try_complete(
    remaining: Remaining[str],
    errors: dict[str, ApiError],
    new_counts: dict[str, int],
    expired: bool,
) -> CreatePartitionsResponse | None:
    if remaining.has_any() and not expired:
        return None
    late = dict.fromkeys(remaining.list_undone(), ErrorCode.REQUEST_TIMED_OUT)
    return _response(errors, {**dict.fromkeys(new_counts, ErrorCode.NONE), **late})


def _is_led(cache: MetadataCache, name: str, count: int) -> bool:
    """Return whether all partitions have a leader."""
    led = sum(state.leader in cache.brokers for state in cache.partitions(name))
    return led >= count


def _response(errors: dict[str, ApiError], codes: dict[str, ErrorCode]) -> CreatePartitionsResponse:
    results = [
        CreatePartitionsResponseResult(
            name=name, error_code=error.code, error_message=error.detail or error.code.meaning
        )
        for name, error in errors.items()
    ]
    for name, code in codes.items():
        message = None if code is ErrorCode.NONE else code.meaning
        results.append(
            CreatePartitionsResponseResult(name=name, error_code=code, error_message=message)
        )
    return CreatePartitionsResponse(results=results)
