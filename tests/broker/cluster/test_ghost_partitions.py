"""Partitions that were deleted while a broker could not hear it leave its metadata."""

from __future__ import annotations

from collections.abc import Hashable

import attrs
import pytest

from broker.cluster.ghost_partitions import TOPICS_AT_ONCE, GhostPartitions
from broker.cluster.metadata_cache import MetadataCache
from protocol.internal_topics import OFFSETS_TOPIC
from protocol.messages.update_metadata import UpdateMetadataRequest
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import update_metadata
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import TopicAssignment


@attrs.define(eq=False)
class Stage:
    session: MemorySession
    zookeeper: MemoryZooKeeper
    cache: MetadataCache = attrs.field(factory=MetadataCache)
    deleted: list[TopicPartition] = attrs.field(factory=list)
    touched: list[Hashable] = attrs.field(factory=list)
    ghosts: GhostPartitions = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.ghosts = GhostPartitions(
            self.session, self.cache, self.deleted.extend, self.touched.append
        )

    async def create(self, topic: str, partitions: int) -> None:
        node = TopicAssignment(dict.fromkeys(range(partitions), (0,)))
        await self.session.create(TopicAssignment.path(topic), node.encode(), make_parents=True)

    def counts(self) -> dict[str, int]:
        return {topic: self.cache.partition_count(topic) for topic in sorted(self.cache.topics())}


async def a_stage() -> Stage:
    zookeeper = MemoryZooKeeper()
    session = zookeeper.session()
    await session.start()
    return Stage(session, zookeeper)


def again(request: UpdateMetadataRequest) -> UpdateMetadataRequest:
    """Return the request to a later registration of the broker."""
    return attrs.evolve(request, broker_epoch=77)  # type: ignore[misc]


@pytest.mark.fault("core-R4")
async def test_topic_that_the_next_controller_does_not_know_goes() -> None:
    stage = await a_stage()
    await stage.create("lives", 2)
    stage.cache.update(update_metadata("lives", 2))
    stage.cache.update(update_metadata("ghost", 2))
    stage.cache.update(update_metadata("lives", 2, controller_epoch=2))
    await stage.ghosts.remove()
    assert stage.counts() == {"lives": 2}
    assert stage.deleted == [TopicPartition("ghost", 0), TopicPartition("ghost", 1)]
    assert stage.touched == [("topic", "ghost")]


@pytest.mark.fault("core-R4")
async def test_topic_that_was_created_again_with_fewer_partitions_has_no_others() -> None:
    stage = await a_stage()
    stage.cache.update(update_metadata("t", 6))
    await stage.create("t", 2)
    stage.cache.update(update_metadata("t", 2, controller_epoch=2))
    await stage.ghosts.remove()
    assert stage.counts() == {"t": 2}
    assert stage.deleted == [TopicPartition("t", index) for index in range(2, 6)]


@pytest.mark.fault("core-R4")
async def test_registration_that_is_new_may_have_missed_a_deletion_too() -> None:
    stage = await a_stage()
    stage.cache.update(update_metadata("ghost"))
    stage.cache.update(again(update_metadata()))
    await stage.ghosts.remove()
    assert stage.counts() == {}


async def test_what_a_stock_controller_names_late_stays_meanwhile() -> None:
    stage = await a_stage()
    await stage.create("late", 1)
    stage.cache.update(update_metadata("late"))
    stage.cache.update(update_metadata(controller_epoch=2))
    await stage.ghosts.remove()
    assert (stage.counts(), stage.deleted) == ({"late": 1}, [])


async def test_topic_that_is_named_while_it_is_looked_up_stays() -> None:
    stage = await a_stage()
    stage.cache.update(update_metadata("t"))
    stage.cache.update(update_metadata(controller_epoch=2))
    assert stage.cache.unnamed_topics(9) == ["t"]
    stage.cache.update(update_metadata("t", controller_epoch=2))
    assert stage.cache.confirm("t", ()) == []
    assert stage.counts() == {"t": 1}


async def test_nothing_is_read_while_the_controller_knows_everything() -> None:
    stage = await a_stage()
    stage.cache.update(update_metadata("t"))
    stage.cache.update(update_metadata("t", controller_epoch=2))
    # A read would fail.
    await stage.session.close()
    await stage.ghosts.remove()
    assert stage.counts() == {"t": 1}


async def test_nothing_goes_while_zookeeper_cannot_be_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = await a_stage()
    stage.cache.update(update_metadata("t"))
    stage.cache.update(update_metadata(controller_epoch=2))
    await stage.session.close()
    await stage.ghosts.remove()
    assert stage.counts() == {"t": 1}
    assert "cannot be looked up" in caplog.text


async def test_node_that_cannot_be_parsed_costs_nothing() -> None:
    stage = await a_stage()
    await stage.session.create(TopicAssignment.path("t"), b"{", make_parents=True)
    stage.cache.update(update_metadata("t"))
    stage.cache.update(update_metadata(controller_epoch=2))
    await stage.ghosts.remove()
    assert stage.counts() == {"t": 1}


async def test_many_topics_are_looked_up_some_at_a_time() -> None:
    stage = await a_stage()
    for number in range(TOPICS_AT_ONCE + 1):
        stage.cache.update(update_metadata(f"t{number}"))
    stage.cache.update(update_metadata(controller_epoch=2))
    await stage.ghosts.remove()
    assert len(stage.counts()) == 1
    await stage.ghosts.remove()
    assert stage.counts() == {}


async def test_internal_topic_that_was_created_again_spreads_its_keys_anew() -> None:
    stage = await a_stage()
    stage.cache.update(update_metadata(OFFSETS_TOPIC, 6))
    await stage.create(OFFSETS_TOPIC, 2)
    stage.cache.update(update_metadata(OFFSETS_TOPIC, 2, controller_epoch=2))
    await stage.ghosts.remove()
    assert stage.cache.key_partition_count(OFFSETS_TOPIC) == 2
