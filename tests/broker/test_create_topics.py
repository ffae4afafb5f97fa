"""CreateTopics: refusals, topics that are begun, and when the wait ends."""

import asyncio
import random
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import attrs
import pytest

from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.topic_creation import Creation, TopicCreator
from broker.controller.controller import Controller
from broker.controller.topic_changes import (
    MAX_NEW_REPLICAS,
    Assignment,
    PlannedTopic,
    TopicDefaults,
)
from broker.handlers import create_topics
from broker.handlers.create_topics import REPLICAS_A_TURN, TOPICS_A_TURN
from broker.network.authorization import Sender
from broker.network.deferred import Deferred
from broker.network.dispatch import Outcome
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from broker.network.response_parts import read_part, split_at_holes
from broker.network.session import ANONYMOUS
from broker.settings.broker_configs import BrokerConfigs
from broker.settings.config import load_broker_config
from broker.settings.described_settings import FROM_DEFAULT, FROM_STATIC_BROKER, FROM_TOPIC
from core_log.config import LogConfig
from protocol.acls import Operation
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.header import encode_response, read_response
from protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestAssignment,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from protocol.messages.metadata import NO_TOPIC_ID
from protocol.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataRequestLiveBroker,
    UpdateMetadataRequestPartitionState,
    UpdateMetadataRequestTopicState,
)
from protocol.settings import declared_settings
from tests.broker.spawning import Spawned
from tests.stage.authorizer import AskingSender
from zk.memory import MemoryZooKeeper


@attrs.define(eq=False)
class KnownController:
    is_active: bool
    denied: frozenset[str]
    deleting: frozenset[str]

    def denies(self, topic: str) -> bool:
        return topic in self.denied

    def is_deleting(self, topic: str) -> bool:
        return topic in self.deleting


class Creator(TopicCreator):
    """A creator that is never started, and notes the topics it is given."""

    def __init__(self) -> None:
        session = MemoryZooKeeper().session()
        super().__init__(
            session, racks=lambda: {1: None}, touch=lambda key: None, rng=random.Random(1)
        )
        self.begun: list[Creation] = []
        self.placed = 0

    def place(self, partitions: int, replication_factor: int) -> Assignment:
        assignment = super().place(partitions, replication_factor)
        self.placed += len(assignment)
        return assignment

    def create_assigned(self, topic: PlannedTopic) -> Creation:
        creation = super().create_assigned(topic)
        self.begun.append(creation)
        return creation


def broker_configs() -> BrokerConfigs:
    config, _ = load_broker_config({"zookeeper.connect": "zk:1", "log.retention.ms": "9"})
    return BrokerConfigs(MemoryZooKeeper().session(), config, Spawned())


@attrs.define(eq=False)
class Handler:
    """The handler of broker 1 with an empty cache."""

    creator: Creator = attrs.Factory(Creator)
    cache: MetadataCache = attrs.Factory(MetadataCache)
    is_active: bool = True
    denied: frozenset[str] = frozenset()
    """The topics that the controller knows not to exist."""
    deleting: frozenset[str] = frozenset()
    """The topics that wait until all their replicas are deleted."""
    brokers: BrokerConfigs = attrs.Factory(broker_configs)
    deferred: Deferred = attrs.Factory(
        lambda: Deferred(Spawned(), lambda key: None, ThreadPoolExecutor(1))
    )

    def handle(
        self,
        *topics: CreateTopicsRequestTopic,
        validate_only: bool = False,
        version: int = 7,
        sender: Sender | None = None,
        controller: KnownController | None = None,
    ) -> CreateTopicsResponse | Wait:
        request = CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=validate_only)
        outcome = create_topics.handle(
            cast(
                Controller,
                controller or KnownController(self.is_active, self.denied, self.deleting),
            ),
            self.creator,
            self.cache,
            TopicDefaults(1, 1, LogConfig()),
            self.brokers,
            self.deferred,
            request,
            RequestContext(version, "client", "PLAINTEXT", "1", 0, sender=sender),
        )
        return cast(CreateTopicsResponse | Wait, outcome)

    def leads(self, topic: str, *leaders: int) -> None:
        """The metadata of the topic arrives."""
        states = [
            UpdateMetadataRequestPartitionState(
                partition_index=index,
                controller_epoch=1,
                leader=leader,
                leader_epoch=0,
                isr=(1,),
                zk_version=0,
                replicas=(1,),
            )
            for index, leader in enumerate(leaders)
        ]
        self.cache.update(
            UpdateMetadataRequest(
                controller_id=1,
                controller_epoch=1,
                topic_states=[
                    UpdateMetadataRequestTopicState(topic_name=topic, partition_states=states)
                ],
                live_brokers=[UpdateMetadataRequestLiveBroker(id=1)],
            )
        )


