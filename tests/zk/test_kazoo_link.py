"""The connection to ZooKeeper copes with servers that are old, silent, gone or broken."""

import asyncio
import contextlib
import gc
import os
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.stage.clock import OwnTimeLoop, run_in_own_time
from tests.stage.network import Relay, silent_host
from tests.stage.sessions import reached
from tests.stage.waiting import block_until, until
from tests.zk.scripted_zookeeper import (
    AUTH_XID,
    MULTI_READ,
    NO_NODE,
    SESSION_ID,
    ScriptedZooKeeper,
    frame,
    no_node,
    reply,
)
from zk.api import ConnectionLoss, SessionState, ZkError
from zk.kazoo_link import MAX_SET_WATCHES_BYTES, set_watches_requests
from zk.session import KazooSession

CONNECTED, SUSPENDED = SessionState.CONNECTED, SessionState.SUSPENDED
SESSIONS = 12
"""Enough sessions that some do not try the silent host last; the chance is a third for each."""


@contextlib.asynccontextmanager
async def session_with(hosts: str) -> AsyncIterator[tuple[KazooSession, list[SessionState]]]:
    """Yield a started session and the states it has been in; close it at the end."""
    session, states = KazooSession(hosts), list[SessionState]()
    session.add_state_listener(states.append)
    await session.start()
    try:
        yield session, states
    finally:
        await session.close()


# Replies that nobody can make sense of


@pytest.mark.parametrize(
    "nonsense",
    [
        lambda xid, _: reply(xid + 7),
        lambda xid, _: reply(xid) + reply(xid),
        lambda xid, _: frame(b"no header"),
        lambda xid, _: b"\xff\xff\xff\xff",
        lambda xid, _: b"HTTP/1.1 400 Bad Request\r\n\r\n",
        lambda xid, _: reply(AUTH_XID),
    ],
    ids=["wrong xid", "one too many", "no header", "negative length", "no ZooKeeper", "auth"],
)
def test_a_reply_out_of_order_breaks_the_connection_and_the_session_goes_on(nonsense: Any) -> None:
    async def scenario() -> None:
        server = ScriptedZooKeeper(nonsense)
        async with server.listening() as hosts, session_with(hosts) as (zk, states):
            with contextlib.suppress(ConnectionLoss, ZkError):
                await zk.exists("/a")
            await reached(zk, SUSPENDED)
            server.answer = no_node
            await reached(zk, CONNECTED)
            assert await zk.exists("/a") is None
            assert set(states) == {CONNECTED, SUSPENDED}
            assert server.asked_for == [0, *[SESSION_ID] * (server.connections - 1)]

    asyncio.run(scenario())


def test_calls_in_flight_when_a_reply_comes_out_of_order_are_lost_and_none_hangs() -> None:
    async def scenario() -> None:
        server = ScriptedZooKeeper(lambda xid, _: reply(xid + 1) if xid == 3 else b"")
        async with server.listening() as hosts, session_with(hosts) as (zk, _):
            calls = [zk.exists(f"/{i}") for i in range(5)]
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(result) for result in results} == {ConnectionLoss}

    asyncio.run(scenario())


def test_a_reply_whose_content_cannot_be_read_fails_its_call_alone() -> None:
    async def scenario() -> None:
        server = ScriptedZooKeeper(lambda xid, _: reply(xid, 0, b"short"))
        async with server.listening() as hosts, session_with(hosts) as (zk, states):
            with pytest.raises(ZkError, match="GetData /a: UnreadableReply"):
                await zk.get("/a")
            server.answer = no_node
            assert await zk.exists("/a") is None
            assert states == [CONNECTED]

    asyncio.run(scenario())


@pytest.mark.parametrize("code", [-102, -125, -999], ids=["no auth", "quota", "unheard of"])
def test_a_refusal_that_has_no_class_of_its_own_is_a_zk_error(code: int) -> None:
    async def scenario() -> None:
        server = ScriptedZooKeeper(lambda xid, _: reply(xid, code))
        async with server.listening() as hosts, session_with(hosts) as (zk, states):
            with pytest.raises(ZkError, match="/a"):
                await zk.create("/a", b"")
            server.answer = no_node
            assert await zk.exists("/a") is None
            assert states == [CONNECTED]

    asyncio.run(scenario())


@pytest.mark.parametrize("xid_off", [0, 1], ids=["in good order", "after nonsense"])
def test_a_closed_session_leaves_no_thread_and_no_socket(xid_off: int) -> None:
    async def scenario() -> None:
        server = ScriptedZooKeeper(lambda xid, _: reply(xid + xid_off, NO_NODE))
        async with server.listening() as hosts, session_with(hosts) as (zk, _):
            with contextlib.suppress(ConnectionLoss):
                await zk.exists("/a")

    def held() -> tuple[int, int]:
        gc.collect()  # what tests before have left is not ours
        return threading.active_count(), len(os.listdir("/proc/self/fd"))

    before = held()
    asyncio.run(scenario())
    assert held() == before


