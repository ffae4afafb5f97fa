"""The same controller on a real ZooKeeper: cases that no other test can show."""

import asyncio
import random
import time

from broker.cluster.registration import Registration
from broker.cluster.topic_creation import TopicCreator
from broker.controller.controller import Controller
from protocol.errors import ErrorCode
from tests.broker.controller.wire import Wire
from tests.stage.waiting import until
from zk.session import KazooSession
from zk.znodes import STARTUP_PATHS, BrokerId, Endpoint, PartitionState

PARTITIONS = 50


def test_topic_lives_through_a_failover_and_is_deleted(zk_chroot: str) -> None:
    asyncio.run(live(zk_chroot))


async def live(zookeeper: str) -> None:
    wire = Wire()
    sessions, controllers = {}, {}
    for broker_id in (1, 2):
        session = KazooSession(zookeeper)
        await session.start()
        for path in STARTUP_PATHS:
            await session.ensure_path(path)
        node = BrokerId((Endpoint("PLAINTEXT", "host", broker_id),), timestamp_ms=0)
        registration = Registration(session, broker_id, node, 6000)
        await registration.register()
        controller = Controller(
            session,
            broker_id=broker_id,
            register=registration.register,
            connect=wire.connect,
            now_ms=lambda: time.time_ns() // 1_000_000,
        )
        await controller.start()
        sessions[broker_id], controllers[broker_id] = session, controller
        await until(lambda: is_known(controllers[1], 1), "controller 1 is elected")
    await until(lambda: is_known(controllers[2], 1), "controller 2 knows of it")

    creator = TopicCreator(
        sessions[2],
        racks=lambda: {1: None, 2: None},
        touch=lambda key: None,
        rng=random.Random(1),
    )
    await creator.start()
    creation = creator.create("t", PARTITIONS, 2)
    await until(lambda: all_led_by(sessions[2], {1, 2}), "both brokers lead")
    assert creation.result is ErrorCode.NONE
    await creator.close()

    await controllers[1].close()
    await sessions[1].close()
    await until(lambda: all_led_by(sessions[2], {2}), "broker 2 leads")
    assert (controllers[2].is_active, controllers[2].epoch) == (True, 2)

    controllers[2].request_deletion(["t"])
    await sessions[2].create("/brokers/ids/1", broker_node(1), ephemeral=True)
    await until(lambda: is_gone(sessions[2], "/brokers/topics/t"), "the topic is deleted")
    await until(lambda: is_gone(sessions[2], "/admin/delete_topics/t"), "it is done")
    await controllers[2].close()
    await sessions[2].close()


def broker_node(port: int) -> bytes:
    return BrokerId((Endpoint("PLAINTEXT", "host", port),), timestamp_ms=0).encode()


async def is_known(controller: Controller, controller_id: int) -> bool:
    return controller.controller_id == controller_id


async def all_led_by(session: KazooSession, brokers: set[int]) -> bool:
    """True if every partition of the topic has one of these leaders, and each of them leads."""
    paths = [PartitionState.path("t", index) for index in range(PARTITIONS)]
    if None in await asyncio.gather(*(session.exists(path) for path in paths)):
        return False
    nodes = await asyncio.gather(*(session.get(path) for path in paths))
    return {PartitionState.decode(data).leader for data, _ in nodes} == brokers


async def is_gone(session: KazooSession, path: str) -> bool:
    return await session.exists(path) is None
