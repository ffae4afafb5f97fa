"""A fetch that waits: what may have changed when it wakes, and what it costs to wake it."""

from __future__ import annotations

import asyncio
import itertools
from functools import partial
from typing import Any

import pytest

from broker.handlers import fetch
from broker.network.authorization import Resource, topic
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from broker.network.session import Principal
from protocol.acls import Operation
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.topic_partition import TopicPartition
from tests.broker.fetch_requests import parts, request, values
from tests.broker.replication.replicas import Replicas, batch, context
from tests.stage.authorizer import AskingAuthorizer
from tests.stage.bytecodes import bytecodes_of

OPEN, SECRET = TopicPartition("open", 0), TopicPartition("secret", 0)
FEW, MANY = 100, 1_000


class Reader:
    """A consumer that may read the topics in `readable`."""

    def __init__(self, *readable: str) -> None:
        self.readable = {topic(name) for name in readable}
        self.replicas = Replicas().lead("open").lead("secret")
        self.write(SECRET, b"the crown jewels")

    def write(self, partition: TopicPartition, value: bytes) -> None:
        self.replicas.write(partition, batch(value))

    def fetch(self, fetch_request: FetchRequest, version: int = 12) -> Any:
        replicas = self.replicas
        return fetch.handle(
            replicas.manager,
            replicas.cache,
            replicas.sessions,
            1 << 30,
            replicas.deferred,
            replicas.leader_quota,
            fetch_request,
            self._context(version),
        )

    def _context(self, version: int) -> RequestContext:
        made = context(version)
        sender = AskingAuthorizer(self._may).sender(made.principal, "/127.0.0.1")
        return made._replace(sender=sender)

    def _may(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        assert operation is Operation.READ
        return resource in self.readable


@pytest.mark.fault("security-1")
@pytest.mark.parametrize("expired", [False, True])
@pytest.mark.parametrize("version", [7, 11, 12])
@pytest.mark.parametrize("first_epoch", [0, 1])
def test_a_fetch_that_waits_reads_nothing_that_another_request_added_to_its_session(
    version: int, expired: bool, first_epoch: int
) -> None:
    reader = Reader("open")
    # The request that makes the session waits, or the next one does.
    begin = request((OPEN, 0), max_wait_ms=500, session=(0, 0))
    if first_epoch == 0:
        waiting = reader.fetch(begin, version)
    else:
        reader.fetch(request((OPEN, 0), session=(0, 0)), version)
        waiting = reader.fetch(request(max_wait_ms=500, session=(1, 1)), version)
    assert isinstance(waiting, Wait)

    other = reader.fetch(request((SECRET, 0), session=(1, first_epoch + 1)), version)
    assert parts(other)[-1].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    reader.write(OPEN, b"news")
    late = waiting.try_complete(expired)
    assert isinstance(late, FetchResponse)
    assert (late.error_code, parts(late)) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])


@pytest.mark.fault("security-1")
@pytest.mark.parametrize("session", [(0, -1), (0, 0)])
@pytest.mark.parametrize("expired", [False, True])
def test_a_permission_that_was_taken_away_while_a_fetch_waits_counts(
    session: tuple[int, int], expired: bool
) -> None:
    reader = Reader("open")
    waiting = reader.fetch(request((OPEN, 0), max_wait_ms=500, session=session))
    assert isinstance(waiting, Wait)

    reader.readable.clear()
    reader.write(OPEN, b"news")
    (part,) = parts(waiting.try_complete(expired))

    assert (part.error_code, bytes(part.records or b"")) == (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        b"",
    )


def test_a_permission_that_was_taken_away_elsewhere_ends_no_wait() -> None:
    reader = Reader("open", "secret")
    waiting = reader.fetch(request((OPEN, 0), max_wait_ms=500))
    reader.readable.discard(topic("secret"))
    assert waiting.try_complete(False) is None
    reader.write(OPEN, b"news")
    assert values(parts(waiting.try_complete(False))[0]) == [b"news"]


def cost_of_looking(partitions: int) -> int:
    """Count what a fetch that may wait costs beside one that may not, where each has records."""
    costs = []
    for wait_ms in (500, 0):
        reader = Reader("t")
        reader.replicas.lead("t", partitions)
        every = [TopicPartition("t", index) for index in range(partitions)]
        for topic_partition in every:
            reader.write(topic_partition, b"x")
        fetch_request = request(*((tp, 0) for tp in every), max_wait_ms=wait_ms)
        costs.append(bytecodes_of(partial(reader.fetch, fetch_request)))
    return costs[0] - costs[1]


@pytest.mark.fault("strangers-10")
def test_no_more_partitions_are_looked_at_than_have_enough() -> None:
    # It is less than one bytecode for each partition.
    assert abs(cost_of_looking(MANY) - cost_of_looking(FEW)) < MANY - FEW


async def cost_of_waking(partitions: int, session: tuple[int, int]) -> int:
    """Count what a record in each partition costs while a fetch waits for more than all of them."""
    replicas = Replicas().lead("t", partitions)
    every = [TopicPartition("t", index) for index in range(partitions)]
    data = batch(b"x")
    for topic_partition in every:
        replicas.write(topic_partition, data)

    fetch_request = request(
        *((tp, 1) for tp in every), max_wait_ms=60_000, min_bytes=1 << 30, session=session
    )
    wait = fetch.handle(
        replicas.manager,
        replicas.cache,
        replicas.sessions,
        1 << 30,
        replicas.deferred,
        replicas.leader_quota,
        fetch_request,
        context(12),
    )
    done: list[Any] = []
    replicas.purgatory.park(wait, done.append)

    def write_to_some() -> None:
        for tp in itertools.islice(next_ones, FEW):
            replicas.manager.append(tp, data, all_in_sync=False, zstd_allowed=True, now_ms=1)

    next_ones, cost = iter(every), 0
    for _ in range(0, partitions, FEW):
        cost += bytecodes_of(write_to_some)
        # What is counted is slow: many of them are no single turn of the loop.
        await asyncio.sleep(0)
    assert not done

    # Nothing is lost by it: the response has all of them.
    replicas.purgatory.expire_all()
    (response,) = done
    assert [values(part) for part in parts(response)] == [[b"x"]] * partitions
    return cost


@pytest.mark.fault("scale-S3")
@pytest.mark.parametrize("session", [(0, -1), (0, 0)])
def test_an_append_costs_a_waiting_fetch_the_same_however_many_partitions_it_has(
    session: tuple[int, int],
) -> None:
    few = asyncio.run(cost_of_waking(FEW, session))
    assert asyncio.run(cost_of_waking(MANY, session)) < 1.2 * few * MANY / FEW


@pytest.mark.parametrize("session", [(0, -1), (0, 0)])
async def test_the_bytes_of_all_partitions_together_end_the_wait(session: tuple[int, int]) -> None:
    replicas = Replicas().lead("t", 3)
    every = [TopicPartition("t", index) for index in range(3)]
    data = batch(b"x")
    wait = fetch.handle(
        replicas.manager,
        replicas.cache,
        replicas.sessions,
        1 << 30,
        replicas.deferred,
        replicas.leader_quota,
        request(
            *((tp, 0) for tp in every),
            max_wait_ms=60_000,
            min_bytes=3 * len(data),
            session=session,
        ),
        context(12),
    )
    done: list[Any] = []
    replicas.purgatory.park(wait, done.append)
    for tp in every:
        assert not done
        replicas.write(tp, data)
        await asyncio.sleep(0)
    (response,) = done
    assert [values(part) for part in parts(response)] == [[b"x"]] * 3