def topic(
    name: str, partitions: int = 1, factor: int = 1, **configs: str
) -> CreateTopicsRequestTopic:
    return CreateTopicsRequestTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=(),
        configs=[
            CreateTopicsRequestConfig(name=setting.replace("_", "."), value=value)
            for setting, value in configs.items()
        ],
    )


def codes(response: object) -> dict[str, int]:
    assert isinstance(response, CreateTopicsResponse)
    return {entry.name: entry.error_code for entry in response.topics}


@pytest.fixture
def handler() -> Handler:
    return Handler()


def test_broker_that_is_not_the_controller_says_so_for_each_topic(handler: Handler) -> None:
    handler.is_active = False
    assert codes(handler.handle(topic("a"), topic("b"))) == {
        "a": ErrorCode.NOT_CONTROLLER,
        "b": ErrorCode.NOT_CONTROLLER,
    }
    assert handler.creator.begun == []


def test_created_topic_is_answered_when_all_its_partitions_are_led_here(handler: Handler) -> None:
    wait = handler.handle(topic("t", partitions=2))
    assert isinstance(wait, Wait)
    assert (wait.keys, wait.timeout_ms) == ((("topic", "t"),), 1000)
    assert wait.try_complete(False) is None
    handler.creator.begun[0].result = ErrorCode.NONE
    assert wait.try_complete(False) is None
    handler.leads("t", 1)
    assert wait.try_complete(False) is None
    handler.leads("t", 1, -1)
    assert wait.try_complete(False) is None
    handler.leads("t", 1, 1)
    assert codes(wait.try_complete(False)) == {"t": ErrorCode.NONE}


@pytest.mark.fault("core-R4")
def test_topic_that_only_this_brokers_metadata_shows_can_be_created(handler: Handler) -> None:
    handler.leads("t", 1)
    assert codes(handler.handle(topic("t"))) == {"t": ErrorCode.TOPIC_ALREADY_EXISTS}
    handler.denied = frozenset({"t"})
    assert isinstance(handler.handle(topic("t")), Wait)
    assert [creation.topic.name for creation in handler.creator.begun] == ["t"]


def test_topic_that_is_not_led_in_time_has_timed_out(handler: Handler) -> None:
    wait = handler.handle(topic("t"))
    assert isinstance(wait, Wait)
    handler.creator.begun[0].result = ErrorCode.NONE
    assert codes(wait.try_complete(True)) == {"t": ErrorCode.REQUEST_TIMED_OUT}


def test_topic_that_lost_a_race_is_answered_at_once(handler: Handler) -> None:
    wait = handler.handle(topic("t"))
    assert isinstance(wait, Wait)
    handler.creator.begun[0].result = ErrorCode.TOPIC_ALREADY_EXISTS
    assert codes(wait.try_complete(False)) == {"t": ErrorCode.TOPIC_ALREADY_EXISTS}


def test_bad_topic_fails_alone(handler: Handler) -> None:
    wait = handler.handle(topic("a b"), topic("t"), topic("r", factor=2))
    assert isinstance(wait, Wait)
    assert [entry.topic.name for entry in handler.creator.begun] == ["t"]
    assert codes(wait.try_complete(True)) == {
        "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "r": ErrorCode.INVALID_REPLICATION_FACTOR,
        "t": ErrorCode.REQUEST_TIMED_OUT,
    }


