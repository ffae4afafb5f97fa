"""ElectLeaders: have leaders elected, and wait until this broker's metadata shows them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from broker.cluster.metadata_cache import MetadataCache
from broker.controller.controller import Controller
from broker.controller.events import ElectionRequested, Verdict
from broker.network.deferred import Deferred
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from protocol.errors import ApiError, ErrorCode
from protocol.messages.elect_leaders import (
    PREFERRED,
    UNCLEAN,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersResponsePartitionResult,
    ElectLeadersResponseReplicaElectionResult,
    error_response,
)
from protocol.topic_partition import TopicPartition

NOT_NEEDED_SINCE = 1  # the version from which clients know ELECTION_NOT_NEEDED


def handle(
    controller: Controller,
    cache: MetadataCache,
    deferred: Deferred,
    request: ElectLeadersRequest,
    context: RequestContext,
) -> ElectLeadersResponse | Wait:
    """Elect. Of all partitions, only those are answered for that needed an election."""
    if not controller.is_active:
        return error_response(request, ErrorCode.NOT_CONTROLLER)
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"election type {request.election_type}")
    late = partial(error_response, request, ErrorCode.REQUEST_TIMED_OUT)
    work = _elect(controller, cache, request, context.api_version)
    return deferred.respond(work, request.timeout_ms, late)


async def _elect(
    controller: Controller, cache: MetadataCache, request: ElectLeadersRequest, version: int
) -> ElectLeadersResponse | Wait:
    asked = None
    if request.topic_partitions is not None:
        asked = tuple(
            TopicPartition(topic.topic, index)
            for topic in request.topic_partitions
            for index in topic.partitions
        )
    is_unclean = request.election_type == UNCLEAN
    verdicts = await controller.ask(ElectionRequested(asked, is_unclean))
    not_needed = ErrorCode.ELECTION_NOT_NEEDED
    if asked is None:
        verdicts = {each: told for each, told in verdicts.items() if told[0] is not not_needed}
    elected = [each for each, (code, _) in verdicts.items() if code is ErrorCode.NONE]
    if version < NOT_NEEDED_SINCE:
        verdicts = {
            each: (ErrorCode.NONE, "") if told[0] is not_needed else told
            for each, told in verdicts.items()
        }
    try_complete = partial(_try_complete, cache, elected, verdicts, is_unclean)
    keys = tuple({("topic", each.topic) for each in elected})
    return try_complete(False) or Wait(keys, request.timeout_ms, try_complete)


def _try_complete(
    cache: MetadataCache,
    elected: list[TopicPartition],
    verdicts: Mapping[TopicPartition, Verdict],
    is_unclean: bool,
    expired: bool,
) -> ElectLeadersResponse | None:
    hidden = {each for each in elected if not _shows(cache, each, is_unclean)}
    if hidden and not expired:
        return None
    late = ErrorCode.REQUEST_TIMED_OUT
    told = {p: (late, late.meaning) if p in hidden else each for p, each in verdicts.items()}
    by_topic: dict[str, list[ElectLeadersResponsePartitionResult]] = {}
    for partition, (code, message) in told.items():
        result = ElectLeadersResponsePartitionResult(
            partition_id=partition.partition, error_code=code, error_message=message or None
        )
        by_topic.setdefault(partition.topic, []).append(result)
    return ElectLeadersResponse(
        replica_election_results=[
            ElectLeadersResponseReplicaElectionResult(topic=topic, partition_result=results)
            for topic, results in by_topic.items()
        ]
    )


def _shows(cache: MetadataCache, partition: TopicPartition, is_unclean: bool) -> bool:
    state = cache.partition_state(partition)
    if state is None:
        return False
    return state.leader in cache.brokers if is_unclean else state.leader == state.replicas[0]
