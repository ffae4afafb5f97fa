"""A real session and servers that freeze, die, or never answer."""

import asyncio
import os
import signal
import time
from typing import Any

import pytest

from tests.stage.network import Relay
from tests.stage.processes import frozen
from tests.stage.sessions import (
    PATIENCE_S,
    SESSION_MS,
    SHORT_SESSION_MS,
    Events,
    MemoryStage,
    RealStage,
    reached,
)
from tests.stage.waiting import until
from zk.api import ConnectionLoss, SessionExpired, SessionState, WatchEvent, ZkSession
from zk.embedded import EmbeddedZooKeeper
from zk.session import KazooSession


def test_memory_write_whose_reply_is_lost_is_applied() -> None:
    stage = MemoryStage()

    async def scenario(zk: ZkSession, other: ZkSession) -> None:
        stage.zookeeper.lose_reply(zk)  # type: ignore[arg-type]
        with pytest.raises(ConnectionLoss):
            await zk.create("/node", None)
        assert zk.state is SessionState.SUSPENDED
        assert await other.exists("/node")

    stage.run(scenario)


def test_start_names_the_hosts_that_do_not_answer() -> None:
    async def scenario() -> None:
        session = KazooSession("127.0.0.1:1,127.0.0.1:2/x", connection_timeout_ms=200)
        with pytest.raises(ConnectionLoss, match=r"127\.0\.0\.1:1,127\.0\.0\.1:2 within 200 ms"):
            await session.start()
        assert session.state is SessionState.CLOSED

    asyncio.run(scenario())


def test_session_timeout_is_the_one_the_server_grants(zookeeper: str) -> None:
    async def scenario() -> int:
        session = KazooSession(zookeeper, session_timeout_ms=10, connection_timeout_ms=SESSION_MS)
        await session.start()
        await session.close()
        return session.session_timeout_ms

    assert asyncio.run(scenario()) == 1000


def test_calls_made_before_the_expiry_are_not_sent_in_the_next_session(zk_chroot: str) -> None:
    stage = RealStage(zk_chroot, SHORT_SESSION_MS)

    async def scenario(zk: KazooSession) -> None:
        attempts: list[asyncio.Task[str]] = []

        async def keep_trying(session_id: int) -> None:
            while zk.session_id == session_id:
                attempts.append(asyncio.ensure_future(zk.create(f"/late-{len(attempts)}", None)))
                await asyncio.sleep(0.05)

        expiring = asyncio.ensure_future(stage.expire(zk))
        await reached(zk, SessionState.SUSPENDED)
        await keep_trying(zk.session_id)
        await expiring
        results = await asyncio.gather(*attempts, return_exceptions=True)
        assert {type(result) for result in results} <= {ConnectionLoss, SessionExpired}
        assert type(results[-1]) is SessionExpired
        assert (await zk.children("/"))[0] == []

    stage.run(scenario)


def test_one_who_keeps_asking_a_frozen_server_is_suspended_in_time(
    zookeeper_server: EmbeddedZooKeeper, zk_chroot: str
) -> None:
    async def scenario() -> None:
        session = KazooSession(zk_chroot, session_timeout_ms=8000)
        await session.start()
        session_id = session.session_id
        asked_at = time.monotonic()
        await session.exists("/")
        with frozen(zookeeper_server.pid):
            frozen_at = time.monotonic()
            async with asyncio.timeout(PATIENCE_S):
                while session.state is SessionState.CONNECTED:
                    asking = asyncio.ensure_future(session.exists("/"))
                    asking.add_done_callback(lambda done: done.exception())
                    await asyncio.sleep(0.05)
            suspended_after = time.monotonic() - frozen_at
        assert suspended_after < 8
        assert session.suspended_since_ms is not None
        assert asked_at - 0.001 <= session.suspended_since_ms / 1000 < frozen_at + 1
        await reached(session, SessionState.CONNECTED)
        assert session.session_id == session_id
        await session.close()

    asyncio.run(scenario())


