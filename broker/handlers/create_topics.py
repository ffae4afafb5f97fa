"""CreateTopics: check each topic, write it, and wait until this broker can serve it.

The wait ends when the metadata of this broker shows a leader for every partition: a client that
asks for metadata right after the response finds the topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from functools import partial
from itertools import chain, islice

import attrs

from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.topic_creation import Creation, TopicCreator
from broker.controller.controller import Controller
from broker.controller.topic_changes import (
    Assignment,
    PlannedTopic,
    ReplicaRoom,
    TopicDefaults,
    plan_topic,
)
from broker.controller.topic_names import TopicNames, already_exists
from broker.network.authorization import CLUSTER
from broker.network.authorization import topic as topic_resource
from broker.network.deferred import Deferred
from broker.network.dispatch import Outcome
from broker.network.fair_line import owner_of
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
from protocol.encoding import Encoded, EncodedArray, encode_element
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


TOPICS_A_TURN = 100
"""Topics that are planned in one turn of the loop, and results that are made in one."""
REPLICAS_A_TURN = 2_000
"""Replicas that are placed in one turn; the last topic of a turn may have more."""
TURNS_TIMEOUT_MS = 30_000
"""A request waits no longer for further turns of the loop."""


def handle(
    controller: Controller,
    creator: TopicCreator,
    cache: MetadataCache,
    defaults: TopicDefaults,
    brokers: BrokerConfigs,
    deferred: Deferred,
    request: CreateTopicsRequest,
    context: RequestContext,
) -> Outcome:
    """Create the topics independently: one that cannot be created fails alone.

    Many topics, or partitions, are planned some in each turn of the loop.
    """
    if not controller.is_active:
        return error_response(request, ErrorCode.NOT_CONTROLLER)

    descriptions = _Descriptions(brokers, context)
    creation = _TopicsCreation(
        controller, creator, cache, defaults, deferred, request, descriptions
    )
    return creation.begin()


@attrs.define(eq=False)
class _TopicsCreation:
    """The topics of one request: those that are left, those begun, those that were refused.

    A topic is begun in the turn in which it is planned, so that what was checked still holds.
    """

    controller: Controller
    creator: TopicCreator
    cache: MetadataCache
    defaults: TopicDefaults
    deferred: Deferred
    request: CreateTopicsRequest
    descriptions: _Descriptions
    room: ReplicaRoom = attrs.field(factory=ReplicaRoom)
    refused: dict[str, CreateTopicsResponseTopic] = attrs.field(factory=dict)
    validated: list[PlannedTopic] = attrs.field(factory=list)
    creations: list[Creation] = attrs.field(factory=list)
    left: list[CreateTopicsRequestTopic] = attrs.field(factory=list)

    def begin(self) -> Outcome:
        """Plan the first of the topics; return the outcome if these are all."""
        # Without an error that is raised for each: they may be 50,000.
        unauthorized = _unauthorized(self.request, self.descriptions.context)
        counts = Counter(topic.name for topic in self.request.topics)
        asked = 0
        for topic in self.request.topics:
            name = topic.name
            if counts[name] > 1:
                twice = "Found multiple entries for this topic."
                self.refused[name] = _result(name, ErrorCode.INVALID_REQUEST, twice)
            elif name in unauthorized:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                self.refused[name] = _result(name, code, "Authorization failed.")
            else:
                self.left.append(topic)
                asked += abs(topic.num_partitions * topic.replication_factor)

        # The next one is taken from the end.
        self.left.reverse()
        return self._respond_in_turns(
            self.plan_more,
            # Many connections may ask for one large topic each (fault strangers-9, was: True).
            is_short=asked <= REPLICAS_A_TURN,
        )

    def plan_more(self) -> Outcome | None:
        """Plan a slice of the topics; return the outcome when all are planned."""
        # 1,900 topics may have 75,000 partitions each, or 16,000 one (fault strangers-9, was: 0).
        end = max(len(self.left) - TOPICS_A_TURN, 0)
        # The others of this turn have their requests in between (fault strangers-9, was: -1).
        room_at_end = self.room.left - REPLICAS_A_TURN
        while len(self.left) > end and self.room.left > room_at_end:
            self._plan(self.left.pop())
        if self.left:
            return None

        if self.creations:
            return self._wait()
        return self._respond(map(self.descriptions.result, self.validated))

    def _plan(self, topic: CreateTopicsRequestTopic) -> None:
        """Plan a topic, and begin to create it."""
        name = topic.name
        # It may have resigned since the last turn.
        if not self.controller.is_active:
            self.refused[name] = _result(name, ErrorCode.NOT_CONTROLLER)
            return
        try:
            self.room.take(len(topic.assignments), 1)
            plan = self._check(topic)
            if self.request.validate_only:
                self.validated.append(plan)
                return
            context = self.descriptions.context
            take_mutations(context, len(plan.assignment), FIRST_VERSION_OF_QUOTAS)
            self.creations.append(self.creator.create_assigned(plan))
        except ApiError as error:
            self.refused[name] = _result(name, error.code, error.detail)

    def _check(self, topic: CreateTopicsRequestTopic) -> PlannedTopic:
        name = topic.name
        # Between the write and the metadata the name is taken too, and until the last replica is
        # gone.
        if self.creator.is_creating(name) or self.controller.is_deleting(name):
            raise already_exists(name)
        existing = self.cache.names
        # A topic that was deleted unheard is shown for a while: ZooKeeper decides (fault core-R4).
        if name in existing and self.controller.denies(name):
            existing = TopicNames()
        return plan_topic(topic, existing, self.defaults, self._place)

    def _place(self, partitions: int, replication_factor: int) -> Assignment:
        # More replicas than brokers have an error of their own.
        self.room.take(partitions, min(replication_factor, len(self.cache.brokers)))
        return self.creator.place(partitions, replication_factor)

    def _wait(self) -> Outcome:
        """Wait until this broker shows leaders of all partitions of what was begun."""
        late = ErrorCode.REQUEST_TIMED_OUT
        remaining = Remaining(
            [*self.creations], lambda creation: _code(self.cache, creation) is not late
        )

        def try_complete(expired: bool) -> Outcome | None:
            if remaining.has_any() and not expired:
                return None
            return self._respond(map(self._result, self.creations))

        keys = [("topic", creation.topic.name) for creation in self.creations]
        return respond_or_wait(try_complete, keys, self.request.timeout_ms)

    def _result(self, creation: Creation) -> CreateTopicsResponseTopic:
        code = _code(self.cache, creation)
        if code is ErrorCode.NONE:
            return self.descriptions.result(creation.topic)
        return _result(creation.topic.name, code)

    def _respond(self, created: Iterable[CreateTopicsResponseTopic]) -> Outcome:
        """Respond with the results, encoded some in each turn if they are many."""
        results = chain(self.refused.values(), created)
        version = self.descriptions.context.api_version
        chunks: list[Encoded] = []
        count = 0

        def respond_more() -> CreateTopicsResponse | None:
            nonlocal count
            # All settings of 16,000 topics are 14 MB (fault strangers-9, was: list(results)).
            some = list(islice(results, TOPICS_A_TURN))
            is_all = len(some) < TOPICS_A_TURN
            if is_all and not chunks:
                return CreateTopicsResponse(topics=some)

            # To encode all of them at the end would take a turn for itself.
            count += len(some)
            encoded = [encode_element(topic, CreateTopicsResponse, version).body for topic in some]
            chunks.append(Encoded(CreateTopicsResponseTopic, b"".join(encoded)))
            if not is_all:
                return None
            return CreateTopicsResponse(topics=EncodedArray(count, chunks))  # type: ignore[arg-type]

        return self._respond_in_turns(respond_more)

    def _respond_in_turns(
        self, work: Callable[[], Outcome | None], *, is_short: bool = True
    ) -> Outcome:
        late = partial(error_response, self.request, ErrorCode.REQUEST_TIMED_OUT)
        owner = owner_of(self.descriptions.context)
        return self.deferred.respond_in_turns(
            work, TURNS_TIMEOUT_MS, late, owner, is_short=is_short
        )


def _unauthorized(request: CreateTopicsRequest, context: RequestContext) -> Collection[str]:
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
                    value=setting.value,
                    read_only=setting.read_only,
                    config_source=setting.source,
                    is_sensitive=setting.is_sensitive,
                )
                for setting in describe_topic(self.brokers, own)
            ]
        return configs


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