def test_a_session_whose_loop_was_closed_without_it_leaves_no_thread(zookeeper: str) -> None:
    before = threading.active_count()
    asyncio.run(KazooSession(zookeeper, session_timeout_ms=1000).start())
    block_until(lambda: threading.active_count() == before, "the end of the connection's thread")


# Servers before 3.6


def test_an_old_server_is_asked_once_for_many_reads_and_nobody_is_suspended() -> None:
    async def scenario() -> None:
        server = ScriptedZooKeeper(is_old=True)
        async with server.listening() as hosts, session_with(hosts) as (zk, states):
            assert await zk.get_many(["/a", "/b"]) == [None, None]
            assert states == [CONNECTED]
            assert server.asked_for == [0, SESSION_ID]
            assert server.types.count(MULTI_READ) == 1
            assert server.types[0] == MULTI_READ

    asyncio.run(scenario())


def test_an_old_server_that_was_asked_is_connected_to_again_before_any_other() -> None:
    async def scenario() -> None:
        servers = [ScriptedZooKeeper(is_old=True) for _ in range(3)]
        async with contextlib.AsyncExitStack() as stack:
            hosts = [await stack.enter_async_context(s.listening()) for s in servers]
            await stack.enter_async_context(session_with(",".join(hosts)))
            assert sorted(server.connections for server in servers) == [0, 0, 2]

    asyncio.run(scenario())


def test_an_old_server_is_not_asked_again_when_the_connection_breaks() -> None:
    async def scenario() -> None:
        server = ScriptedZooKeeper(is_old=True)
        async with server.listening() as target:
            relay = await Relay.open(target)
            async with session_with(relay.address) as (zk, states):
                relay.close()
                await reached(zk, SUSPENDED)
                relay.open_again()
                await reached(zk, CONNECTED)
                assert await zk.get_many(["/a"]) == [None]
                assert states == [CONNECTED, SUSPENDED, CONNECTED]
                assert server.types.count(MULTI_READ) == 1
            await relay.end()

    asyncio.run(scenario())


def test_a_newer_server_is_asked_at_each_connection_for_the_next_may_be_older() -> None:
    async def scenario() -> None:
        server = ScriptedZooKeeper()
        async with server.listening() as target:
            relay = await Relay.open(target)
            async with session_with(relay.address) as (zk, states):
                relay.close()
                await reached(zk, SUSPENDED)
                server.is_old = True
                relay.open_again()
                await reached(zk, CONNECTED)
                assert await zk.get_many(["/a"]) == [None]
                assert states == [CONNECTED, SUSPENDED, CONNECTED]
                assert server.types.count(MULTI_READ) == 2
            await relay.end()

    asyncio.run(scenario())


# Machines that are silent or gone


def test_a_server_that_no_longer_hears_us_counts_as_silent_though_it_tells_of_watches() -> None:
    async def scenario() -> None:
        server = ScriptedZooKeeper(timeout_ms=1500)
        async with server.listening() as hosts, session_with(hosts) as (zk, _):
            server.is_deaf = True
            await until(lambda: zk.silence_ms * 3 > server.timeout_ms * 2, "silence for two thirds")
            await reached(zk, SUSPENDED)
            server.is_deaf = False
            await reached(zk, CONNECTED)

    asyncio.run(scenario())


@pytest.mark.fault("groups-5")
def test_server_is_not_silent_whose_reply_came_while_the_process_stood_still() -> None:
    async def scenario() -> None:
        server = ScriptedZooKeeper(timeout_ms=1500)
        async with server.listening() as hosts, session_with(hosts) as (zk, states):
            loop = asyncio.get_running_loop()
            assert isinstance(loop, OwnTimeLoop)
            link = zk._link
            assert link is not None
            connection = link._connection
            before = link._watchdog

            # After SIGSTOP the loop's timers may come before kazoo's thread has read anything.
            connection.last_reply_at_s = time.monotonic() - 2
            loop.work(5)
            await until(lambda: link._watchdog is not before, "a look")
            read_s = connection.last_reply_at_s = time.monotonic()
            await until(lambda: connection.last_reply_at_s > read_s, "another reply")
            assert states == [CONNECTED]

    run_in_own_time(scenario())


def test_silence_counts_from_what_was_sent_however_late_its_answer_is_read() -> None:
    async def scenario() -> None:
        asked: list[int] = []
        server = ScriptedZooKeeper(lambda xid, _: asked.append(xid) or b"", timeout_ms=60_000)
        async with server.listening() as hosts, session_with(hosts) as (zk, _):
            asking = asyncio.ensure_future(zk.exists("/a"))
            await until(lambda: asked, "a request")
            before_ms = zk.silence_ms
            await until(lambda: zk.silence_ms > before_ms + 300, "silence")
            assert server.writer
            server.writer.write(reply(asked[0], NO_NODE))
            assert await asking is None
            assert zk.silence_ms > 250

    asyncio.run(scenario())


