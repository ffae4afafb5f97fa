"""A command with a time of its own does not wait without end to become a member."""

import asyncio
import io
import logging
from typing import Any

import pytest

from clients.command_line.command_group import CommandFailed
from clients.high_level.connector import ConsumerConnector
from clients.kgroup.command import log_handler
from clients.kgroup.joining import JOIN_S, join_in_time
from groups.consumer.member import GroupConsumer
from tests.stage.clock import run_in_virtual_time

NO_COORDINATOR = "send join: coordinator of group g: COORDINATOR_NOT_AVAILABLE"
AS_MANY_BROKERS = "offsets.topic.replication.factor"


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


def test_what_ends_the_member_is_left_to_the_command_to_say_and_warnings_are_not() -> None:
    handler = log_handler()
    assert isinstance(handler, logging.StreamHandler)
    printed = io.StringIO()
    handler.setStream(printed)
    member_log = logging.getLogger(GroupConsumer.__module__)
    member_log.addHandler(handler)
    try:
        # As the member does, which raises the same.
        member_log.warning("still trying")
        member_log.error("refused")
    finally:
        member_log.removeHandler(handler)
    assert printed.getvalue() == "warning: still trying\n"
