"""Ask the coordinators of transactions whether partitions belong to them (KIP-890, part 1).

The question is DescribeTransactions, which our coordinators answer, and Kafka's from 3.0 on. A
broker is sent one request at a time, with all that was asked meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Hashable, Sequence
from typing import Any

import attrs

from broker.coordinators.broker_connection import BrokerConnections
from broker.replication.verification import Verdict
from clients.transport.connection import ConnectionFailed, UnsupportedApi
from groups.transactions.state import DECIDED
from offsets.topic import partition_for
from protocol.errors import ErrorCode, KgroupError
from protocol.internal_topics import TRANSACTIONS_TOPIC
from protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseState,
)
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

TRY_AGAIN = ErrorCode.NOT_ENOUGH_REPLICAS
"""The error after which each producer tries again, for as long as there is no verdict."""

_BEING_ENDED = frozenset(state.title for state in DECIDED)

_ERRORS = {
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: TRY_AGAIN,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: TRY_AGAIN,
    ErrorCode.NOT_COORDINATOR: TRY_AGAIN,
}
"""The coordinator's error -> the producer's. Of others a producer learns nothing."""


def judge(state: DescribeTransactionsResponseState, verdict: Verdict) -> ErrorCode:
    """Return the error for the producer of a verdict, NONE if it may write to the partition."""
    if state.error_code:
        return _ERRORS.get(ErrorCode.of(state.error_code), ErrorCode.INVALID_TXN_STATE)
    if state.producer_id != verdict.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if state.producer_epoch != verdict.epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    # The transaction before it is being ended, so the partition is still in that one.
    if state.transaction_state in _BEING_ENDED:
        return TRY_AGAIN

    topic, partition = verdict.topic_partition
    is_added = any(partition in of.partitions for of in state.topics if of.topic == topic)
    return ErrorCode.NONE if is_added else ErrorCode.INVALID_TXN_STATE


@attrs.define(eq=False)
class TransactionVerifier:
    """The questions of one broker.

    `leader_of(partition)` returns the id of its leader, a negative one or None without any.
    `num_partitions()` is that of `__transaction_state`. `touch` wakes those who wait for a verdict.
    """

    leader_of: Callable[[TopicPartition], int | None]
    num_partitions: Callable[[], int]
    connections: BrokerConnections
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    touch: Callable[[Hashable], None]
    _queues: dict[int, list[Verdict]] = attrs.field(factory=dict)
    """Broker id -> what it is to be asked. A broker without an asking task has no queue."""

    def ask(self, verdict: Verdict) -> None:
        """Have the error of a verdict set."""
        partitions = self.num_partitions()
        coordinator: int | None = None
        if partitions:
            number = partition_for(verdict.transactional_id, partitions)
            coordinator = self.leader_of(TopicPartition(TRANSACTIONS_TOPIC, number))
        if coordinator is None or coordinator < 0:
            verdict.end(TRY_AGAIN)
            return

        queue = self._queues.get(coordinator)
        if queue is None:
            queue = self._queues[coordinator] = []
            self.spawn(self._ask_queue(coordinator))
        queue.append(verdict)

    async def _ask_queue(self, broker_id: int) -> None:
        """Ask a broker all that is queued for it, and what is queued meanwhile."""
        try:
            while verdicts := self._queues[broker_id]:
                self._queues[broker_id] = []
                await self._ask(broker_id, verdicts)
                for verdict in verdicts:
                    self.touch(verdict)
        finally:
            # Nothing is left, or the broker stops.
            del self._queues[broker_id]

    async def _ask(self, broker_id: int, verdicts: Sequence[Verdict]) -> None:
        """Set the error of each verdict."""
        names = list(dict.fromkeys(verdict.transactional_id for verdict in verdicts))
        states: dict[str, DescribeTransactionsResponseState] = {}
        otherwise = TRY_AGAIN
        try:
            connection = await self.connections.get(broker_id)
            response: DescribeTransactionsResponse = await connection.call(
                DescribeTransactionsRequest(transactional_ids=names)
            )
            states = {state.transactional_id: state for state in response.transaction_states}
        except UnsupportedApi as error:
            # As with Kafka, an older coordinator does not keep anybody from writing.
            logger.warning("broker %d verifies no transactions: %s", broker_id, error)
            otherwise = ErrorCode.NONE
        except (ConnectionFailed, KgroupError) as error:
            logger.info("broker %d verifies no transactions now: %s", broker_id, error)
            self.connections.drop(broker_id)
        except Exception:
            logger.exception("asking broker %d about transactions failed", broker_id)
            self.connections.drop(broker_id)

        for verdict in verdicts:
            state = states.get(verdict.transactional_id)
            judged = otherwise if state is None else judge(state, verdict)
            if state is not None and state.error_code and judged is not TRY_AGAIN:
                logger.info(
                    "broker %d does not know the transaction of %s: %s",
                    broker_id,
                    verdict.transactional_id,
                    ErrorCode.of(state.error_code).name,
                )
            verdict.end(judged)
