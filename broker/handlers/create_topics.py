"""CreateTopics: check what is asked for, write it, and wait until this broker can serve it.

The wait ends when the metadata of this broker shows a leader for every partition: a client that
asks for metadata right after the answer finds the topic.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.topic_creation import Creation, TopicCreator
from broker.cluster.topic_names import already_exists
from broker.controller.controller import Controller
from broker.controller.topic_changes import PlannedTopic, TopicDefaults, plan_topic
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from protocol.errors import ApiError, ErrorCode
from protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
    CreateTopicsResponseTopic,
    error_response,
)


def handle(
    controller: Controller,
    creator: TopicCreator,
    cache: MetadataCache,
    defaults: TopicDefaults,
    request: CreateTopicsRequest,
    context: RequestContext,
) -> CreateTopicsResponse | Wait:
    """Create the topics, each for itself: one that cannot be created fails alone."""
    if not controller.is_active:
        return error_response(request, ErrorCode.NOT_CONTROLLER)
    times = Counter(topic.name for topic in request.topics)
    answers: dict[str, CreateTopicsResponseTopic] = {}
    planned: list[PlannedTopic] = []
    for topic in request.topics:
        try:
            if times[topic.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Found multiple entries for this topic.")
            planned.append(_plan(creator, cache, defaults, topic))
        except ApiError as error:
            answers[topic.name] = _answer(topic.name, error.code, error.detail)
    if request.validate_only or not planned:
        answers.update((topic.name, _answer(topic.name, ErrorCode.NONE)) for topic in planned)
        return CreateTopicsResponse(topics=list(answers.values()))
    creations = [creator.create_assigned(topic) for topic in planned]
    keys = tuple(("topic", topic.name) for topic in planned)
    return Wait(keys, request.timeout_ms, partial(_try_complete, cache, answers, creations))


def _plan(
    creator: TopicCreator,
    cache: MetadataCache,
    defaults: TopicDefaults,
    topic: CreateTopicsRequestTopic,
) -> PlannedTopic:
    if creator.is_creating(topic.name):
        raise already_exists(topic.name)
    return plan_topic(topic, cache.names, defaults, creator.place)


def _try_complete(
    cache: MetadataCache,
    answers: dict[str, CreateTopicsResponseTopic],
    creations: list[Creation],
    expired: bool,
) -> CreateTopicsResponse | None:
    codes = {creation.topic.name: _code(cache, creation) for creation in creations}
    if ErrorCode.REQUEST_TIMED_OUT in codes.values() and not expired:
        return None
    done = [_answer(name, code) for name, code in codes.items()]
    return CreateTopicsResponse(topics=[*answers.values(), *done])


def _code(cache: MetadataCache, creation: Creation) -> ErrorCode:
    """REQUEST_TIMED_OUT while the topic is on its way, which is the answer if time is up."""
    if creation.result is None:
        return ErrorCode.REQUEST_TIMED_OUT
    if creation.result is not ErrorCode.NONE:
        return creation.result
    topic = creation.topic
    led = sum(state.leader in cache.brokers for state in cache.partitions(topic.name))
    return ErrorCode.NONE if led >= len(topic.assignment) else ErrorCode.REQUEST_TIMED_OUT


def _answer(name: str, code: ErrorCode, detail: str = "") -> CreateTopicsResponseTopic:
    if code is ErrorCode.TOPIC_ALREADY_EXISTS:
        detail = already_exists(name).detail
    message = None if code is ErrorCode.NONE else detail or code.meaning
    return CreateTopicsResponseTopic(name=name, error_code=code, error_message=message)