def test_a_loop_that_was_busy_knows_since_when_the_server_has_been_silent(
    zookeeper_server: EmbeddedZooKeeper, zk_chroot: str
) -> None:
    async def scenario() -> None:
        session = KazooSession(zk_chroot, session_timeout_ms=1500, connection_timeout_ms=SESSION_MS)
        await session.start()
        with frozen(zookeeper_server.pid):
            frozen_at = time.monotonic()
            while session.silence_ms < 2000:
                pass  # another thread gives the server up meanwhile
            await reached(session, SessionState.SUSPENDED)
        assert session.suspended_since_ms is not None
        assert session.suspended_since_ms / 1000 < frozen_at + 0.5
        await session.close()

    asyncio.run(scenario())


def test_a_watch_event_is_no_sign_that_the_server_hears_us(zookeeper: str, zk_chroot: str) -> None:
    """The session lives on only if the server receives pings; events come as long as it sends."""
    events = 10

    async def scenario() -> None:
        relay = await Relay.open(zookeeper)
        chroot = zk_chroot.partition("/")[2]
        session = KazooSession(f"{relay.address}/{chroot}", session_timeout_ms=SESSION_MS)
        other = KazooSession(zk_chroot, session_timeout_ms=SESSION_MS)
        await session.start()
        await other.start()
        watch_events = Events()
        for number in range(events):
            await session.exists(f"/{number}", watch_events)
        relay.mute()
        muted_at = time.monotonic()
        for number in range(events):
            await other.create(f"/{number}", None)
            await watch_events.next()
            await asyncio.sleep(0.05)
            assert session.silence_ms >= int((time.monotonic() - muted_at) * 1000) - 10
        relay.open_again()
        await other.close()
        await session.close()
        await relay.end()

    asyncio.run(scenario())


def test_an_answer_that_came_while_the_loop_stood_still_counts(zk_chroot: str) -> None:
    async def scenario() -> None:
        session = KazooSession(zk_chroot, session_timeout_ms=1000, connection_timeout_ms=SESSION_MS)
        await session.start()
        states: list[SessionState] = []
        session.add_state_listener(states.append)
        asking = asyncio.ensure_future(session.exists("/"))
        await asyncio.sleep(0)
        asked_at = time.monotonic()
        while time.monotonic() < asked_at + 1.5:
            pass  # another thread hears the answer meanwhile
        assert await asking
        assert states == []
        await session.close()

    asyncio.run(scenario())


def test_close_does_not_wait_long_for_a_frozen_server(
    zookeeper_server: EmbeddedZooKeeper, zk_chroot: str
) -> None:
    async def scenario() -> float:
        session = KazooSession(zk_chroot, session_timeout_ms=1000, connection_timeout_ms=SESSION_MS)
        await session.start()
        with frozen(zookeeper_server.pid):
            asked_at = time.monotonic()
            await session.close()
            return time.monotonic() - asked_at

    assert asyncio.run(scenario()) < 6  # kazoo would wait ten


def test_a_server_killed_and_started_again_continues_the_session(tmp_path: Any) -> None:
    async def scenario() -> None:
        async with EmbeddedZooKeeper(tmp_path) as server:
            session = KazooSession(server.connect_string, session_timeout_ms=20_000)
            await session.start()
            session_id = session.session_id
            events = Events()
            await session.create("/mine", b"x", ephemeral=True)
            await session.get("/mine", watch=events)
            os.kill(server.pid, signal.SIGKILL)
            await reached(session, SessionState.SUSPENDED)
            await server.stop()
            await server.start()
            await reached(session, SessionState.CONNECTED)
            assert session.session_id == session_id
            await session.set("/mine", b"y")
            assert await events.next() == WatchEvent("changed", "/mine")
            await session.close()

    asyncio.run(scenario())


def test_a_server_that_never_answers_a_connection_does_not_cost_the_session(
    zookeeper: str,
) -> None:
    async def scenario() -> None:
        relay = await Relay.open(zookeeper)
        session = KazooSession(relay.address, session_timeout_ms=9000)
        await session.start()
        session_id = session.session_id
        relay.close()
        await reached(session, SessionState.SUSPENDED)
        relay.open_again()
        relay.silence()
        await until(lambda: relay.swallowed_bytes, "bytes that are swallowed")
        relay.open_again()
        await reached(session, SessionState.CONNECTED)
        assert session.session_id == session_id
        await session.close()
        await relay.end()

    asyncio.run(scenario())
