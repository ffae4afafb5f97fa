"""Questions to coordinators of transactions, and what their responses mean for producers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import attrs
import pytest

from broker.coordinators.broker_connection import BrokerConnections
from broker.coordinators.transaction_verifier import TransactionVerifier, judge
from broker.replication.verification import Verdict
from clients.transport.connection import ConnectionFailed, UnsupportedApi
from protocol.errors import ErrorCode
from protocol.internal_topics import TRANSACTIONS_TOPIC
from protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseState,
    DescribeTransactionsResponseTopic,
)
from protocol.topic_partition import TopicPartition
from tests.stage.clock import run_in_virtual_time

HERE, THERE = 1, 2


def verdict(name: str = "x", partition: int = 0) -> Verdict:
    return Verdict(name, TopicPartition("t", partition), 4000, 3, 0, 0)


def described(name: str = "x", **fields: Any) -> DescribeTransactionsResponseState:
    """An open transaction of producer 4000 with t-0 and t-2."""
    topic = DescribeTransactionsResponseTopic(topic="t", partitions=[0, 2])
    given = {
        "transaction_state": "Ongoing",
        "producer_id": 4000,
        "producer_epoch": 3,
        "topics": [topic],
    }
    return DescribeTransactionsResponseState(transactional_id=name, **given | fields)


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (described(), ErrorCode.NONE),
        (described(topics=[]), ErrorCode.INVALID_TXN_STATE),
        (described(transaction_state="CompleteAbort", topics=[]), ErrorCode.INVALID_TXN_STATE),
        (described(transaction_state="PrepareAbort"), ErrorCode.NOT_ENOUGH_REPLICAS),
        (described(transaction_state="PrepareCommit"), ErrorCode.NOT_ENOUGH_REPLICAS),
        (described(producer_id=4001), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (described(producer_epoch=4), ErrorCode.INVALID_PRODUCER_EPOCH),
        (described(error_code=105), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (described(error_code=14), ErrorCode.NOT_ENOUGH_REPLICAS),
        (described(error_code=15), ErrorCode.NOT_ENOUGH_REPLICAS),
        (described(error_code=16), ErrorCode.NOT_ENOUGH_REPLICAS),
        (described(error_code=53), ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_a_coordinators_response_becomes_the_error_of_a_producer(
    state: DescribeTransactionsResponseState, error: ErrorCode
) -> None:
    assert judge(state, verdict()) is error


def test_another_partition_of_the_topic_is_not_in_the_transaction() -> None:
    assert judge(described(), verdict(partition=1)) is ErrorCode.INVALID_TXN_STATE


@attrs.define(eq=False)
class Stage:
    """A verifier on broker 1, and brokers that respond after a moment or fail."""

    leader: int | None = THERE
    partitions: int = 1
    failure: Exception | None = None
    asked: list[tuple[int, list[str]]] = attrs.field(factory=list)
    connected: list[int] = attrs.field(factory=list)
    touched: list[Any] = attrs.field(factory=list)
    verifier: TransactionVerifier = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.verifier = TransactionVerifier(
            self._leader_of,
            lambda: self.partitions,
            BrokerConnections(self._connect, HERE, Asked(self, HERE)),
            asyncio.ensure_future,
            self.touched.append,
        )

    def _leader_of(self, partition: TopicPartition) -> int | None:
        assert partition == TopicPartition(TRANSACTIONS_TOPIC, 0)
        return self.leader

    async def _connect(self, broker_id: int) -> Asked:
        self.connected.append(broker_id)
        return Asked(self, broker_id)

    def ask(self, verdicts: Iterable[Verdict], *, seconds: float = 1) -> list[ErrorCode | None]:
        """Ask all in one turn, and wait."""
        given = list(verdicts)

        async def run() -> None:
            for verdict in given:
                self.verifier.ask(verdict)
            await asyncio.sleep(seconds)

        run_in_virtual_time(run())
        return [verdict.error for verdict in given]


@attrs.define(eq=False)
class Asked:
    """A coordinator in whose transactions t-0 is."""

    stage: Stage
    broker_id: int
    closed: bool = False

    async def call(self, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        self.stage.asked.append((self.broker_id, list(request.transactional_ids)))
        await asyncio.sleep(0.01)
        if self.stage.failure is not None:
            raise self.stage.failure
        return DescribeTransactionsResponse(
            transaction_states=[described(name) for name in request.transactional_ids]
        )


@pytest.mark.parametrize("leader", [HERE, THERE])
def test_questions_of_one_turn_share_a_request(leader: int) -> None:
    stage = Stage(leader)
    verdicts = [verdict("x"), verdict("x", 1), verdict("y")]
    assert stage.ask(verdicts) == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.NONE,
    ]
    assert stage.asked == [(leader, ["x", "y"])]
    assert stage.connected == ([] if leader == HERE else [THERE])
    assert stage.touched == verdicts


def test_a_broker_is_asked_again_when_it_has_responded() -> None:
    stage = Stage()
    stage.ask([verdict("x")])
    assert stage.ask([verdict("y")]) == [ErrorCode.NONE]
    assert stage.asked == [(THERE, ["x"]), (THERE, ["y"])]
    assert stage.connected == [THERE]


@pytest.mark.parametrize(("leader", "partitions"), [(-1, 1), (None, 1), (THERE, 0)])
def test_without_a_coordinator_a_producer_tries_again(leader: int | None, partitions: int) -> None:
    stage = Stage(leader, partitions)
    assert stage.ask([verdict()]) == [ErrorCode.NOT_ENOUGH_REPLICAS]


def test_a_coordinator_that_fails_has_producers_try_again_over_a_new_connection() -> None:
    stage = Stage(failure=ConnectionFailed("broker", 1, "it was killed"))
    assert stage.ask([verdict()]) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    stage.failure = None
    assert stage.ask([verdict()]) == [ErrorCode.NONE]
    assert stage.connected == [THERE, THERE]


def test_a_coordinator_before_3_0_keeps_nobody_from_writing() -> None:
    stage = Stage(failure=UnsupportedApi("no version of DESCRIBE_TRANSACTIONS"))
    assert stage.ask([verdict()]) == [ErrorCode.NONE]
