"""Creation of topics without blocking: results, races, and traces that stay."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

import attrs
import pytest

from broker.cluster.internal_topics import InternalTopic
from broker.cluster.topic_creation import MAX_PARTITIONS_IN_FLIGHT, TopicCreator
from protocol.errors import ApiError, ErrorCode
from tests.stage.clock import run_in_virtual_time
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import STARTUP_PATHS, EntityConfig, TopicAssignment


@attrs.define(eq=False)
class Site:
    """A started creator, its session, and the keys it has touched."""

    zookeeper: MemoryZooKeeper
    session: MemorySession
    creator: TopicCreator
    touched: list[Hashable]

    async def stored(self, topic: str) -> tuple[TopicAssignment, dict[str, str]]:
        assignment, _ = await self.session.get(TopicAssignment.path(topic))
        config, _ = await self.session.get(EntityConfig.path("topics", topic))
        return TopicAssignment.decode(assignment), dict(EntityConfig.decode(config).config)


def on_site(test: Callable[[Site], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run the test with two live brokers, in virtual time."""

    async def run() -> None:
        zookeeper, touched = MemoryZooKeeper(), list[Hashable]()
        session = zookeeper.session()
        await session.start()
        for path in STARTUP_PATHS:
            await session.ensure_path(path)
        creator = TopicCreator(
            session,
            racks=lambda: {1: None, 2: None},
            touch=touched.append,
            rng=random.Random(7),
        )
        await creator.start()
        try:
            await test(Site(zookeeper, session, creator, touched))
        finally:
            await creator.close()

    def test_in_virtual_time() -> None:
        run_in_virtual_time(run())

    return test_in_virtual_time


@on_site
async def test_topic_is_written_with_its_settings(site: Site) -> None:
    creation = site.creator.create("t", 3, 2, {"retention.ms": "1"})
    assert site.touched == []
    await asyncio.sleep(1)
    assert creation.result is ErrorCode.NONE
    assert site.touched == [("topic", "t")]
    assignment, config = await site.stored("t")
    assert assignment.partitions == creation.topic.assignment
    assert {len(replicas) for replicas in assignment.partitions.values()} == {2}
    assert config == {"retention.ms": "1"}


@on_site
async def test_topic_without_settings_has_a_node_for_them(site: Site) -> None:
    site.creator.create("t", 1, 1)
    await asyncio.sleep(1)
    assert (await site.session.get("/config/topics/t"))[0] == b'{"version":1,"config":{}}'


@on_site
async def test_topic_under_way_is_not_created_twice(site: Site) -> None:
    first = site.creator.create("t", 1, 1)
    assert site.creator.is_creating("t")
    assert site.creator.create("t", 5, 2) is first
    await asyncio.sleep(1)
    assert not site.creator.is_creating("t")
    assert len((await site.stored("t"))[0].partitions) == 1


@on_site
async def test_loser_of_a_race_leaves_the_winners_settings(site: Site) -> None:
    site.creator.create("t", 1, 1, {"retention.ms": "1"})
    await asyncio.sleep(1)
    second = site.creator.create("t", 1, 1, {"retention.ms": "2"})
    await asyncio.sleep(1)
    assert second.result is ErrorCode.TOPIC_ALREADY_EXISTS
    assert (await site.stored("t"))[1] == {"retention.ms": "1"}


@on_site
async def test_settings_left_from_before_are_replaced(site: Site) -> None:
    await site.session.create("/config/topics/t", b'{"version":1,"config":{"retention.ms":"9"}}')
    creation = site.creator.create("t", 1, 1, {"retention.ms": "1"})
    await asyncio.sleep(1)
    assert creation.result is ErrorCode.NONE
    assert (await site.stored("t"))[1] == {"retention.ms": "1"}


@on_site
async def test_creation_whose_answer_was_lost_has_succeeded(site: Site) -> None:
    site.zookeeper.lose_reply(site.session)
    creation = site.creator.create("t", 1, 1)
    await asyncio.sleep(1)
    assert creation.result is None
    site.zookeeper.resume(site.session)
    await asyncio.sleep(1)
    assert creation.result is ErrorCode.NONE


@pytest.mark.fault("strangers-147")
@on_site
async def test_creation_in_a_session_that_expired_is_for_the_next_controller(site: Site) -> None:
    site.zookeeper.suspend(site.session)
    creation = site.creator.create("t", 1, 1)
    await asyncio.sleep(1)
    site.zookeeper.expire(site.session)
    site.zookeeper.resume(site.session)
    await asyncio.sleep(1)
    assert creation.result is ErrorCode.NOT_CONTROLLER
    again = site.creator.create("t", 1, 1)
    await asyncio.sleep(1)
    assert again.result is ErrorCode.NONE


@on_site
async def test_more_replicas_than_brokers_are_refused_before_anything_is_done(site: Site) -> None:
    with pytest.raises(ApiError) as refused:
        site.creator.create("t", 1, 3)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert not site.creator.is_creating("t")


def test_topic_that_coordinators_need_and_cannot_have_is_named_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = InternalTopic("__consumer_offsets", 50, 3, {}, "offsets.topic.replication.factor")

    @on_site
    async def ask_again_and_again(site: Site) -> None:
        for _ in range(70):
            with pytest.raises(ApiError, match="larger than available brokers: 2"):
                site.creator.create_internal(topic)
            await asyncio.sleep(1)

    ask_again_and_again()
    assert len(caplog.messages) == 3
    assert set(caplog.messages) == {
        "topic __consumer_offsets, which coordinators need, cannot be created: Replication factor: "
        "3 larger than available brokers: 2. (offsets.topic.replication.factor; it passes if more "
        "brokers are starting)"
    }


@pytest.mark.fault("strangers-9")
@on_site
async def test_nodes_of_large_topics_are_not_all_made_in_one_turn(site: Site) -> None:
    for number in range(6):
        site.creator.create(f"t{number}", MAX_PARTITIONS_IN_FLIGHT // 2, 1)
    most, before = 0, 0
    while before < 6:
        await asyncio.sleep(0)
        written = sum(path.startswith("/brokers/topics/t") for path in site.zookeeper.tree)
        most, before = max(most, written - before), written
    assert most == 2
