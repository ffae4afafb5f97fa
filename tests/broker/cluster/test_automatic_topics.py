"""Topics that clients ask about: how many of them are planned."""

import asyncio
import random

import pytest

from broker.cluster.automatic_topics import AutomaticTopics
from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.topic_creation import MAX_PARTITIONS_WAITING, TopicCreator
from broker.settings.config import load_broker_config
from protocol.internal_topics import OFFSETS_TOPIC
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import STARTUP_PATHS, TopicAssignment

PARTITIONS = 1_000


def automatic_topics(session: MemorySession) -> AutomaticTopics:
    creator = TopicCreator(
        session,
        racks=lambda: {1: None},
        touch=lambda key: None,
        rng=random.Random(1),
    )
    config, _ = load_broker_config(
        {
            "zookeeper.connect": "zk:1",
            "num.partitions": str(PARTITIONS),
            "offsets.topic.replication.factor": "1",
        }
    )
    return AutomaticTopics(creator, MetadataCache(), config)


@pytest.mark.fault("strangers-9")
def test_topics_are_not_planned_while_very_many_partitions_wait() -> None:
    topics = automatic_topics(MemoryZooKeeper().session())
    planned = [topics.create(f"t{number}") for number in range(100)]
    most = MAX_PARTITIONS_WAITING // PARTITIONS
    assert planned == [PARTITIONS] * most + [0] * (100 - most)


def test_coordinators_have_their_topics_however_many_partitions_wait() -> None:
    topics = automatic_topics(MemoryZooKeeper().session())
    for number in range(100):
        topics.create(f"t{number}")
    assert topics.create(OFFSETS_TOPIC) == 50
    assert topics.creator.is_creating(OFFSETS_TOPIC)


def test_clients_that_ask_again_have_all_topics_in_the_end() -> None:
    async def ask_again() -> list[int]:
        zookeeper = MemoryZooKeeper()
        session = zookeeper.session()
        await session.start()
        for path in STARTUP_PATHS:
            await session.ensure_path(path)
        topics = automatic_topics(session)
        await topics.creator.start()

        left = [f"t{number}" for number in range(50)]
        asked_for = []
        while left and len(asked_for) < 100:
            asked_for.append(len(left))
            for name in left:
                topics.create(name)
            await asyncio.sleep(0)
            left = [name for name in left if TopicAssignment.path(name) not in zookeeper.tree]
        await topics.creator.close()
        return [*asked_for, len(left)]

    first, *others, last = asyncio.run(ask_again())
    assert (first, last) == (50, 0)
    assert others