def test_with_one_silent_machine_of_three_every_session_starts_and_none_expires(
    zookeeper: str,
) -> None:
    async def scenario() -> None:
        relays = [await Relay.open(zookeeper) for _ in range(2)]
        async with contextlib.AsyncExitStack() as stack:
            silent = stack.enter_context(silent_host())
            hosts = ",".join([silent, *(relay.address for relay in relays)])
            entered = await asyncio.gather(
                *(stack.enter_async_context(session_with(hosts)) for _ in range(SESSIONS))
            )
            ids = [zk.session_id for zk, _ in entered]
            for relay in relays:
                relay.close()
                relay.open_again()
            await until(lambda: all(states[1:] for _, states in entered), "all were suspended")
            await until(
                lambda: all(zk.state is CONNECTED for zk, _ in entered), "all are connected"
            )
            assert [zk.session_id for zk, _ in entered] == ids
        for relay in relays:
            await relay.end()

    asyncio.run(scenario())


def test_hosts_are_tried_in_turn_and_none_twice_before_the_others() -> None:
    async def scenario() -> None:
        tried: list[str] = []
        rounds = 4

        def refusing(name: str) -> Any:
            async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                tried.append(name)
                writer.close()

            return refuse

        names = ("a", "b", "c", "d")
        servers = [await asyncio.start_server(refusing(n), "127.0.0.1", 0) for n in names]
        ports = [server.sockets[0].getsockname()[1] for server in servers]
        session = KazooSession(",".join(f"127.0.0.1:{port}" for port in ports))
        starting = asyncio.ensure_future(session.start())
        await until(lambda: len(tried) >= rounds * len(names), "all hosts are tried")
        starting.cancel()
        await asyncio.wait([starting])
        for server in servers:
            server.close()
        assert set(tried[:4]) == set(names)
        assert tried[: rounds * 4] == tried[:4] * rounds

    asyncio.run(scenario())


@pytest.mark.fault("tool-L1")
def test_a_server_that_refuses_the_session_is_said_to_have_no_quorum_or_to_have_lost_its_data(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The JVM's ZooKeeper does so with a session that has seen a later zxid than it has."""

    def lines() -> list[str]:
        return [line for line in caplog.messages if "did it lose its data?" in line]

    async def scenario() -> None:
        server = ScriptedZooKeeper()
        async with server.listening() as hosts, session_with(hosts) as (zk, _):
            assert await zk.exists("/a") is None
            server.refuses = True
            assert server.writer is not None
            server.writer.close()
            await until(lambda: bool(lines()), "the log says what it may be")
            assert f"ZooKeeper at {hosts} accepts connections and refuses the session" in lines()[0]
            # It is said once, and the session goes on when the server takes it.
            refused = server.connections
            await until(lambda: server.connections > refused + 1, "it is tried again")
            server.refuses = False
            await reached(zk, CONNECTED)

    asyncio.run(scenario())
    assert len(lines()) == 1


def test_a_name_that_means_nothing_does_not_keep_the_others_from_being_tried() -> None:
    async def scenario() -> None:
        async with ScriptedZooKeeper().listening() as hosts:
            unknown = f"no-such-host.invalid:1,a..b:1,{'x' * 70}:1,{hosts}"
            async with session_with(unknown) as (zk, _):
                assert await zk.exists("/a") is None

    asyncio.run(scenario())


@pytest.mark.parametrize("hosts", ["127.0.0.1:99999", "127.0.0.1:zk", "", ":2181"])
def test_an_address_that_is_none_is_named(hosts: str) -> None:
    async def scenario() -> None:
        session = KazooSession(hosts)
        with pytest.raises(ZkError, match=f"zookeeper.connect: {hosts}: "):
            await session.start()
        assert session.state is SessionState.CLOSED

    asyncio.run(scenario())


# Watches that are given to the server again


@pytest.mark.parametrize("count", [0, 1, 3000])
def test_watches_are_set_again_in_requests_of_a_bounded_size(count: int) -> None:
    data, absent, children = ([f"/{kind}/{'x' * 100}{i}" for i in range(count)] for kind in "dac")
    requests = list(set_watches_requests(7, data, absent, children))
    assert [path for r in requests for path in r.data] == data
    assert [path for r in requests for path in r.absent] == absent
    assert [path for r in requests for path in r.children] == children
    assert {r.zxid for r in requests} <= {7}
    assert all(len(r.serialize()) <= MAX_SET_WATCHES_BYTES + 20 for r in requests)
    assert len(requests) <= 1 + 3 * count * 120 // (MAX_SET_WATCHES_BYTES - 120)


def test_a_path_longer_than_a_request_should_be_is_set_again_all_the_same() -> None:
    long = "/" + "x" * MAX_SET_WATCHES_BYTES
    requests = list(set_watches_requests(7, ["/a", long, "/b"], [], []))
    assert [r.data for r in requests] == [["/a"], [long], ["/b"]]
