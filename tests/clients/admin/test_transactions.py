"""The admin client's calls about transactions: whom it asks, and what it makes of the responses."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from clients.admin import Admin, FencedProducer, ProducerState
from clients.errors import AbortInDoubt, BrokerError, UnsupportedApi
from protocol.api_key import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages import init_producer_id, list_transactions
from protocol.messages.find_coordinator import (
    GROUP_KEY,
    TRANSACTION_KEY,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.topic_partition import TopicPartition
from tests.clients.admin.running_admin import P0, P1, P2, with_admin
from tests.clients.admin.transaction_stage import (
    NEWEST,
    coordinate,
    know_producers,
    speak,
    take_markers,
    transaction,
)
from tests.clients.scripted_broker import HANG_UP, ScriptedBroker

PRODUCER = ProducerState(7, 3, 41, 1_000, coordinator_epoch=5, transaction_start_offset=99)
IDLE = ProducerState(8, 0, 0, 2_000)

Scenario = Callable[[Admin, ScriptedBroker, ScriptedBroker], Awaitable[Any]]


def with_transactions(scenario: Scenario) -> None:
    """Run a scenario; broker 1 coordinates id a, broker 2 id b and, as it says, all others."""

    async def prepared(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        def find(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
            is_first = request.key == "a" and request.key_type == TRANSACTION_KEY
            broker = broker_1 if is_first else broker_2
            return FindCoordinatorResponse(
                error_code=0, node_id=broker.node_id, host="127.0.0.1", port=broker.port
            )

        coordinate(broker_1, {"a": transaction("a", 7, P0, P2)})
        coordinate(broker_2, {"b": transaction("b", 8, state="Empty", start_ms=-1)})
        for broker in (broker_1, broker_2):
            speak(broker)
            take_markers(broker)
            know_producers(broker, {P0: [PRODUCER], P1: [], P2: [IDLE]})
            broker.answers[ApiKey.FIND_COORDINATOR] = find
        await scenario(admin, broker_1, broker_2)

    with_admin(prepared)


# ---- coordinators


def test_ids_of_all_coordinators_are_listed_with_the_filters_of_the_caller() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        listings = await admin.list_transactions(
            states=["Ongoing", "Empty"], producer_ids=[8, 7], min_duration_ms=500
        )
        assert [
            (listing.transactional_id, listing.producer_id, listing.state) for listing in listings
        ] == [("a", 7, "Ongoing"), ("b", 8, "Empty")]
        assert [listing.coordinator.node_id for listing in listings] == [1, 2]
        (request,) = broker_1.asked(ApiKey.LIST_TRANSACTIONS)
        assert list(request.state_filters) == ["Ongoing", "Empty"]
        assert (list(request.producer_id_filters), request.duration_filter) == ([8, 7], 500)

    with_transactions(scenario)


def test_ids_are_not_listed_while_those_of_one_broker_would_be_missing() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        def refuse(request: Any) -> Any:
            return list_transactions.error_response(request, ErrorCode.UNKNOWN_SERVER_ERROR)

        broker_2.answers[ApiKey.LIST_TRANSACTIONS] = refuse
        with pytest.raises(BrokerError, match="UNKNOWN_SERVER_ERROR: transactions of broker 2"):
            await admin.list_transactions()

    with_transactions(scenario)


def test_a_state_that_kafka_does_not_have_is_refused_before_anybody_is_asked() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        with pytest.raises(ValueError, match="Ongo: not a state of transactions: Empty, Ongoing"):
            await admin.list_transactions(states=["Ongo"])
        assert not broker_1.requests

    with_transactions(scenario)


def test_transactions_are_described_by_their_coordinators() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        described = await admin.describe_transactions(["a", "b"])
        first, second = described["a"], described["b"]
        assert first.coordinator.node_id == 1
        assert (first.state, first.producer_id, first.producer_epoch) == ("Ongoing", 7, 3)
        assert (first.timeout_ms, first.start_ms) == (60_000, 1_000)
        assert first.partitions == {P0, P2}
        assert (second.coordinator.node_id, second.start_ms) == (2, None)

    with_transactions(scenario)


def test_an_unknown_id_has_its_error_and_the_others_their_transactions() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        described = await admin.describe_each_transaction(["a", "x"])
        assert not isinstance(described["a"], ApiError)
        assert str(described["x"]) == "TRANSACTIONAL_ID_NOT_FOUND: transactional id x"
        with pytest.raises(BrokerError, match="TRANSACTIONAL_ID_NOT_FOUND"):
            await admin.describe_transactions(["a", "x"])

    with_transactions(scenario)


def test_a_group_and_a_transactional_id_of_one_name_have_their_own_coordinators() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        assert (await admin.cluster.coordinator("a")).node_id == 2
        await admin.describe_transactions(["a"])
        assert (await admin.cluster.coordinator("a")).node_id == 2
        asked = broker_1.asked(ApiKey.FIND_COORDINATOR) + broker_2.asked(ApiKey.FIND_COORDINATOR)
        assert [request.key_type for request in asked] == [GROUP_KEY, TRANSACTION_KEY]

    with_transactions(scenario)


def test_all_ids_whose_coordinator_has_moved_are_looked_for_at_once() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        names = [f"id-{number}" for number in range(20)]
        refused = {name: transaction(name, 7, error=ErrorCode.NOT_COORDINATOR) for name in names}
        coordinate(broker_1, {name: transaction(name, 7) for name in names})
        coordinate(broker_2, refused)

        def find_the_next_one(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
            is_asked_again = broker_2.asked(ApiKey.DESCRIBE_TRANSACTIONS)
            broker = broker_1 if is_asked_again else broker_2
            return FindCoordinatorResponse(
                error_code=0, node_id=broker.node_id, host="127.0.0.1", port=broker.port
            )

        for broker in (broker_1, broker_2):
            broker.answers[ApiKey.FIND_COORDINATOR] = find_the_next_one
        described = await admin.describe_transactions(names)
        assert described.keys() == set(names)
        assert len(broker_2.asked(ApiKey.DESCRIBE_TRANSACTIONS)) == 1
        assert len(broker_1.asked(ApiKey.DESCRIBE_TRANSACTIONS)) == 1

    with_transactions(scenario)


def test_producers_are_fenced_once_what_they_have_open_is_ended() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        def init(request: InitProducerIdRequest) -> InitProducerIdResponse:
            if len(broker_1.asked(ApiKey.INIT_PRODUCER_ID)) == 1:
                return init_producer_id.error_response(request, ErrorCode.CONCURRENT_TRANSACTIONS)
            return InitProducerIdResponse(producer_id=7, producer_epoch=4)

        def refuse(request: InitProducerIdRequest) -> InitProducerIdResponse:
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return init_producer_id.error_response(request, code)

        broker_1.answers[ApiKey.INIT_PRODUCER_ID] = init
        broker_2.answers[ApiKey.INIT_PRODUCER_ID] = refuse
        fenced = await admin.fence_producers(["a", "b"])
        assert fenced["a"] == FencedProducer(7, 4)
        assert str(fenced["b"]) == (
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED: transactional id b; "
            "ask for WRITE on the transactional id"
        )
        first, second = broker_1.asked(ApiKey.INIT_PRODUCER_ID)
        assert first == second
        assert (first.producer_id, first.producer_epoch) == (-1, -1)

    with_transactions(scenario)


# ---- leaders


def test_producers_are_described_by_the_leaders_of_their_partitions() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        described = await admin.describe_producers([P0, P1, P2])
        assert described == {P0: (PRODUCER,), P1: (), P2: (IDLE,)}
        (request,) = broker_1.asked(ApiKey.DESCRIBE_PRODUCERS)
        assert list(request.topics[0].partition_indexes) == [0, 1]
        (request,) = broker_2.asked(ApiKey.DESCRIBE_PRODUCERS)
        assert list(request.topics[0].partition_indexes) == [2]

    with_transactions(scenario)


def test_only_the_partition_whose_leader_has_moved_is_asked_about_again() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        def move() -> None:
            know_producers(broker_2, {P2: ErrorCode.NOT_LEADER_OR_FOLLOWER})
            moved = broker_2.answers[ApiKey.DESCRIBE_PRODUCERS]

            def answer(request: Any) -> Any:
                broker_1.leaders[P2] = broker_2.leaders[P2] = 1
                return moved(request)

            broker_2.answers[ApiKey.DESCRIBE_PRODUCERS] = answer

        move()
        assert (await admin.describe_producers([P0, P2]))[P2] == (IDLE,)
        again = broker_1.asked(ApiKey.DESCRIBE_PRODUCERS)[1]
        assert list(again.topics[0].partition_indexes) == [2]

    with_transactions(scenario)


def test_one_replica_is_asked_in_place_of_the_leaders_and_not_waited_for() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        know_producers(broker_2, {P0: [PRODUCER], P1: ErrorCode.NOT_LEADER_OR_FOLLOWER})
        described = await admin.producers_of_each_partition([P0, P1], broker=2)
        assert described[P0] == (PRODUCER,)
        assert str(described[P1]).startswith("NOT_LEADER_OR_FOLLOWER: t-1")
        assert not broker_1.asked(ApiKey.DESCRIBE_PRODUCERS)
        assert len(broker_2.asked(ApiKey.DESCRIBE_PRODUCERS)) == 1
        with pytest.raises(BrokerError, match="BROKER_NOT_AVAILABLE: broker 9"):
            await admin.describe_producers([P0], broker=9)

    with_transactions(scenario)


def test_a_partition_that_nobody_knows_has_its_error_soon() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        nowhere, beyond = TopicPartition("nope", 0), TopicPartition("t", 3)
        described = await admin.producers_of_each_partition([P0, nowhere, beyond])
        assert described[P0] == (PRODUCER,)
        assert str(described[nowhere]) == "UNKNOWN_TOPIC_OR_PARTITION: nope-0"
        assert str(described[beyond]) == "UNKNOWN_TOPIC_OR_PARTITION: t-3"

    with_transactions(scenario)


# ---- abort


def test_the_leader_is_given_an_abort_marker_with_the_epochs_of_the_producer() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        await admin.abort_transaction(P2, 7, 3, 5)
        await admin.abort_transaction(P2, 7, 3)
        markers = [r.markers[0] for r in broker_2.asked(ApiKey.WRITE_TXN_MARKERS)]
        assert [marker.coordinator_epoch for marker in markers] == [5, 0]
        marker = markers[0]
        assert (marker.producer_id, marker.producer_epoch) == (7, 3)
        assert not marker.transaction_result
        assert [(topic.name, list(topic.partition_indexes)) for topic in marker.topics] == [
            ("t", [2])
        ]

    with_transactions(scenario)


def test_a_marker_that_was_not_written_goes_to_the_next_leader() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        take_markers(broker_2, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        refuse = broker_2.answers[ApiKey.WRITE_TXN_MARKERS]

        def move(request: Any) -> Any:
            broker_1.leaders[P2] = broker_2.leaders[P2] = 1
            return refuse(request)

        broker_2.answers[ApiKey.WRITE_TXN_MARKERS] = move
        await admin.abort_transaction(P2, 7, 3)
        assert len(broker_1.asked(ApiKey.WRITE_TXN_MARKERS)) == 1

    with_transactions(scenario)


@pytest.mark.parametrize("code", [None, ErrorCode.REQUEST_TIMED_OUT])
def test_a_marker_that_may_have_been_written_is_not_sent_again(code: ErrorCode | None) -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        if code is None:
            broker_2.answers[ApiKey.WRITE_TXN_MARKERS] = lambda request: HANG_UP
        else:
            take_markers(broker_2, code)
        with pytest.raises(AbortInDoubt, match=r"t-2: it is not known .* producer 7 was aborted"):
            await admin.abort_transaction(P2, 7, 3)
        assert len(broker_2.asked(ApiKey.WRITE_TXN_MARKERS)) == 1

    with_transactions(scenario)


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, "describe its producers again"),
        (ErrorCode.TRANSACTION_COORDINATOR_FENCED, "give the coordinator epoch that it shows"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "ask for CLUSTER_ACTION"),
    ],
)
def test_a_refused_abort_says_what_to_do(code: ErrorCode, advice: str) -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        take_markers(broker_2, code)
        with pytest.raises(BrokerError, match=f"{code.name}: t-2, producer 7 epoch 3.*{advice}"):
            await admin.abort_transaction(P2, 7, 3)

    with_transactions(scenario)


# ---- brokers that are too old


@pytest.mark.parametrize(
    ("lacks", "call", "sentence"),
    [
        (
            ApiKey.LIST_TRANSACTIONS,
            lambda admin: admin.list_transactions(),
            "is too old to list transactions: that needs Kafka 3.0 or later",
        ),
        (
            ApiKey.DESCRIBE_TRANSACTIONS,
            lambda admin: admin.describe_transactions(["a"]),
            "is too old to describe transactions: that needs Kafka 3.0 or later",
        ),
        (
            ApiKey.DESCRIBE_PRODUCERS,
            lambda admin: admin.describe_producers([P0]),
            "is too old to describe producers: that needs Kafka 2.8 or later",
        ),
        (
            ApiKey.WRITE_TXN_MARKERS,
            lambda admin: admin.abort_transaction(P0, 7, 3),
            "is too old to abort a transaction: that needs Kafka 0.11 or later",
        ),
    ],
)
def test_a_broker_that_is_too_old_is_named_in_one_sentence(
    lacks: ApiKey, call: Callable[[Admin], Awaitable[Any]], sentence: str
) -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        for broker in (broker_1, broker_2):
            speak(broker, {key: version for key, version in NEWEST.items() if key != lacks})
        with pytest.raises(UnsupportedApi, match=sentence):
            await call(admin)

    with_transactions(scenario)


def test_a_duration_is_not_left_out_for_a_broker_that_does_not_know_it() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        for broker in (broker_1, broker_2):
            speak(broker, {**NEWEST, ApiKey.LIST_TRANSACTIONS: 0})
        assert len(await admin.list_transactions()) == 2
        with pytest.raises(UnsupportedApi, match=r"by their duration: that needs Kafka 3\.8"):
            await admin.list_transactions(min_duration_ms=0)

    with_transactions(scenario)
