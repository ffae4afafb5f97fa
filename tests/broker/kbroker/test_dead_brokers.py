"""What brokers tell that respond is shown, and the others are named."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from broker.kbroker.cluster import Item, describe_cluster
from broker.kbroker.log.directories import Location, find_log_directories
from broker.kbroker.log.dirs import describe_log_dirs
from broker.kbroker.over_brokers import OverBrokers
from broker.kbroker.transactions import join_listings
from clients.admin import TransactionListing
from clients.command_line.output import Failure, Target
from clients.command_line.sessions import connected
from protocol.api_key import ApiKey
from protocol.messages.describe_log_dirs import (
    DescribeLogDirsResponse,
    DescribeLogDirsResponseResult,
)
from protocol.messages.list_transactions import (
    ListTransactionsResponse,
    ListTransactionsResponseState,
)
from tests.clients.scripted_broker import ScriptedBroker
from tests.stage.clock import run_in_own_time
from tests.stage.cluster import DevCluster
from zk.znodes import BrokerId

T = TypeVar("T")


def with_dead_broker(ask: Callable[[Target], Awaitable[tuple[T, list[Failure]]]]) -> T:
    """Return what is told of broker 1, while broker 2 is dead and named."""

    async def scenario() -> T:
        async with ScriptedBroker(node_id=1) as living, ScriptedBroker(node_id=2) as dead:
            living.peers[2] = dead.port
            living.answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda request: DescribeLogDirsResponse(
                results=[DescribeLogDirsResponseResult(error_code=0, log_dir="/logs", topics=[])]
            )
            living.answers[ApiKey.LIST_TRANSACTIONS] = lambda request: ListTransactionsResponse(
                error_code=0,
                transaction_states=[
                    ListTransactionsResponseState(
                        transactional_id="billing", producer_id=7, transaction_state="Ongoing"
                    )
                ],
            )
            await dead.__aexit__()
            told, (failure,) = await ask(Target(living.bootstrap, None, {}, 3_600_000))
            assert failure.what == "broker 2"
            assert f"127.0.0.1:{dead.port}: connection refused" in failure.message
            return told

    return run_in_own_time(scenario())


def test_log_dirs_are_described() -> None:
    told = with_dead_broker(lambda target: describe_log_dirs(target, []))
    assert {broker: [*directories] for broker, directories in told.items()} == {1: ["/logs"]}


def test_log_directories_are_found() -> None:
    (directory,) = with_dead_broker(lambda target: find_log_directories(Location(target)))
    assert (directory.path, directory.broker) == ("/logs", 1)


def test_cluster_is_described() -> None:
    async def describe(target: Target) -> tuple[Item, list[Failure]]:
        failures: list[Failure] = []
        async with connected(target, waits_for_dead=False) as sessions:
            item = await describe_cluster(OverBrokers(sessions.admin), None, failures)
        return item, failures

    item = with_dead_broker(describe)
    assert [broker["broker"] for broker in item["brokers"]] == [1, 2]
    assert item["refusing_log_dirs"] is None


def test_transactions_are_listed() -> None:
    async def list_transactions(target: Target) -> tuple[list[TransactionListing], list[Failure]]:
        failures: list[Failure] = []
        async with connected(target, waits_for_dead=False) as sessions:
            results = await sessions.admin.transactions_of_each_broker()
        return join_listings(results, failures), failures

    listings = with_dead_broker(list_transactions)
    assert [listing.transactional_id for listing in listings] == ["billing"]


@pytest.mark.fault("strangers-54")
async def test_a_broker_that_zookeeper_does_not_know_is_named(tmp_path: Path) -> None:
    with DevCluster(tmp_path) as cluster:
        assert cluster.run("kbroker", "cluster", "describe").returncode == 0
        async with cluster.zookeeper_session() as zk:
            await zk.delete(BrokerId.path(0))
            described = cluster.run("kbroker", "cluster", "describe")
    assert described.returncode == 1
    assert "error: broker 0: has no session with ZooKeeper" in described.stderr