def test_topic_named_twice_is_refused_once(handler: Handler) -> None:
    response = handler.handle(topic("t"), topic("t"))
    assert isinstance(response, CreateTopicsResponse)
    assert [(entry.name, entry.error_code) for entry in response.topics] == [
        ("t", ErrorCode.INVALID_REQUEST)
    ]


def test_topic_that_is_being_created_exists(handler: Handler) -> None:
    handler.handle(topic("t"))
    assert codes(handler.handle(topic("t"))) == {"t": ErrorCode.TOPIC_ALREADY_EXISTS}


def test_topic_of_the_metadata_exists(handler: Handler) -> None:
    handler.leads("t", 1)
    assert codes(handler.handle(topic("t"))) == {"t": ErrorCode.TOPIC_ALREADY_EXISTS}


@pytest.mark.parametrize("validate_only", [False, True])
def test_topic_that_is_being_deleted_exists_though_no_metadata_shows_it(
    handler: Handler, validate_only: bool
) -> None:
    handler.deleting = frozenset({"t"})
    response = handler.handle(topic("t"), validate_only=validate_only)
    assert codes(response) == {"t": ErrorCode.TOPIC_ALREADY_EXISTS}
    assert handler.creator.begun == []


def test_validation_alone_creates_nothing(handler: Handler) -> None:
    response = handler.handle(topic("t"), topic("r", factor=2), validate_only=True)
    assert codes(response) == {
        "r": ErrorCode.INVALID_REPLICATION_FACTOR,
        "t": ErrorCode.NONE,
    }
    assert handler.creator.begun == []


def test_error_has_a_message_and_success_has_none(handler: Handler) -> None:
    response = handler.handle(topic("t"), topic("a b"), validate_only=True)
    assert isinstance(response, CreateTopicsResponse)
    messages = {entry.name: entry.error_message for entry in response.topics}
    assert messages["t"] is None
    assert "a b" in (messages["a b"] or "")


# ---- what a created topic is like (KIP-525)


def test_created_topic_is_described_with_the_sources_of_its_settings(handler: Handler) -> None:
    wait = handler.handle(topic("t", partitions=2, segment_bytes="1000"))
    assert isinstance(wait, Wait)
    handler.creator.begun[0].result = ErrorCode.NONE
    handler.leads("t", 1, 1)
    (created,) = wait.try_complete(False).topics
    assert (created.num_partitions, created.replication_factor) == (2, 1)
    assert created.topic_id == NO_TOPIC_ID
    configs = {config.name: (config.value, config.config_source) for config in created.configs}
    assert configs["segment.bytes"] == ("1000", FROM_TOPIC)
    assert configs["retention.ms"] == ("9", FROM_STATIC_BROKER)
    assert configs["cleanup.policy"] == ("delete", FROM_DEFAULT)
    assert len(configs) == len(declared_settings(LogConfig))


def test_topic_that_is_only_validated_is_described_too(handler: Handler) -> None:
    response = handler.handle(topic("t", partitions=3), validate_only=True)
    assert isinstance(response, CreateTopicsResponse)
    (created,) = response.topics
    assert (created.num_partitions, len(created.configs or ()) > 0) == (3, True)


def test_topic_that_is_not_created_is_not_described(handler: Handler) -> None:
    response = handler.handle(topic("r", factor=2))
    assert isinstance(response, CreateTopicsResponse)
    (failed,) = response.topics
    assert (failed.num_partitions, failed.replication_factor) == (-1, -1)
    assert (failed.configs, failed.topic_config_error_code) == ((), 0)


def test_who_may_not_read_settings_creates_a_topic_and_is_told_none(handler: Handler) -> None:
    response = handler.handle(
        topic("t"),
        validate_only=True,
        sender=AskingSender(
            lambda principal, operation, resource: operation != Operation.DESCRIBE_CONFIGS,
            ANONYMOUS,
        ),
    )
    assert isinstance(response, CreateTopicsResponse)
    (created,) = response.topics
    assert (created.error_code, created.num_partitions, created.configs) == (0, -1, ())
    assert created.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


