"""A command with a time of its own does not wait without end to become a member."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from clients.command_line.command_group import CommandFailed
from clients.high_level.connector import ConsumerConnector
from clients.kgroup.joining import JOIN_S, join_in_time
from groups.consumer.member import GroupConsumer
from groups.consumer.member_failed import MemberFailed
from protocol.errors import ErrorCode
from tests.stage.clock import run_in_virtual_time

NO_COORDINATOR = "send join: coordinator of group g: COORDINATOR_NOT_AVAILABLE"
AS_MANY_BROKERS = "offsets.topic.replication.factor"


@pytest.fixture(autouse=True)
def member_log() -> Iterator[logging.Logger]:
    """Return the log of members, which is for other tests as it was."""
    logger = logging.getLogger(GroupConsumer.__module__)
    yield logger
    logger.filters.clear()


async def never_joined(problem: str | None, **settings: Any) -> tuple[str, float]:
    """Return what ends the wait of a member that gets no place in its group, and after how long."""
    connector = ConsumerConnector(
        {"membership": "coordinator", "bootstrap.servers": "b:1", "group.id": "g"}, **settings
    )
    connector._set_rebalance_error(problem)
    now = asyncio.get_running_loop().time
    begun_s = now()
    with pytest.raises((CommandFailed, TimeoutError)) as raised:
        # The end of a test is what ends a wait without one.
        async with asyncio.timeout(10 * JOIN_S):
            await join_in_time(connector, asyncio.Event().wait())
    return str(raised.value), now() - begun_s


@pytest.mark.parametrize(
    ("problem", "said", "unsaid"),
    [
        (NO_COORDINATOR, (NO_COORDINATOR, AS_MANY_BROKERS), "rebalance"),
        (None, ("the group has not finished a rebalance",), AS_MANY_BROKERS),
    ],
    ids=["no coordinator", "members that do not come"],
)
def test_what_was_waited_for_is_said_a_minute_after_the_time(
    problem: str | None, said: tuple[str, ...], unsaid: str
) -> None:
    text, waited_s = run_in_virtual_time(never_joined(problem, consumer_timeout_ms=3000))
    assert waited_s == 3 + JOIN_S
    assert text.startswith("group g: still no member of it after 63 s: ")
    assert all(part in text for part in said)
    assert unsaid not in text


def test_without_a_time_it_waits_for_ever() -> None:
    assert run_in_virtual_time(never_joined(NO_COORDINATOR)) == ("", 10 * JOIN_S)


def test_what_ends_the_member_is_left_to_the_command_to_say_and_warnings_are_not(
    caplog: pytest.LogCaptureFixture, member_log: logging.Logger
) -> None:
    async def refused() -> None:
        # As the member does, which raises the same.
        member_log.warning("still trying")
        member_log.error("refused")
        raise MemberFailed(ErrorCode.GROUP_AUTHORIZATION_FAILED, "refused")

    async def scenario() -> None:
        settings = {"membership": "coordinator", "bootstrap.servers": "b:1", "group.id": "g"}
        with pytest.raises(MemberFailed, match="refused"):
            await join_in_time(ConsumerConnector(settings), refused())

    run_in_virtual_time(scenario())
    assert caplog.messages == ["still trying"]
