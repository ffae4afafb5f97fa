"""Chroots of a real session: made, missing, and deleted under it."""

import asyncio

import pytest

from tests.stage.network import Relay
from tests.stage.sessions import RealStage, reached
from tests.stage.zookeeper import zookeeper_session
from zk.api import ConnectionLoss, NoChroot, NoNode, SessionState
from zk.session import KazooSession


def test_a_chroot_that_does_not_exist_is_an_error_and_is_not_created(zookeeper: str) -> None:
    async def scenario() -> None:
        mistyped = KazooSession(f"{zookeeper}/kafkaa/x")
        with pytest.raises(NoChroot, match=rf"the chroot /kafkaa/x does not exist .* {zookeeper}"):
            await mistyped.start()
        assert mistyped.state is SessionState.CLOSED
        async with zookeeper_session(zookeeper) as root:
            assert await root.exists("/kafkaa") is None

    asyncio.run(scenario())


def test_a_broker_creates_its_chroot_and_may_find_it_there(zookeeper: str) -> None:
    async def scenario() -> None:
        for _ in range(2):
            session = KazooSession(f"{zookeeper}/new/chroot", create_chroot=True)
            await session.start()
            assert await session.exists("/")
            await session.close()

    asyncio.run(scenario())


def test_a_chroot_that_is_deleted_under_a_session_is_not_made_again(
    zookeeper: str, zk_chroot: str
) -> None:
    async def scenario(zk: KazooSession) -> None:
        chroot = zk_chroot.removeprefix(zookeeper)
        async with zookeeper_session(zookeeper) as root:
            await root.delete(chroot)
            with pytest.raises(NoNode):
                await zk.ensure_path("/consumers/g/ids")
            with pytest.raises(NoNode):
                await zk.create("/consumers/g", None, make_parents=True)
            assert await root.exists(chroot) is None

    RealStage(zk_chroot).run(scenario)


async def test_chroot_is_looked_for_when_a_server_that_was_away_at_the_start_comes(
    zookeeper: str, zk_chroot: str
) -> None:
    relay = await Relay.open(zookeeper)
    relay.close()
    there, mistyped = (
        KazooSession(relay.address + chroot, connection_timeout_ms=200)
        for chroot in (zk_chroot.removeprefix(zookeeper), "/kafkaa/x")
    )
    for session in (there, mistyped):
        await session.start(must_connect=False)
        with pytest.raises(ConnectionLoss, match="no session with ZooKeeper"):
            await session.children("/")

    relay.open_again()
    for session in (there, mistyped):
        await reached(session, SessionState.CONNECTED)
    assert (await there.children("/"))[0] == []
    with pytest.raises(NoChroot, match="the chroot /kafkaa/x does not exist"):
        await mistyped.children("/")
    for session in (there, mistyped):
        await session.close()
    await relay.end()