# ---- what a number of the request costs


@attrs.frozen
class Turn:
    """What had been done when a turn of the loop ended."""

    placed: int
    begun: int


def serve_in_turns(
    handler: Handler, *topics: CreateTopicsRequestTopic, **asked: Any
) -> tuple[Outcome, list[Turn]]:
    """Serve a request until it has a response, or waits for its topics."""

    # Its metadata shows a live broker.
    handler.leads("other", 1)

    async def serve() -> tuple[Outcome, list[Turn]]:
        turns = []
        outcome: Outcome = handler.handle(*topics, **asked)
        while isinstance(outcome, Wait) and outcome.work is not None:
            turns.append(Turn(handler.creator.placed, len(handler.creator.begun)))
            await asyncio.sleep(0)
            outcome = outcome.try_complete(False) or outcome
        turns.append(Turn(handler.creator.placed, len(handler.creator.begun)))
        return outcome, turns

    return asyncio.run(serve())


def most_a_turn(counts: Iterable[int]) -> int:
    before, most = 0, 0
    for count in counts:
        most, before = max(most, count - before), count
    return most


def decoded(response: Outcome, version: int = 7) -> list[Any]:
    """What a client reads of a response whose parts may be encoded already."""
    encoded, holes = encode_response(ApiKey.CREATE_TOPICS, version, 1, response)
    frame = b"".join(read_part(part) for part in split_at_holes(encoded, holes))
    return list(read_response(ApiKey.CREATE_TOPICS, version, frame[4:])[1].topics)


@pytest.mark.fault("strangers-9")
@pytest.mark.parametrize("count", [TOPICS_A_TURN - 1, TOPICS_A_TURN, 7 * TOPICS_A_TURN + 1])
def test_many_topics_are_begun_some_a_turn(handler: Handler, count: int) -> None:
    names = [f"t{number}" for number in range(count)]
    wait, turns = serve_in_turns(handler, *map(topic, names))
    assert isinstance(wait, Wait)
    assert wait.timeout_ms == 1000
    assert most_a_turn(turn.begun for turn in turns) == min(count, TOPICS_A_TURN)
    assert [creation.topic.name for creation in handler.creator.begun] == names


