"""A broker's node: created, kept, taken over, refused."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from broker.cluster.registration import AlreadyRegistered, Registration
from tests.stage.clock import run_in_virtual_time
from zk.api import SessionExpired
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import STARTUP_PATHS, BrokerId, Endpoint

PATH = "/brokers/ids/1"
TIMEOUT_MS = 6000


def in_virtual_time(test: Callable[[MemoryZooKeeper], Coroutine[Any, Any, None]]) -> Any:
    """Run the test on an empty ZooKeeper with a clock that jumps."""

    def run() -> None:
        run_in_virtual_time(test(MemoryZooKeeper()))

    return run


async def session_of(zookeeper: MemoryZooKeeper) -> MemorySession:
    session = zookeeper.session()
    await session.start()
    for path in STARTUP_PATHS:
        await session.ensure_path(path)
    return session


def broker(session: MemorySession, broker_id: int = 1, port: int = 9092) -> Registration:
    node = BrokerId((Endpoint("PLAINTEXT", "host", port),), timestamp_ms=5)
    return Registration(session, broker_id, node, TIMEOUT_MS)


@in_virtual_time
async def test_node_is_ephemeral_and_its_czxid_is_the_epoch(zookeeper: MemoryZooKeeper) -> None:
    session = await session_of(zookeeper)
    registration = broker(session)
    epoch = await registration.register()
    data, stat = await session.get(PATH)
    assert BrokerId.decode(data).endpoints == (Endpoint("PLAINTEXT", "host", 9092),)
    assert (stat.ephemeral_owner, stat.czxid) == (session.session_id, epoch)
    assert registration.epoch == epoch


@in_virtual_time
async def test_registered_twice_in_a_session_is_registered(zookeeper: MemoryZooKeeper) -> None:
    registration = broker(await session_of(zookeeper))
    assert await registration.register() == await registration.register()


@in_virtual_time
async def test_registration_whose_answer_was_lost_counts(zookeeper: MemoryZooKeeper) -> None:
    session = await session_of(zookeeper)
    zookeeper.lose_reply(session)
    registering = asyncio.create_task(broker(session).register())
    await asyncio.sleep(1)
    zookeeper.resume(session)
    epoch = await registering
    node = await session.exists(PATH)
    assert node is not None
    assert node.czxid == epoch


@in_virtual_time
async def test_new_session_gets_a_later_epoch(zookeeper: MemoryZooKeeper) -> None:
    session = await session_of(zookeeper)
    registration = broker(session)
    before = await registration.register()
    zookeeper.expire(session)
    assert await registration.register() > before


@in_virtual_time
async def test_node_of_the_brokers_own_last_session_is_replaced(
    zookeeper: MemoryZooKeeper,
) -> None:
    """A server may still have the node of a session that has expired for the client."""
    session = await session_of(zookeeper)
    registration = broker(session)
    before = await registration.register()
    zookeeper.open(session)  # another session for the client; the node of the first stays
    assert await registration.register() > before
    _, stat = await session.get(PATH)
    assert stat.ephemeral_owner == session.session_id


@in_virtual_time
async def test_dead_predecessor_at_the_same_address_is_outlived(
    zookeeper: MemoryZooKeeper,
) -> None:
    killed, restarted = await session_of(zookeeper), await session_of(zookeeper)
    await broker(killed).register()
    registering = asyncio.create_task(broker(restarted).register())
    await asyncio.sleep(TIMEOUT_MS / 1000)
    assert not registering.done()
    zookeeper.expire(killed)
    await registering
    _, stat = await restarted.get(PATH)
    assert stat.ephemeral_owner == restarted.session_id


@in_virtual_time
async def test_addresses_that_change_while_a_predecessor_is_outlived_are_registered(
    zookeeper: MemoryZooKeeper,
) -> None:
    killed, restarted = await session_of(zookeeper), await session_of(zookeeper)
    await broker(killed).register()
    registration = broker(restarted)
    registering = asyncio.create_task(registration.register())
    await asyncio.sleep(TIMEOUT_MS / 1000)
    moved = Endpoint("PLAINTEXT", "host", 9192)
    await registration.advertise((moved,))
    zookeeper.expire(killed)
    await registering
    assert BrokerId.decode((await restarted.get(PATH))[0]).endpoints == (moved,)


@in_virtual_time
async def test_predecessor_that_does_not_go_is_named(zookeeper: MemoryZooKeeper) -> None:
    await broker(await session_of(zookeeper)).register()
    with pytest.raises(AlreadyRegistered, match=r"broker id 1 .*host:9092"):
        await broker(await session_of(zookeeper)).register()
    assert asyncio.get_running_loop().time() == pytest.approx(2 * TIMEOUT_MS / 1000)


@in_virtual_time
async def test_living_broker_with_the_same_id_is_refused_at_once(
    zookeeper: MemoryZooKeeper,
) -> None:
    await broker(await session_of(zookeeper), port=9093).register()
    with pytest.raises(AlreadyRegistered, match=r"broker id 1 .*host:9093"):
        await broker(await session_of(zookeeper)).register()
    assert asyncio.get_running_loop().time() == 0


@in_virtual_time
async def test_address_of_another_broker_is_refused(zookeeper: MemoryZooKeeper) -> None:
    await broker(await session_of(zookeeper), broker_id=7).register()
    with pytest.raises(AlreadyRegistered, match=r"broker 7 .*host:9092"):
        await broker(await session_of(zookeeper)).register()


@in_virtual_time
async def test_unreadable_node_of_another_broker_is_passed_over(
    zookeeper: MemoryZooKeeper,
) -> None:
    session = await session_of(zookeeper)
    await session.create("/brokers/ids/7", b"{")
    await broker(session).register()
    assert await session.exists(PATH) is not None


@in_virtual_time
async def test_child_whose_name_is_no_number_is_passed_over(zookeeper: MemoryZooKeeper) -> None:
    session = await session_of(zookeeper)
    for name in ("seven", "-7", "7²"):
        await session.create(f"/brokers/ids/{name}", b"{}")
    await broker(session).register()
    assert await session.exists(PATH) is not None


@in_virtual_time
async def test_session_that_expires_meanwhile_registers_nothing(
    zookeeper: MemoryZooKeeper,
) -> None:
    session = await session_of(zookeeper)
    zookeeper.suspend(session)
    registering = asyncio.create_task(broker(session).register())
    await asyncio.sleep(1)
    zookeeper.expire(session)
    zookeeper.resume(session)
    with pytest.raises(SessionExpired):
        await registering
    assert await session.exists(PATH) is None
