"""Which transactions hang: by what leaders and coordinators say of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from clients.admin import (
    Admin,
    HangingTransactions,
    OpenTransaction,
    ProducerState,
    find_hanging_transactions,
)
from clients.admin.hanging_transactions import open_too_long
from clients.errors import BrokerError, UnsupportedApi
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.internal_topics import TRANSACTIONS_TOPIC
from protocol.messages import list_transactions
from protocol.messages.describe_transactions import DescribeTransactionsResponseState
from protocol.topic_partition import TopicPartition
from tests.clients.admin.running_admin import P0, P1, P2, with_admin
from tests.clients.admin.transaction_stage import (
    coordinate,
    know_producers,
    speak,
    transaction,
)
from tests.clients.scripted_broker import ScriptedBroker

MAX_MS = 900_000
NOW_MS = 10_000_000
OLD_MS = NOW_MS - MAX_MS - 1
OPEN = ProducerState(7, 3, 41, OLD_MS, coordinator_epoch=5, transaction_start_offset=99)

Producers = Mapping[TopicPartition, list[ProducerState] | ErrorCode]


def find(
    *looks: Producers, transactions: Sequence[DescribeTransactionsResponseState] = ()
) -> HangingTransactions:
    """Search t, whose leaders see each time they are asked the next of `looks`."""

    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> Any:
        left = list(looks)
        for broker in (broker_1, broker_2):
            speak(broker)
            coordinate(broker, {})
            know_producers(broker, {})
            broker.answers[ApiKey.FIND_COORDINATOR] = broker_1.answers[ApiKey.FIND_COORDINATOR]
        coordinate(broker_1, {state.transactional_id: state for state in transactions})

        def describe(request: Any) -> Any:
            know_producers(broker_1, left.pop(0) if len(left) > 1 else left[0])
            response = broker_1.answers[ApiKey.DESCRIBE_PRODUCERS](request)
            broker_1.answers[ApiKey.DESCRIBE_PRODUCERS] = describe
            return response

        broker_1.answers[ApiKey.DESCRIBE_PRODUCERS] = describe
        return await find_hanging_transactions(admin, [P0, P1], now_ms=NOW_MS)

    result = with_admin(scenario)
    assert isinstance(result, HangingTransactions)
    return result


def partitions_of(found: HangingTransactions) -> list[TopicPartition]:
    return [transaction.partition for transaction in found.transactions]


def test_what_no_transactional_id_has_open_hangs() -> None:
    found = find({P0: [OPEN], P1: [ProducerState(8, 0, 0, OLD_MS)]})
    assert found == HangingTransactions((OpenTransaction(P0, OPEN),), {})


def test_what_may_still_be_open_is_not_looked_at() -> None:
    young = ProducerState(8, 0, 0, OLD_MS + 1, transaction_start_offset=5)
    assert open_too_long({P0: (young, OPEN)}, NOW_MS - MAX_MS) == [OpenTransaction(P0, OPEN)]


def test_what_its_coordinator_will_end_does_not_hang() -> None:
    producers: Producers = {P0: [OPEN], P1: [OPEN]}
    found = find(producers, transactions=[transaction("a", 7, P0)])
    assert partitions_of(found) == [P1]
    last = found.transactions[0].last
    assert last is not None
    assert last.transactional_id == "a"


@pytest.mark.parametrize(
    "state",
    [
        # Its transaction has ended: the partitions that had a marker have left it.
        transaction("a", 7, state="CompleteAbort"),
        # The id has another producer id by now.
        transaction("a", 9, P0),
    ],
)
def test_what_an_id_has_behind_it_hangs(state: DescribeTransactionsResponseState) -> None:
    assert partitions_of(find({P0: [OPEN]}, transactions=[state])) == [P0]


def test_what_was_ended_during_the_search_does_not_hang() -> None:
    ended = ProducerState(7, 3, 41, OLD_MS, coordinator_epoch=6)
    next_one = ProducerState(7, 3, 41, OLD_MS, transaction_start_offset=120)
    assert find({P0: [OPEN], P1: [OPEN]}, {P0: [ended], P1: [next_one]}) == HangingTransactions(
        (), {}
    )


def test_a_partition_that_cannot_be_judged_is_a_failure_and_the_others_are_judged() -> None:
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    found = find({P0: [OPEN], P1: refused})
    assert partitions_of(found) == [P0]
    assert str(found.failures[P1]) == ("TOPIC_AUTHORIZATION_FAILED: t-1; ask for READ on the topic")

    # An id that may not be described may have it open.
    denied = transaction("a", 7, error=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    found = find({P0: [OPEN]}, transactions=[denied])
    assert not found.transactions
    assert found.failures.keys() == {P0}

    # Nor may one be called hanging whose leader does not say again that it is open.
    found = find({P0: [OPEN], P1: [OPEN]}, {P0: [OPEN], P1: refused})
    assert (partitions_of(found), found.failures.keys()) == ([P0], {P1})


def test_nothing_is_called_hanging_while_some_ids_have_no_coordinator() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        for broker in (broker_1, broker_2):
            speak(broker)
            know_producers(broker, {P2: [OPEN]})
            coordinate(broker, {})
            broker.topics[TRANSACTIONS_TOPIC] = 2
            broker.leaders[TopicPartition(TRANSACTIONS_TOPIC, 0)] = 1
            broker.leaders[TopicPartition(TRANSACTIONS_TOPIC, 1)] = -1
        with pytest.raises(BrokerError, match="COORDINATOR_NOT_AVAILABLE: __transaction_state-1 "):
            await find_hanging_transactions(admin, [P2], now_ms=NOW_MS)

        for broker in (broker_1, broker_2):
            broker.leaders[TopicPartition(TRANSACTIONS_TOPIC, 1)] = 2
        found = await find_hanging_transactions(admin, [P2], now_ms=NOW_MS)
        assert partitions_of(found) == [P2]

    with_admin(scenario)


def test_nothing_is_called_hanging_while_a_coordinator_cannot_be_asked() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        for broker in (broker_1, broker_2):
            speak(broker)
            know_producers(broker, {P2: [OPEN]})
            coordinate(broker, {})
        broker_1.answers[ApiKey.LIST_TRANSACTIONS] = lambda request: (
            list_transactions.error_response(request, ErrorCode.UNKNOWN_SERVER_ERROR)
        )
        with pytest.raises(BrokerError, match="UNKNOWN_SERVER_ERROR: transactions of broker 1"):
            await find_hanging_transactions(admin, [P2], now_ms=NOW_MS)

        for broker in (broker_1, broker_2):
            speak(broker, {ApiKey.DESCRIBE_PRODUCERS: 0})
        async with Admin(broker_1.bootstrap) as another:
            with pytest.raises(UnsupportedApi, match="too old to list transactions"):
                await find_hanging_transactions(another, [P2], now_ms=NOW_MS)

    with_admin(scenario)