@pytest.mark.fault("strangers-9")
@pytest.mark.parametrize("validate_only", [False, True])
def test_partitions_are_placed_some_a_turn(handler: Handler, validate_only: bool) -> None:
    topics = [topic(f"t{number}", REPLICAS_A_TURN // 4) for number in range(20)]
    _, turns = serve_in_turns(handler, *topics, validate_only=validate_only)
    assert handler.creator.placed == 5 * REPLICAS_A_TURN
    assert most_a_turn(turn.placed for turn in turns) == REPLICAS_A_TURN


@pytest.mark.fault("strangers-9")
def test_partitions_that_the_client_places_count_as_well(handler: Handler) -> None:
    placed = [
        CreateTopicsRequestAssignment(partition_index=index, broker_ids=(1,))
        for index in range(REPLICAS_A_TURN // 4)
    ]
    topics = [
        attrs.evolve(topic(f"t{number}", -1, -1), assignments=placed)  # type: ignore[misc]
        for number in range(20)
    ]
    _, turns = serve_in_turns(handler, *topics)
    assert most_a_turn(turn.begun for turn in turns) == 4


@pytest.mark.fault("strangers-9")
def test_large_topic_is_not_placed_in_the_turn_of_other_requests(handler: Handler) -> None:
    _, turns = serve_in_turns(handler, topic("t", REPLICAS_A_TURN + 1))
    assert turns[0] == Turn(placed=0, begun=0)
    assert turns[-1] == Turn(placed=REPLICAS_A_TURN + 1, begun=1)


@pytest.mark.fault("strangers-9")
def test_topics_beyond_what_one_request_may_ask_for_are_refused_one_by_one(
    handler: Handler,
) -> None:
    topics = [topic(f"t{number}", 70_000) for number in range(9)]
    response, _ = serve_in_turns(handler, *topics, topic("small"), validate_only=True)
    results = {entry.name: (entry.error_code, entry.error_message) for entry in decoded(response)}
    fitting = MAX_NEW_REPLICAS // 70_000
    refusal = (
        ErrorCode.POLICY_VIOLATION,
        "Excessively large number of partitions per request.",
    )
    assert [results[entry.name] for entry in topics] == [
        *[(ErrorCode.NONE, None)] * fitting,
        *[refusal] * (9 - fitting),
    ]
    assert results["small"] == (ErrorCode.NONE, None)
    assert handler.creator.placed == fitting * 70_000 + 1


@pytest.mark.fault("strangers-9")
def test_topics_that_no_node_can_hold_are_refused_before_they_are_placed(
    handler: Handler,
) -> None:
    # Each would have a node of 1.2 MB.
    topics = [topic(f"t{number}", 100_000) for number in range(19)]
    response, _ = serve_in_turns(handler, *topics, validate_only=True)
    assert {entry.error_code for entry in decoded(response)} == {ErrorCode.INVALID_PARTITIONS}
    assert handler.creator.placed == 0


def test_topics_of_more_replicas_than_brokers_are_told_so_however_many_partitions_they_have(
    handler: Handler,
) -> None:
    topics = [topic(f"t{number}", 20, factor=30_000) for number in range(9)]
    response, _ = serve_in_turns(handler, *topics)
    assert {entry.error_code for entry in decoded(response)} == {
        ErrorCode.INVALID_REPLICATION_FACTOR
    }


def test_administrator_creates_many_topics_of_ten_partitions(handler: Handler) -> None:
    names = [f"t{number}" for number in range(1900)]
    wait, _ = serve_in_turns(handler, *(topic(name, 10) for name in names))
    assert isinstance(wait, Wait)
    assert len(wait.keys) == len(handler.creator.begun) == 1900


@pytest.mark.fault("strangers-9")
def test_results_of_many_topics_are_encoded_some_a_turn(handler: Handler) -> None:
    names = [f"t{number}" for number in range(3 * TOPICS_A_TURN)]
    response, _ = serve_in_turns(handler, *map(topic, names), topic("a b"), validate_only=True)
    assert isinstance(response, CreateTopicsResponse)
    # One that fails, and those of three turns.
    assert len(list(response.topics)) == 4
    results = decoded(response)
    assert [entry.name for entry in results] == ["a b", *names]
    assert {len(entry.configs) for entry in results[1:]} == {len(declared_settings(LogConfig))}


def test_controller_that_resigns_between_turns_begins_no_more(handler: Handler) -> None:
    controller = KnownController(True, frozenset(), frozenset())

    async def serve() -> Outcome:
        outcome: Outcome = handler.handle(
            *(topic(f"t{number}") for number in range(2 * TOPICS_A_TURN)), controller=controller
        )
        controller.is_active = False
        while isinstance(outcome, Wait) and outcome.work is not None:
            await asyncio.sleep(0)
            outcome = outcome.try_complete(False) or outcome
        return outcome

    wait = asyncio.run(serve())
    assert isinstance(wait, Wait)
    assert len(handler.creator.begun) == TOPICS_A_TURN
    assert len(wait.keys) == TOPICS_A_TURN


def test_request_that_has_no_turns_in_time_has_timed_out(handler: Handler) -> None:
    async def serve() -> Outcome:
        wait = handler.handle(topic("t", REPLICAS_A_TURN + 1), topic("u"))
        assert isinstance(wait, Wait)
        response: Outcome = wait.try_complete(True)
        await asyncio.sleep(0)
        return response

    assert codes(asyncio.run(serve())) == {
        "t": ErrorCode.REQUEST_TIMED_OUT,
        "u": ErrorCode.REQUEST_TIMED_OUT,
    }
    # Nobody waits for them any more.
    assert handler.creator.begun == []
