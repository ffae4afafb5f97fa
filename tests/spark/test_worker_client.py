"""Clients of a worker process, which its tasks borrow one after the other."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator

import pytest

from spark_connector.options import ReaderConfig
from spark_connector.worker_client import LONGEST_REST_S, MOST_CLIENTS, WorkerClients


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def clients(clock: Clock) -> Iterator[WorkerClients]:
    clients = WorkerClients(clock)
    yield clients
    clients.close()


def config(port: int = 9092) -> ReaderConfig:
    return ReaderConfig(bootstrap_servers=(f"localhost:{port}",))


def test_the_next_task_has_the_client_of_the_last(clients: WorkerClients) -> None:
    with clients.borrow(config()) as first:
        pass
    with clients.borrow(config()) as second:
        assert second is first


def test_tasks_of_two_clusters_have_their_own_clients_in_turns(clients: WorkerClients) -> None:
    with clients.borrow(config(1)) as one:
        pass
    with clients.borrow(config(2)) as two:
        assert two is not one
    with clients.borrow(config(1)) as again:
        assert again is one


def test_two_tasks_at_once_never_share_a_client(clients: WorkerClients) -> None:
    with clients.borrow(config()) as first, clients.borrow(config()) as second:
        assert second is not first


def test_a_client_that_has_rested_for_long_is_closed_and_replaced(
    clients: WorkerClients, clock: Clock
) -> None:
    with clients.borrow(config()) as first:
        pass
    clock.now_s += LONGEST_REST_S + 1
    with clients.borrow(config()) as second:
        assert second is not first
    assert not first.is_running


def test_no_more_clients_rest_than_the_bound(clients: WorkerClients) -> None:
    lent = []
    for port in range(1, MOST_CLIENTS + 2):
        with clients.borrow(config(port)) as client:
            lent.append(client)
    assert [client.is_running for client in lent] == [False] + [True] * MOST_CLIENTS


def test_a_forked_process_makes_its_own_client(clients: WorkerClients) -> None:
    with clients.borrow(config()) as client:
        pass
    child = os.fork()
    if not child:
        # The child must end here, whatever happens in it.
        status = 1
        try:
            with clients.borrow(config()) as own:
                status = int(own is client)
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_one_item_is_fetched_ahead_and_no_more(clients: WorkerClients) -> None:
    asked = []
    is_ahead = asyncio.Event()

    async def numbers() -> AsyncIterator[int]:
        for number in range(4):
            asked.append(number)
            if number == 1:
                is_ahead.set()
            yield number

    async def wait() -> AsyncIterator[bool]:
        yield await is_ahead.wait()

    with clients.borrow(config()) as client:
        taken = client.iterate_ahead(numbers())
        assert next(taken) == 0
        # The next one is made while nobody asks.
        assert list(client.iterate_ahead(wait())) == [True]
        assert asked == [0, 1]
        assert list(taken) == [1, 2, 3]


def test_an_error_of_what_is_ahead_comes_in_its_turn(clients: WorkerClients) -> None:
    async def fail_second() -> AsyncIterator[int]:
        yield 1
        raise LookupError("no more")

    with clients.borrow(config()) as client:
        taken = client.iterate_ahead(fail_second())
        assert next(taken) == 1
        with pytest.raises(LookupError, match="no more"):
            next(taken)


def test_a_task_that_stops_early_cancels_what_is_in_flight(clients: WorkerClients) -> None:
    ended = asyncio.Event()

    async def hang() -> AsyncIterator[int]:
        yield 1
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def wait() -> AsyncIterator[bool]:
        yield await asyncio.wait_for(ended.wait(), 30)

    with clients.borrow(config()) as client:
        taken = client.iterate_ahead(hang())
        assert next(taken) == 1
        taken.close()  # type: ignore[attr-defined]
        assert list(client.iterate_ahead(wait())) == [True]
