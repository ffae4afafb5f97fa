"""CreatePartitions: give topics more partitions, and wait until this broker shows their leaders."""

from __future__ import annotations

from collections import Counter
from functools import partial

from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.partition_creation import add_partitions
from broker.controller.controller import Controller
from broker.controller.topic_changes import plan_partitions
from broker.network.deferred import Deferred
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from protocol.errors import ApiError, ErrorCode
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
    CreatePartitionsResponse,
    CreatePartitionsResponseResult,
    error_response,
)
from zk.api import ZkSession


def handle(
    controller: Controller,
    zk: ZkSession,
    cache: MetadataCache,
    deferred: Deferred,
    request: CreatePartitionsRequest,
    context: RequestContext,
) -> CreatePartitionsResponse | Wait:
    """Add the partitions, each topic's for itself."""
    if not controller.is_active:
        return error_response(request, ErrorCode.NOT_CONTROLLER)
    late = partial(error_response, request, ErrorCode.REQUEST_TIMED_OUT)
    return deferred.respond(_create(controller, zk, cache, request), request.timeout_ms, late)


async def _create(
    controller: Controller, zk: ZkSession, cache: MetadataCache, request: CreatePartitionsRequest
) -> CreatePartitionsResponse | Wait:
    times = Counter(topic.name for topic in request.topics)
    refused: dict[str, ApiError] = {}
    for topic in request.topics:
        try:
            if times[topic.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
            _check(controller, topic)
            racks = {broker.id: broker.rack for broker in cache.brokers.values()}
            plan = partial(plan_partitions, topic, racks=racks)
            await add_partitions(zk, topic.name, plan, validate_only=request.validate_only)
        except ApiError as error:
            refused[topic.name] = error
    counts = {topic.name: topic.count for topic in request.topics if topic.name not in refused}
    if request.validate_only:
        return _response(refused, dict.fromkeys(counts, ErrorCode.NONE))
    try_complete = partial(_try_complete, cache, refused, counts)
    keys = tuple(("topic", name) for name in counts)
    return try_complete(False) or Wait(keys, request.timeout_ms, try_complete)


def _check(controller: Controller, topic: CreatePartitionsRequestTopic) -> None:
    """Partitions of a topic whose replicas are on the move would have no number of replicas to
    go by. Raises ApiError."""
    if controller.is_deleting(topic.name):
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
    if controller.is_reassigning(topic.name):
        raise ApiError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"A partition reassignment is in progress for the topic '{topic.name}'.",
        )


def _try_complete(
    cache: MetadataCache, refused: dict[str, ApiError], counts: dict[str, int], expired: bool
) -> CreatePartitionsResponse | None:
    codes = {name: _code(cache, name, count) for name, count in counts.items()}
    if ErrorCode.REQUEST_TIMED_OUT in codes.values() and not expired:
        return None
    return _response(refused, codes)


def _code(cache: MetadataCache, name: str, count: int) -> ErrorCode:
    """REQUEST_TIMED_OUT while a partition has no leader, which is the answer if time is up."""
    led = sum(state.leader in cache.brokers for state in cache.partitions(name))
    return ErrorCode.NONE if led >= count else ErrorCode.REQUEST_TIMED_OUT


def _response(
    refused: dict[str, ApiError], codes: dict[str, ErrorCode]
) -> CreatePartitionsResponse:
    results = [
        CreatePartitionsResponseResult(
            name=name, error_code=error.code, error_message=error.detail or error.code.meaning
        )
        for name, error in refused.items()
    ]
    for name, code in codes.items():
        message = None if code is ErrorCode.NONE else code.meaning
        results.append(
            CreatePartitionsResponseResult(name=name, error_code=code, error_message=message)
        )
    return CreatePartitionsResponse(results=results)
