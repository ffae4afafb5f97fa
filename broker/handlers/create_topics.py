"""CreateTopics: check each topic, write it, and wait until this broker can serve it.

The wait ends when the metadata of this broker shows a leader for every partition: a client that
asks for metadata right after the response finds the topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping
from functools import partial

import attrs

from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.topic_creation import Creation, TopicCreator
from broker.controller.controller import Controller
from broker.controller.topic_changes import PlannedTopic, TopicDefaults, plan_topic
from broker.controller.topic_names import TopicNames, already_exists
from broker.network.authorization import CLUSTER
from broker.network.authorization import topic as topic_resource
from broker.network.dispatch import Outcome
from broker.network.pending_responses import Remaining, respond_or_wait
from broker.network.request_context import (
    NO_TOPICS,
    RequestContext,
    authorize,
    refused_topics,
    take_mutations,
)
from broker.settings.broker_configs import BrokerConfigs
from broker.settings.described_settings import describe_topic
from protocol.acls import Operation
from protocol.errors import ApiError, ErrorCode
from protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
    CreateTopicsResponseConfig,
    CreateTopicsResponseTopic,
    error_response,
)

FIRST_VERSION_OF_CONFIGS = 5
"""From this version on the response describes the topics."""
FIRST_VERSION_OF_QUOTAS = 6
"""From this version on a client knows THROTTLING_QUOTA_EXCEEDED."""


def handle(
    controller: Controller,
    creator: TopicCreator,
    cache: MetadataCache,
    defaults: TopicDefaults,
    brokers: BrokerConfigs,
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
        name = topic.name
        # Without an error that is raised for each: they may be 50,000.
        if counts[name] > 1:
            twice = "Found multiple entries for this topic."
            results[name] = _result(name, ErrorCode.INVALID_REQUEST, twice)
            continue
        if name in refused:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            results[name] = _result(name, code, "Authorization failed.")
            continue
        try:
            plan = _plan(controller, creator, cache, defaults, topic)
            if not request.validate_only:
                take_mutations(context, len(plan.assignment), FIRST_VERSION_OF_QUOTAS)
            planned.append(plan)
        except ApiError as error:
            results[name] = _result(name, error.code, error.detail)

    # Nothing is to be written.
    descriptions = _Descriptions(brokers, context)
    if request.validate_only or not planned:
        results.update((topic.name, descriptions.result(topic)) for topic in planned)
        return CreateTopicsResponse(topics=list(results.values()))

    # Create it.
    creations = [creator.create_assigned(topic) for topic in planned]
    keys = [("topic", topic.name) for topic in planned]
    late = ErrorCode.REQUEST_TIMED_OUT
    remaining = Remaining([*creations], lambda creation: _code(cache, creation) is not late)
    try_complete = partial(_try_complete, remaining, cache, results, creations, descriptions)
    return respond_or_wait(try_complete, keys, request.timeout_ms)


def _refused(request: CreateTopicsRequest, context: RequestContext) -> Collection[str]:
    """Return the topics that the sender may not create: CREATE of the cluster allows all."""
    if authorize(context, Operation.CREATE, CLUSTER, quietly=True):
        return NO_TOPICS
    return refused_topics(context, Operation.CREATE, (topic.name for topic in request.topics))


@attrs.define(eq=False)
class _Descriptions:
    """Describes the topics that one request creates, as its version wants them."""

    brokers: BrokerConfigs
    context: RequestContext
    _configs: dict[Hashable, list[CreateTopicsResponseConfig]] = attrs.field(factory=dict)

    def result(self, planned: PlannedTopic) -> CreateTopicsResponseTopic:
        """Return the result for a topic that can be created, or is."""
        if self.context.api_version < FIRST_VERSION_OF_CONFIGS:
            return _result(planned.name, ErrorCode.NONE)

        # Who may create a topic may not always read its settings.
        if not authorize(self.context, Operation.DESCRIBE_CONFIGS, topic_resource(planned.name)):
            return attrs.evolve(  # type: ignore[misc]  # mypy sees no attrs class in a message
                _result(planned.name, ErrorCode.NONE),
                topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            )

        return CreateTopicsResponseTopic(
            name=planned.name,
            error_code=ErrorCode.NONE,
            num_partitions=len(planned.assignment),
            replication_factor=len(next(iter(planned.assignment.values()))),
            configs=self._describe(planned.configs),
        )

    def _describe(self, own: Mapping[str, str]) -> list[CreateTopicsResponseConfig]:
        """Describe all settings of a topic; many topics have the same of their own."""
        key = tuple(own.items())
        configs = self._configs.get(key)
        if configs is None:
            configs = self._configs[key] = [
                CreateTopicsResponseConfig(
                    name=setting.name,
                    value=setting.values[0][1],
                    read_only=setting.read_only,
                    config_source=setting.values[0][2],
                    is_sensitive=setting.is_sensitive,
                )
                for setting in describe_topic(self.brokers, own)
            ]
        return configs


def _plan(
    controller: Controller,
    creator: TopicCreator,
    cache: MetadataCache,
    defaults: TopicDefaults,
    topic: CreateTopicsRequestTopic,
) -> PlannedTopic:
    # Between the write and the metadata the name is taken too, and until the last replica is gone.
    if creator.is_creating(topic.name) or controller.is_deleting(topic.name):
        raise already_exists(topic.name)
    existing = cache.names
    # A topic that was deleted unheard is shown for a while: ZooKeeper decides (fault core-R4).
    if topic.name in existing and controller.denies(topic.name):
        existing = TopicNames()
    return plan_topic(topic, existing, defaults, creator.place)


def _try_complete(
    remaining: Remaining[Creation],
    cache: MetadataCache,
    results: dict[str, CreateTopicsResponseTopic],
    creations: list[Creation],
    descriptions: _Descriptions,
    expired: bool,
) -> CreateTopicsResponse | None:
    if remaining.has_any() and not expired:
        return None
    codes = [_code(cache, creation) for creation in creations]
    created = [
        descriptions.result(creation.topic)
        if code is ErrorCode.NONE
        else _result(creation.topic.name, code)
        for creation, code in zip(creations, codes, strict=True)
    ]
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
