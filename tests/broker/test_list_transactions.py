"""ListTransactions and DescribeTransactions of more ids than one turn of the loop takes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from broker.handlers import describe_transactions, list_transactions
from broker.network.dispatch import Close
from broker.network.purgatory import Wait
from groups.runtime.memory_partition_log import MemoryPartitionLog
from groups.transactions.coordinator import TransactionCoordinator
from groups.transactions.state import EMPTY, ONGOING, Transaction
from protocol.api_key import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.header import encode_response, read_response
from protocol.messages.describe_transactions import DescribeTransactionsRequest
from protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import NOW_MS, Replicas, context
from tests.groups.transactions.test_coordinator import IN_10, IN_31, Stage
from tests.stage.clock import VirtualTimeLoop

PARTITION = 10
NAMES = [f"id-{number}" for number in range(2 * list_transactions.IDS_A_TURN + 1)]


@pytest.fixture
def stage() -> Iterator[Stage]:
    """The leader of one partition, with an open transaction in every other id."""
    loop = VirtualTimeLoop()
    stage = Stage(MemoryPartitionLog(), loop).lead(PARTITION)
    shard = stage.coordinator.runtime.serving(PARTITION).shard
    shard.replay(
        shard.encode(
            [
                (name, Transaction(number, 0, 1000, (EMPTY, ONGOING)[number % 2], start_ms=NOW_MS))
                for number, name in enumerate(NAMES)
            ]
        )
    )
    yield stage
    loop.close()


def ask(stage: Stage, request: Any, handler: Any) -> Any:
    async def run() -> Any:
        replicas = Replicas()
        outcome = handler(stage.coordinator, replicas.deferred, 1000, request, context(1))
        assert isinstance(outcome, Wait)
        return await replicas.ended(outcome)

    return stage.loop.run_until_complete(run())


def as_sent(response: ListTransactionsResponse) -> ListTransactionsResponse:
    frame, _ = encode_response(ApiKey.LIST_TRANSACTIONS, 1, 1, response)
    _, read = read_response(ApiKey.LIST_TRANSACTIONS, 1, frame[4:])
    assert isinstance(read, ListTransactionsResponse)
    return read


def test_all_ids_are_listed_in_several_turns(stage: Stage) -> None:
    response = as_sent(ask(stage, ListTransactionsRequest(), list_transactions.handle))
    assert [state.transactional_id for state in response.transaction_states] == NAMES


def test_filters_hold_in_each_turn(stage: Stage) -> None:
    request = ListTransactionsRequest(state_filters=["Ongoing", "Odd"])
    response = as_sent(ask(stage, request, list_transactions.handle))
    assert [state.transactional_id for state in response.transaction_states] == NAMES[1::2]
    assert list(response.unknown_state_filters) == ["Odd"]


def test_ids_may_come_and_go_between_two_turns(stage: Stage) -> None:
    shard = stage.coordinator.runtime.serving(PARTITION).shard
    ids = stage.coordinator.transactions()
    next(ids)
    shard.replay(shard.encode([(NAMES[1], None), ("new", Transaction(1, 0, 1000))]))
    assert [name for name, _ in ids] == NAMES[1:]


def test_a_partition_that_is_loaded_refuses_the_whole_list(stage: Stage) -> None:
    stage.lead(PARTITION, 31).init(IN_31)
    # The next leader loads it in the turns that follow.
    other = Stage(stage.log, stage.loop)
    other.coordinator.on_leadership({31}, set())
    with pytest.raises(ApiError) as refused:
        ask(other, ListTransactionsRequest(), list_transactions.handle)
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_ids_that_are_asked_for_are_described_in_several_turns(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(describe_transactions, "A_TURN", 1)
    request = DescribeTransactionsRequest(transactional_ids=["txn-1", "other", "txn-1"])
    response = ask(stage, request, describe_transactions.handle)
    codes = [state.error_code for state in response.transaction_states]
    assert codes == [105, 16, 105]


@pytest.mark.fault("strangers-8")
def test_transactions_of_many_partitions_are_few_a_turn_and_have_a_bound(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = frozenset(TopicPartition("t", number) for number in range(600))
    shard = stage.coordinator.runtime.serving(PARTITION).shard
    large = Transaction(5, 0, 1000, ONGOING, partitions, start_ms=NOW_MS)
    shard.replay(shard.encode([(IN_10, large)]))
    described: list[str] = []
    describe = TransactionCoordinator.describe

    def noting(self: TransactionCoordinator, name: str) -> Transaction:
        described.append(name)
        return describe(self, name)

    async def ask_often() -> tuple[list[int], Any]:
        request = DescribeTransactionsRequest(transactional_ids=[IN_10] * 7)
        replicas = Replicas()
        wait = describe_transactions.handle(
            stage.coordinator, replicas.deferred, 1000, request, context(0)
        )
        assert isinstance(wait, Wait)
        seen = [0, len(described)]
        while (response := wait.try_complete(False)) is None:
            seen.append(len(described))
            await asyncio.sleep(0)
        return [after - before for before, after in pairwise(seen)], response

    monkeypatch.setattr(TransactionCoordinator, "describe", noting)
    in_turns, response = stage.loop.run_until_complete(ask_often())
    assert max(in_turns) == 2
    assert [len(state.topics[0].partitions) for state in response.transaction_states] == [600] * 7

    monkeypatch.setattr(describe_transactions, "MOST", 7 * 601 - 1)
    _, response = stage.loop.run_until_complete(ask_often())
    assert isinstance(response, Close)
