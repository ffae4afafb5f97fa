"""Log directories of brokers that respond are shown, and the others are named."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from broker.kbroker.log.directories import Location, find_log_directories
from broker.kbroker.log.dirs import describe_log_dirs
from clients.command_line.output import Failure, Target
from protocol.api_key import ApiKey
from protocol.messages.describe_log_dirs import (
    DescribeLogDirsResponse,
    DescribeLogDirsResponseResult,
)
from tests.clients.scripted_broker import ScriptedBroker
from tests.stage.clock import run_in_own_time

T = TypeVar("T")


def with_dead_broker(ask: Callable[[Target], Awaitable[tuple[T, list[Failure]]]]) -> T:
    """Return what is told of broker 1, while broker 2 is dead and named."""

    async def scenario() -> T:
        async with ScriptedBroker(node_id=1) as living, ScriptedBroker(node_id=2) as dead:
            living.peers[2] = dead.port
            living.answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda request: DescribeLogDirsResponse(
                results=[DescribeLogDirsResponseResult(error_code=0, log_dir="/logs", topics=[])]
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
