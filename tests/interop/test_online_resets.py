"""Groups of stock consumers that are reset while they run, on brokers of ours and on stock ones.

`make test` runs the Python clients, `make interop` every kind. The table of docs/kgroup-reset.md
says which kinds follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.admin import Admin
from clients.command_line.sessions import Sessions
from clients.command_line.topic_scope import TopicScope
from clients.resets.journal import Journal
from clients.resets.journalled_offsets import Change, JournalledOffsets, Outcome
from clients.resets.reset import plan_reset
from clients.resets.reset_plan import Named
from tests.interop.driven_group import DrivenGroup, Writer
from tests.interop.kafka_cluster import unique
from tests.interop.stock_consumers import AIOKAFKA, KAFKA_PYTHON, KINDS, LIBRDKAFKA, OURS, Kind
from tests.interop.traffic import new_topic
from tests.stage.cluster import DevCluster
from tests.stage.stock_kafka import stock_broker
from tests.stage.waiting import until

PARTITIONS = 4
SETTINGS = ("--set", "group.initial.rebalance.delay.ms=0")
QUICK = (KAFKA_PYTHON, AIOKAFKA, LIBRDKAFKA)
ALL = [
    pytest.param(kind, id=str(kind), marks=() if kind in QUICK else pytest.mark.product)
    for kind in (*KINDS, OURS)
]


@pytest.fixture(scope="module", params=["ours", "stock"])
def bootstrap(
    request: pytest.FixtureRequest, zookeeper: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "ours":
        with DevCluster(directory, SETTINGS) as cluster:
            yield cluster.address("bootstrap")
    else:
        with stock_broker(f"{zookeeper}/{unique('stock')}", directory) as address:
            yield address


async def reset(bootstrap: str, group_id: str, topic: str) -> Outcome:
    """Reset a group with members to the start of the topic."""
    async with Admin(bootstrap) as admin:
        sessions = Sessions(admin)
        plan = await plan_reset(
            sessions, group_id, Named.EARLIEST, [TopicScope(topic)], online=True
        )
        assert (plan.refusal, plan.failures) == (None, ())
        journalled = JournalledOffsets(sessions, await Journal.of(admin))
        return await journalled.change(Change.of(plan, "reset", online=True))


@pytest.mark.parametrize("kind", ALL)
async def test_live_members_follow_a_reset(bootstrap: str, kind: Kind, tmp_path: Path) -> None:
    topic, group_id = await new_topic(bootstrap, PARTITIONS), unique("g")
    topics = {topic: PARTITIONS}
    with DrivenGroup(bootstrap, group_id, topics, [kind.first_strategy], tmp_path) as group:
        async with Writer(bootstrap, group.partitions) as writer:
            members = [group.start(kind), group.start(kind)]
            await group.settled()
        await group.consumes(writer.values)
        await group.commits_all()

        outcome = await reset(bootstrap, group_id, topic)
        assert (outcome.failures, str(outcome.entry.status)) == ((), "done")

        # Each message is given once more, and committed.
        def is_given_again() -> bool:
            values = [message.value for message in group.messages]
            return all(values.count(value) >= 2 for value in writer.values)

        await until(is_given_again, "\n".join(["messages again", *map(str, members)]))
        await group.commits_all()
        assert all(member.process.poll() is None for member in members)
        await asyncio.gather(*(asyncio.to_thread(member.stop) for member in members))
