"""A broker reads from ZooKeeper which topic of a name it serves."""

from __future__ import annotations

import asyncio
from functools import partial

import attrs
import pytest

from broker.replication.topic_identities import TopicIdentities, read_identities
from protocol.topic_identity import TopicIdentity, derive_topic_id
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import ClusterId, TopicAssignment

CLUSTER = "c"
TIMEOUT_MS = 6000


@attrs.define(eq=False)
class Stage:
    zookeeper: MemoryZooKeeper
    session: MemorySession
    identities: TopicIdentities

    async def create(self, topic: str, topic_id: bytes | None = None) -> None:
        node = TopicAssignment({0: (1,)})
        data = (node if topic_id is None else node.pin(topic_id)).encode()
        await self.session.create(TopicAssignment.path(topic), data, make_parents=True)

    async def learned(self, topic: str) -> TopicIdentity | None:
        await self.identities.learn([topic])
        return self.identities.get(topic)


async def a_stage() -> Stage:
    zookeeper = MemoryZooKeeper()
    session = zookeeper.session()
    await session.start()
    await session.create(ClusterId.path(), ClusterId(CLUSTER).encode(), make_parents=True)
    identities = TopicIdentities(partial(read_identities, session, CLUSTER), TIMEOUT_MS)
    identities.follow(session)
    return Stage(zookeeper, session, identities)


async def test_topic_without_an_id_has_one_by_its_creation() -> None:
    stage = await a_stage()
    await stage.create("t")
    first = await stage.learned("t")
    assert first is not None
    assert first.topic_id == derive_topic_id(CLUSTER, "t", first.topic_czxid)
    assert not first.is_pinned

    await stage.session.delete_recursive(TopicAssignment.path("t"))
    await stage.create("t")
    second = await stage.learned("t")
    assert second is not None
    assert not first.is_same_topic(second)


async def test_id_in_the_znode_counts() -> None:
    stage = await a_stage()
    topic_id = bytes(range(16))
    await stage.create("t", topic_id)
    identity = await stage.learned("t")
    assert identity is not None
    assert (identity.topic_id, identity.is_pinned) == (topic_id, True)


async def test_node_that_cannot_be_parsed_is_known_by_its_creation() -> None:
    stage = await a_stage()
    await stage.session.create(TopicAssignment.path("t"), b"{", make_parents=True)
    assert await stage.learned("t") is not None


async def test_topic_that_does_not_exist_is_not_known() -> None:
    stage = await a_stage()
    await stage.create("other")
    assert await stage.learned("t") is None


async def test_copy_of_all_nodes_has_the_same_topics() -> None:
    stage = await a_stage()
    await stage.create("t")
    before = await stage.learned("t")
    copy = await a_stage()
    for number in range(5):
        await copy.create(f"other{number}")
    await copy.session.delete(ClusterId.path())
    await copy.session.create(ClusterId.path(), ClusterId(CLUSTER).encode())
    await copy.create("t")
    after = await copy.learned("t")
    assert before is not None
    assert after is not None
    assert before.topic_id != after.topic_id
    assert before.is_same_topic(after)


async def test_session_that_ended_may_have_missed_anything() -> None:
    stage = await a_stage()
    await stage.create("t")
    assert await stage.learned("t") is not None
    stage.zookeeper.expire(stage.session)
    while stage.identities.get("t") is not None:
        await asyncio.sleep(0)


@pytest.mark.virtual_time
async def test_control_request_waits_for_zookeeper_no_longer_than_a_session(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = await a_stage()
    await stage.create("t")
    assert await stage.learned("t") is not None
    stage.zookeeper.suspend(stage.session)
    began = asyncio.get_running_loop().time()
    assert await stage.learned("t") is None
    assert asyncio.get_running_loop().time() - began <= TIMEOUT_MS / 1000
    assert "cannot be told from earlier ones" in caplog.text
