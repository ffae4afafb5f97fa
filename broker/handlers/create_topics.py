"""CreateTopics: check each topic, write it, and wait until this broker can serve it.

The wait ends when the metadata of this broker shows a leader for every partition: a client that
asks for metadata right after the response finds the topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from functools import partial

from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.topic_creation import Creation, TopicCreator
from broker.controller.controller import Controller
from broker.controller.topic_changes import PlannedTopic, TopicDefaults, plan_topic
from broker.controller.topic_names import already_exists
from broker.network.authorization import CLUSTER, Operation
from broker.network.dispatch import Outcome
from broker.network.pending_responses import respond_or_wait
from broker.network.request_context import (
    NO_TOPICS,
    RequestContext,
    authorize,
    refused_topics,
    take_mutations,
)
from protocol.errors import ApiError, ErrorCode
from protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
    CreateTopicsResponseTopic,
    error_response,
)

FIRST_VERSION_OF_QUOTAS = 6
"""From this version on a client knows THROTTLING_QUOTA_EXCEEDED."""


def handle(
    controller: Controller,
    creator: TopicCreator,
    cache: MetadataCache,
    defaults: TopicDefaults,
    request: CreateTopicsRequest,
    context: RequestContext,
) -> Outcome:
    """Create the topics independently: one that cannot be created fails alone."""
    if not controller.is_active:
        return error_response(request, ErrorCode.NOT_CONTROLLER)

    # Plan what can be created.
    refused = _refused(request, context)
    counts = Counter(topic.name for topic in request.topics)
    results: dict[str, CreateTopicsResponseTopic] = {}
    planned: list[PlannedTopic] = []
    for topic in request.topics:
        try:
            if counts[topic.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Found multiple entries for this topic.")
            if topic.name in refused:
                raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
            plan = _plan(creator, cache, defaults, topic)
            if not request.validate_only:
                take_mutations(context, len(plan.assignment), FIRST_VERSION_OF_QUOTAS)
            planned.append(plan)
        except ApiError as error:
            results[topic.name] = _result(topic.name, error.code, error.detail)

    # Nothing is to be written.
    if request.validate_only or not planned:
        results.update((topic.name, _result(topic.name, ErrorCode.NONE)) for topic in planned)
        return CreateTopicsResponse(topics=list(results.values()))

    # Create it.
    creations = [creator.create_assigned(topic) for topic in planned]
    keys = [("topic", topic.name) for topic in planned]
    try_complete = partial(_try_complete, cache, results, creations)
    return respond_or_wait(try_complete, keys, request.timeout_ms)


def _refused(request: CreateTopicsRequest, context: RequestContext) -> Collection[str]:
    """Return the topics that the sender may not create: CREATE of the cluster allows all."""
    if authorize(context, Operation.CREATE, CLUSTER):
        return NO_TOPICS
    return refused_topics(context, Operation.CREATE, (topic.name for topic in request.topics))


def _plan(
    creator: TopicCreator,
    cache: MetadataCache,
    defaults: TopicDefaults,
    topic: CreateTopicsRequestTopic,
) -> PlannedTopic:
    # Between the write and the metadata the name is taken too.
    if creator.is_creating(topic.name):
        raise already_exists(topic.name)
    return plan_topic(topic, cache.names, defaults, creator.place)


def _try_complete(
    cache: MetadataCache,
    results: dict[str, CreateTopicsResponseTopic],
    creations: list[Creation],
    expired: bool,
) -> CreateTopicsResponse | None:
    codes = {creation.topic.name: _code(cache, creation) for creation in creations}
    if ErrorCode.REQUEST_TIMED_OUT in codes.values() and not expired:
        return None
    created = [_result(name, code) for name, code in codes.items()]
    return CreateTopicsResponse(topics=[*results.values(), *created])


def _code(cache: MetadataCache, creation: Creation) -> ErrorCode:
    """Return the result; REQUEST_TIMED_OUT until this broker shows a leader of each partition."""
    if creation.result is None:
        return ErrorCode.REQUEST_TIMED_OUT
    if creation.result is not ErrorCode.NONE:
        return creation.result

    # It is written. The controller elects leaders, and its metadata arrives.
    topic = creation.topic
    led = sum(state.leader in cache.brokers for state in cache.partitions(topic.name))
    return ErrorCode.NONE if led >= len(topic.assignment) else ErrorCode.REQUEST_TIMED_OUT


def _result(name: str, code: ErrorCode, detail: str = "") -> CreateTopicsResponseTopic:
    # The write, too, may find that the name is taken, but it has no words for it.
    if code is ErrorCode.TOPIC_ALREADY_EXISTS:
        detail = already_exists(name).detail
    message = None if code is ErrorCode.NONE else detail or code.meaning
    return CreateTopicsResponseTopic(name=name, error_code=code, error_message=message)
