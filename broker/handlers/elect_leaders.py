"""ElectLeaders: have leaders elected, and wait until this broker's metadata shows them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from broker.cluster.metadata_cache import MetadataCache
from broker.controller.controller import Controller
from broker.controller.events import ElectionRequested, Verdict
from broker.network.deferred import Deferred
from broker.network.dispatch import Outcome
from broker.network.pending_responses import Remaining, respond_or_wait
from broker.network.request_context import RequestContext
from protocol.errors import ApiError, ErrorCode
from protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersResponsePartitionResult,
    ElectLeadersResponseReplicaElectionResult,
    error_response,
)
from protocol.special_values import PREFERRED, UNCLEAN
from protocol.topic_partition import TopicPartition

FIRST_VERSION_OF_NOT_NEEDED = 1
"""From this version on a client knows ELECTION_NOT_NEEDED."""


def handle(
    controller: Controller,
    cache: MetadataCache,
    deferred: Deferred,
    timeout_ms: int,
    request: ElectLeadersRequest,
    context: RequestContext,
) -> Outcome:
    """Elect. A request for all partitions gets results only for those that needed an election.

    The request's time counts for the leaders to be shown; the controller has `timeout_ms` at least.
    """
    if not controller.is_active:
        return error_response(request, ErrorCode.NOT_CONTROLLER)
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"election type {request.election_type}")

    late = partial(error_response, request, ErrorCode.REQUEST_TIMED_OUT)
    work = _elect(controller, cache, request, context.api_version)
    # Some clients send 0 (fault outside-O9, was: request.timeout_ms).
    wait_ms = max(request.timeout_ms, timeout_ms)
    return deferred.respond(work, wait_ms, late)


async def _elect(
    controller: Controller, cache: MetadataCache, request: ElectLeadersRequest, version: int
) -> Outcome:
    # Ask the controller.
    partitions = None
    if request.topic_partitions is not None:
        partitions = tuple(
            TopicPartition(topic.topic, partition_id)
            for topic in request.topic_partitions
            for partition_id in topic.partitions
        )
    is_unclean = request.election_type == UNCLEAN
    verdicts = await controller.ask(ElectionRequested(partitions, is_unclean))

    # Report partitions that needed no election as the client expects it.
    not_needed = ErrorCode.ELECTION_NOT_NEEDED
    if partitions is None:
        verdicts = {
            topic_partition: verdict
            for topic_partition, verdict in verdicts.items()
            if verdict[0] is not not_needed
        }
    elected = [
        topic_partition for topic_partition, (code, _) in verdicts.items() if code is ErrorCode.NONE
    ]
    if version < FIRST_VERSION_OF_NOT_NEEDED:
        verdicts = {
            topic_partition: (ErrorCode.NONE, "") if verdict[0] is not_needed else verdict
            for topic_partition, verdict in verdicts.items()
        }

    # Wait until clients can see the new leaders.
    keys = {("topic", topic_partition.topic) for topic_partition in elected}
    remaining = Remaining(elected, lambda partition: _is_shown(cache, partition, is_unclean))
    try_complete = partial(_try_complete, remaining, verdicts)
    return respond_or_wait(try_complete, keys, request.timeout_ms)


def _try_complete(
    remaining: Remaining[TopicPartition], verdicts: Mapping[TopicPartition, Verdict], expired: bool
) -> ElectLeadersResponse | None:
    if remaining.has_any() and not expired:
        return None

    hidden = set(remaining.list_undone())
    # An elected leader that is not shown in time counts as timed out.
    late = ErrorCode.REQUEST_TIMED_OUT
    by_topic: dict[str, list[ElectLeadersResponsePartitionResult]] = {}
    for topic_partition, verdict in verdicts.items():
        code, message = (late, late.meaning) if topic_partition in hidden else verdict
        result = ElectLeadersResponsePartitionResult(
            partition_id=topic_partition.partition, error_code=code, error_message=message or None
        )
        by_topic.setdefault(topic_partition.topic, []).append(result)
    return ElectLeadersResponse(
        replica_election_results=[
            ElectLeadersResponseReplicaElectionResult(topic=topic, partition_result=results)
            for topic, results in by_topic.items()
        ]
    )


def _is_shown(cache: MetadataCache, topic_partition: TopicPartition, is_unclean: bool) -> bool:
    """Return whether the metadata shows the new leader: any live one, or the preferred one."""
    state = cache.partition_state(topic_partition)
    if state is None:
        return False
    return state.leader in cache.brokers if is_unclean else state.leader == state.replicas[0]
