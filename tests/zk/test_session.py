"""Both ZkSessions pass these tests: the one in memory, and kazoo's on real ZooKeepers.

The tests at the end are for kazoo's alone: they need a process or a network.
"""

import asyncio
import os
import signal
import time
import weakref
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
    SessionStage,
    reached,
)
from tests.stage.waiting import until
from tests.stage.zookeeper import VERSIONS, ZooKeepers, zookeeper_session
from zk.api import (
    BadVersion,
    Check,
    ConnectionLoss,
    Create,
    Delete,
    MultiFailed,
    NoChroot,
    NodeExists,
    NoNode,
    NotEmpty,
    RequestTooLarge,
    SessionExpired,
    SessionState,
    SetData,
    Stat,
    WatchEvent,
    ZkError,
    ZkSession,
)
from zk.embedded import EmbeddedZooKeeper
from zk.session import KazooSession

WORLDS = ["memory", *VERSIONS]


@pytest.fixture(params=WORLDS)
def stage(request: pytest.FixtureRequest) -> SessionStage:
    return world_of(request, SESSION_MS)


@pytest.fixture(params=WORLDS)
def brief_world(request: pytest.FixtureRequest) -> SessionStage:
    """A stage with a short session timeout."""
    return world_of(request, SHORT_SESSION_MS)


def world_of(request: pytest.FixtureRequest, session_timeout_ms: int) -> SessionStage:
    if request.param == "memory":
        return MemoryStage()
    zookeepers: ZooKeepers = request.getfixturevalue("zookeepers")
    return RealStage(zookeepers.chroot(request.param), session_timeout_ms)


# Nodes


@pytest.mark.parametrize("data", [None, b"", b"\x00\xff"], ids=["null", "empty", "bytes"])
def test_created_data_reads_back_as_it_was(stage: SessionStage, data: bytes | None) -> None:
    async def scenario(zk: ZkSession) -> Any:
        assert await zk.create("/node", data) == "/node"
        return (await zk.get("/node"))[0]

    assert stage.run(scenario) == data


def test_null_data_set_over_some_reads_back_null(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        await zk.create("/node", b"some")
        await zk.set("/node", None)
        return (await zk.get("/node"))[0]

    assert stage.run(scenario) is None


def test_what_is_not_there_is_no_node(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> None:
        assert await zk.exists("/none") is None
        for call in (zk.get, zk.children, zk.delete):
            with pytest.raises(NoNode):
                await call("/none")
        with pytest.raises(NoNode):
            await zk.set("/none", b"")
        with pytest.raises(NoNode):
            await zk.create("/none/below", b"")

    stage.run(scenario)


def test_what_is_there_is_not_created_again(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        await zk.create("/node", b"first")
        with pytest.raises(NodeExists):
            await zk.create("/node", b"second", make_parents=True)
        return (await zk.get("/node"))[0]

    assert stage.run(scenario) == b"first"


def test_parents_made_on_the_way_are_persistent_and_null(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        await zk.create("/a/b/leaf", b"x", ephemeral=True, make_parents=True)
        data, stat = await zk.get("/a/b")
        return data, stat.ephemeral_owner

    assert stage.run(scenario) == (None, 0)


def test_many_are_read_at_once_and_what_is_not_there_is_none(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> None:
        await zk.create("/a", b"x")
        await zk.create("/b", None)
        nodes = await zk.get_many(["/a", "/none", "/b", "/a/below"])
        assert nodes == [await zk.get("/a"), None, await zk.get("/b"), None]
        assert await zk.get_many([]) == []

    stage.run(scenario)


def test_more_than_one_request_reads_keep_their_order(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> None:
        await zk.multi([Create(f"/n{i}", b"%d" % i) for i in range(0, 1500, 3)])
        nodes = await zk.get_many([f"/n{i}" for i in range(1500)])
        assert [node and node[0] for node in nodes] == [
            b"%d" % i if i % 3 == 0 else None for i in range(1500)
        ]

    stage.run(scenario)


def test_sequence_counts_every_creation_below_the_parent(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        await zk.create("/queue", None)
        await zk.create("/queue/plain", None)
        await zk.delete("/queue/plain")
        first = await zk.create("/queue/n-", b"", sequence=True)
        await zk.delete(first)
        return first, await zk.create("/queue/other-", b"", sequence=True, ephemeral=True)

    assert stage.run(scenario) == ("/queue/n-0000000001", "/queue/other-0000000002")


def test_set_counts_versions_and_refuses_another(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        await zk.create("/node", b"0")
        written = (await zk.set("/node", b"1", 0)).version
        with pytest.raises(BadVersion):
            await zk.set("/node", b"2", 0)
        data, stat = await zk.get("/node")
        return written, data, stat.version

    assert stage.run(scenario) == (1, b"1", 1)


def test_delete_refuses_another_version_and_children(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> None:
        await zk.create("/node/child", None, make_parents=True)
        with pytest.raises(BadVersion):
            await zk.delete("/node", 3)
        with pytest.raises(NotEmpty):
            await zk.delete("/node", 0)
        await zk.delete("/node/child", 0)
        await zk.delete("/node", 0)
        assert await zk.exists("/node") is None

    stage.run(scenario)


def test_cversion_counts_children_created_and_deleted(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        await zk.create("/node", b"")
        await zk.create("/node/a", b"")
        await zk.create("/node/b", b"")
        await zk.set("/node/b", b"x")
        await zk.delete("/node/a")
        names, stat = await zk.children("/node")
        return names, stat.cversion, stat.num_children, stat.version, stat.mzxid == stat.czxid

    assert stage.run(scenario) == (["b"], 3, 1, 0, True)


def test_children_come_sorted(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        for name in ("b", "10", "a", "9"):
            await zk.create(f"/dir/{name}", None, make_parents=True)
        return (await zk.children("/dir"))[0]

    assert stage.run(scenario) == ["10", "9", "a", "b"]


def test_a_node_created_again_has_a_greater_czxid(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> None:
        await zk.create("/node", b"")
        first = (await zk.get("/node"))[1]
        await zk.delete("/node")
        await zk.create("/node", b"")
        changed = await zk.set("/node", b"")
        assert first.czxid < changed.czxid < changed.mzxid

    stage.run(scenario)


def test_ephemeral_has_its_sessions_id_and_no_children(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession, other: ZkSession) -> None:
        await zk.create("/mine", b"", ephemeral=True)
        stat = await other.exists("/mine")
        assert stat
        assert stat.ephemeral_owner == zk.session_id != other.session_id
        with pytest.raises(ZkError):
            await zk.create("/mine/child", b"")

    stage.run(scenario)


@pytest.mark.parametrize("path", ["/a//b", "/a/", "/a/./b", "/a/..", "/a/\0", "/a/\ue000"])
def test_what_is_no_path_is_not_created(stage: SessionStage, path: str) -> None:
    async def scenario(zk: ZkSession) -> None:
        await zk.create("/a", None)
        await zk.create("/a/b", None)
        with pytest.raises(ZkError):
            await zk.create(path, None)
        with pytest.raises(ZkError):
            await zk.multi([Create(path, None)])
        assert await zk.children("/") == (["a"], await zk.exists("/"))
        assert (await zk.children("/a"))[0] == ["b"]

    stage.run(scenario)


def test_ensure_path_makes_what_is_missing_and_may_be_repeated(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        await zk.create("/a", b"kept")
        for _ in range(2):
            await zk.ensure_path("/a/b/c")
        return [(await zk.get(path))[0] for path in ("/a", "/a/b", "/a/b/c")]

    assert stage.run(scenario) == [b"kept", None, None]


def test_delete_recursive_takes_all_below_and_nothing_beside(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        for path in ("/a/b/c", "/a/b/d", "/a/e", "/ab"):
            await zk.ensure_path(path)
        await zk.delete_recursive("/a")
        await zk.delete_recursive("/a")
        return (await zk.children("/"))[0]

    assert stage.run(scenario) == ["ab"]


# Multi


def test_multi_does_all_and_answers_each(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> None:
        await zk.create("/epoch", b"1")
        results = await zk.multi(
            [
                Check("/epoch", 0),
                Create("/null", None),
                Create("/mine", b"", ephemeral=True),
                SetData("/null", b"x", 0),
                Delete("/epoch", 0),
            ]
        )
        stat = await zk.exists("/null")
        mine = await zk.exists("/mine")
        assert results == [None, "/null", "/mine", stat, None]
        assert stat
        assert mine
        assert stat.czxid == mine.czxid
        assert mine.ephemeral_owner == zk.session_id
        assert await zk.exists("/epoch") is None

    stage.run(scenario)


def test_multi_creates_null_data(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        await zk.multi([Create("/null", None), Create("/empty", b"")])
        return [(await zk.get(path))[0] for path in ("/null", "/empty")]

    assert stage.run(scenario) == [None, b""]


@pytest.mark.parametrize(
    ("op", "error"),
    [
        (Check("/epoch", 7), BadVersion),
        (SetData("/epoch", b"2", 7), BadVersion),
        (Create("/epoch", None), NodeExists),
        (Create("/none/child", None), NoNode),
        (Delete("/none"), NoNode),
        (Delete("/dir"), NotEmpty),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, type) else value.__name__,
)
def test_multi_does_nothing_when_one_fails_and_says_which(
    stage: SessionStage, op: Any, error: type[ZkError]
) -> None:
    async def scenario(zk: ZkSession) -> None:
        await zk.create("/epoch", b"1")
        await zk.ensure_path("/dir/child")
        with pytest.raises(MultiFailed) as failed:
            await zk.multi([Create("/new", None), op, SetData("/epoch", b"3")])
        assert failed.value.index == 1
        assert type(failed.value.error) is error
        assert await zk.exists("/new") is None
        assert (await zk.get("/epoch"))[0] == b"1"

    stage.run(scenario)


def test_multi_of_nothing_does_nothing(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        return await zk.multi([])

    assert stage.run(scenario) == []


# Order


def test_calls_in_flight_are_done_in_the_order_they_were_made(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> None:
        await zk.create("/queue", None)
        paths = await asyncio.gather(
            *(zk.create("/queue/n-", b"%d" % i, sequence=True) for i in range(400))
        )
        assert paths == [f"/queue/n-{i:010d}" for i in range(400)]

    stage.run(scenario)


def test_what_one_session_wrote_another_reads_after_sync(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession, other: ZkSession) -> Any:
        await zk.create("/node", b"x")
        await other.sync("/node")
        return (await other.get("/node"))[0]

    assert stage.run(scenario) == b"x"


# Watches


def test_watch_on_data_fires_once(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession, other: ZkSession) -> Any:
        events = Events()
        await zk.create("/node", b"")
        await zk.get("/node", watch=events)
        await other.set("/node", b"1")
        await other.set("/node", b"2")
        first = await events.next()
        await zk.sync("/node")
        return first, events.so_far()

    assert stage.run(scenario) == (WatchEvent("changed", "/node"), [])


def test_watch_fires_before_a_read_shows_the_change(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession, other: ZkSession) -> Any:
        events = Events()
        await zk.create("/node", b"old")
        await zk.get("/node", watch=events)
        reads = [asyncio.ensure_future(zk.get("/node")) for _ in range(20)]
        await other.set("/node", b"new")
        reads += [asyncio.ensure_future(zk.get("/node")) for _ in range(20)]
        for read in reads:
            read.add_done_callback(lambda done: seen.append((done.result()[0], events.so_far())))
        seen: list[tuple[bytes | None, list[WatchEvent]]] = []
        await asyncio.gather(*reads)
        first_new = next(i for i, (data, _) in enumerate(seen) if data == b"new")
        return [event for _, fired in seen[: first_new + 1] for event in fired]

    assert stage.run(scenario) == [WatchEvent("changed", "/node")]


def test_watch_on_absence_fires_on_creation(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession, other: ZkSession) -> Any:
        events = Events()
        await zk.exists("/node", watch=events)
        await other.create("/node", None)
        return await events.next()

    assert stage.run(scenario) == WatchEvent("created", "/node")


def test_watch_on_presence_fires_on_deletion(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession, other: ZkSession) -> Any:
        events = Events()
        await zk.create("/node", None)
        await zk.exists("/node", watch=events)
        await other.delete("/node")
        return await events.next()

    assert stage.run(scenario) == WatchEvent("deleted", "/node")


@pytest.mark.parametrize("change", ["create", "delete"])
def test_watch_on_children_fires_when_one_comes_or_goes(stage: SessionStage, change: str) -> None:
    async def scenario(zk: ZkSession, other: ZkSession) -> Any:
        events = Events()
        await zk.ensure_path("/dir/there")
        await zk.children("/dir", watch=events)
        if change == "create":
            await other.create("/dir/new", None)
        else:
            await other.delete("/dir/there")
        return await events.next()

    assert stage.run(scenario) == WatchEvent("children", "/dir")


def test_watch_on_children_does_not_see_data(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        events = Events()
        await zk.ensure_path("/dir/child")
        await zk.children("/dir", watch=events)
        await zk.set("/dir", b"x")
        await zk.set("/dir/child", b"x")
        await zk.ensure_path("/dir/child/below")
        return events.so_far()

    assert stage.run(scenario) == []


def test_deletion_tells_one_who_watches_data_and_children_once(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        events = Events()
        await zk.create("/node", None)
        await zk.get("/node", watch=events)
        await zk.exists("/node", watch=events)
        await zk.children("/node", watch=events)
        await zk.delete("/node")
        return events.so_far()

    assert stage.run(scenario) == [WatchEvent("deleted", "/node")]


def test_a_read_that_failed_watches_nothing(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        events = Events()
        for read in (zk.get, zk.children):
            with pytest.raises(NoNode):
                await read("/node", watch=events)
        await zk.exists("/node", watch=lambda _: None)
        await zk.create("/node", None)
        await zk.create("/node/child", None)
        return events.so_far()

    assert stage.run(scenario) == []


def test_two_who_watch_one_node_are_both_told(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        first, second = Events(), Events()
        await zk.create("/node", None)
        await zk.get("/node", watch=first)
        await zk.get("/node", watch=second)
        await zk.set("/node", b"x")
        return first.so_far() + second.so_far()

    assert stage.run(scenario) == [WatchEvent("changed", "/node")] * 2


def test_multi_wakes_those_who_watch_in_the_order_of_its_operations(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        events = Events()
        await zk.create("/node", None)
        await zk.get("/node", watch=events)
        await zk.exists("/new", watch=events)
        await zk.multi([Create("/new", None), SetData("/node", b"x")])
        return events.so_far()

    assert stage.run(scenario) == [WatchEvent("created", "/new"), WatchEvent("changed", "/node")]


def test_a_removed_watch_hears_no_more_and_the_others_do(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        removed, kept = Events(), Events()
        await zk.ensure_path("/dir/node")
        await zk.get("/dir/node", watch=removed)
        await zk.get("/dir/node", watch=kept)
        await zk.children("/dir", watch=removed)
        await zk.exists("/dir/new", watch=removed)
        zk.remove_watch(removed)
        zk.remove_watch(removed)
        await zk.set("/dir/node", b"x")
        await zk.create("/dir/new", None)
        return removed.so_far(), kept.so_far()

    assert stage.run(scenario) == ([], [WatchEvent("changed", "/dir/node")])


def test_a_removed_watch_may_be_set_again(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        events = Events()
        await zk.create("/node", None)
        await zk.get("/node", watch=events)
        zk.remove_watch(events)
        await zk.get("/node", watch=events)
        await zk.set("/node", b"x")
        return events.so_far()

    assert stage.run(scenario) == [WatchEvent("changed", "/node")]


def test_a_removed_watch_is_not_set_again_after_a_suspension(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession, other: ZkSession) -> Any:
        events = Events()
        await zk.create("/node", None)
        await zk.get("/node", watch=events)
        zk.remove_watch(events)
        await stage.suspend(zk)
        await other.set("/node", b"x")
        await stage.resume(zk)
        await zk.sync("/")
        return events.so_far()

    assert stage.run(scenario) == []


@pytest.mark.parametrize("end", ["removed", "fired", "expired"])
def test_a_watch_that_is_over_is_held_by_nobody(end: str) -> None:
    stage = MemoryStage()

    async def scenario(zk: ZkSession) -> None:
        await zk.ensure_path("/dir/node")
        watch = Events()
        held = weakref.ref(watch)
        await zk.get("/dir/node", watch=watch)
        await zk.exists("/dir/new", watch=watch)
        await zk.children("/dir", watch=watch)
        if end == "removed":
            zk.remove_watch(watch)
        elif end == "expired":
            await stage.expire(zk)  # type: ignore[arg-type]
        else:
            await zk.create("/dir/new", None)
            await zk.set("/dir/node", b"x")
        del watch
        assert held() is None

    stage.run(scenario)


# The life of a session


def test_close_takes_the_ephemerals_with_it_at_once(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession, other: ZkSession) -> Any:
        events = Events()
        await zk.create("/mine", None, ephemeral=True)
        await zk.create("/stays", None)
        await other.exists("/mine", watch=events)
        await zk.close()
        assert await other.exists("/stays")
        return await other.exists("/mine"), await events.next()

    assert stage.run(scenario) == (None, WatchEvent("deleted", "/mine"))


def test_a_closed_session_refuses_calls_and_closes_twice(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        states: list[SessionState] = []
        zk.add_state_listener(states.append)
        await zk.close()
        await zk.close()
        with pytest.raises(SessionExpired):
            await zk.get("/")
        return states, zk.state

    assert stage.run(scenario) == ([SessionState.CLOSED], SessionState.CLOSED)


def test_a_removed_listener_hears_no_more(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        states: list[SessionState] = []
        zk.add_state_listener(states.append)
        zk.remove_state_listener(states.append)
        await zk.close()
        return states

    assert stage.run(scenario) == []


def test_a_suspension_keeps_session_and_ephemerals(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> None:
        states: list[SessionState] = []
        zk.add_state_listener(states.append)
        session_id = zk.session_id
        await zk.create("/mine", None, ephemeral=True)
        assert zk.suspended_since_ms is None
        await stage.suspend(zk)
        assert zk.suspended_since_ms is not None
        await stage.resume(zk)
        assert zk.suspended_since_ms is None
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        assert zk.session_id == session_id
        assert await zk.exists("/mine")

    stage.run(scenario)


def test_calls_fail_while_the_session_stays_suspended(brief_world: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> None:
        await brief_world.suspend(zk)
        with pytest.raises(ConnectionLoss):
            await zk.create("/node", None)

    brief_world.run(scenario)


def test_changes_during_a_suspension_are_told_after_it(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession, other: ZkSession) -> Any:
        events = Events()
        for path in ("/changed", "/deleted", "/dir", "/same", "/gone"):
            await zk.create(path, None)
        for path in ("/changed", "/deleted", "/same", "/created", "/came-and-went"):
            await zk.exists(path, watch=events)
        for path in ("/dir", "/gone"):
            await zk.children(path, watch=events)
        await stage.suspend(zk)
        await other.set("/changed", b"x")
        await other.delete("/deleted")
        await other.delete("/gone")
        await other.create("/created", None)
        await other.create("/came-and-went", None)
        await other.delete("/came-and-went")
        await other.create("/dir/child", None)
        await stage.resume(zk)
        await zk.sync("/")
        return sorted(event[::-1] for event in events.so_far())

    assert stage.run(scenario) == [
        ("/changed", "changed"),
        ("/created", "created"),
        ("/deleted", "deleted"),
        ("/dir", "children"),
        ("/gone", "deleted"),
    ]


def test_watches_that_saw_nothing_go_on_after_a_suspension(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession, other: ZkSession) -> Any:
        events = Events()
        await zk.create("/node", None)
        await zk.get("/node", watch=events)
        await zk.children("/node", watch=events)
        await zk.exists("/new", watch=events)
        await stage.suspend(zk)
        await stage.resume(zk)
        await zk.sync("/")
        quiet = events.so_far()
        await other.set("/node", b"x")
        await other.create("/node/child", None)
        await other.create("/new", None)
        return quiet, [await events.next() for _ in range(3)]

    assert stage.run(scenario) == (
        [],
        [
            WatchEvent("changed", "/node"),
            WatchEvent("children", "/node"),
            WatchEvent("created", "/new"),
        ],
    )


def test_expiry_is_told_before_the_new_session(brief_world: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> None:
        seen: list[tuple[SessionState, int]] = []
        zk.add_state_listener(lambda state: seen.append((state, zk.session_id)))
        old_id = zk.session_id
        await zk.create("/mine", None, ephemeral=True)
        await brief_world.expire(zk)
        assert seen == [
            (SessionState.SUSPENDED, old_id),
            (SessionState.EXPIRED, 0),
            (SessionState.CONNECTED, zk.session_id),
        ]
        assert zk.session_id != old_id
        assert await zk.exists("/mine") is None
        await zk.create("/mine", None, ephemeral=True)

    brief_world.run(scenario)


def test_expiry_ends_all_watches(brief_world: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        events = Events()
        await zk.create("/node", None)
        await zk.get("/node", watch=events)
        await brief_world.expire(zk)
        await zk.set("/node", b"x")
        return events.so_far()

    assert brief_world.run(scenario) == []


# What the two have not in common


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


# What a server would not take

TOO_MUCH = b"x" * (1 << 20)


def test_a_request_too_large_for_a_server_is_refused_and_the_others_go_on(
    stage: SessionStage,
) -> None:
    async def scenario(zk: ZkSession) -> None:
        states: list[SessionState] = []
        zk.add_state_listener(states.append)
        await zk.create("/node", b"")
        half = b"x" * (1 << 19)
        too_large = [
            zk.create("/new", TOO_MUCH),
            zk.set("/node", TOO_MUCH),
            zk.multi([Create("/new", half), SetData("/node", half)]),
        ]
        results = await asyncio.gather(*too_large, zk.exists("/node"), return_exceptions=True)
        assert [type(result) for result in results] == [RequestTooLarge] * 3 + [Stat]
        assert await zk.exists("/new") is None
        await zk.set("/node", half)
        assert states == []

    stage.run(scenario)


def test_what_just_fits_into_a_request_is_taken_by_every_server(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        written = b"x" * 1_040_000
        await zk.create("/node", written)
        return (await zk.get("/node"))[0] == written

    assert stage.run(scenario)


def test_more_paths_than_fit_into_a_request_are_read_in_several(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> None:
        deep = "/" + "x" * 2000
        await zk.create(deep, None)
        paths = [f"{deep}/{i}" for i in range(900)]
        await zk.multi([Create(path, b"%d" % i) for i, path in enumerate(paths[:100])])
        nodes = await zk.get_many(paths)
        assert [node and node[0] for node in nodes[:100]] == [b"%d" % i for i in range(100)]
        assert nodes[100:] == [None] * 800

    stage.run(scenario)


def test_watches_of_more_paths_than_fit_into_a_request_survive_a_suspension(
    brief_world: SessionStage,
) -> None:
    async def scenario(zk: ZkSession) -> Any:
        events = Events()
        deep = "/" + "x" * 2000
        await zk.create(deep, None)
        await asyncio.gather(*(zk.exists(f"{deep}/{i}", watch=events) for i in range(700)))
        await brief_world.suspend(zk)
        await brief_world.resume(zk)
        for i in (0, 699):
            await zk.create(f"{deep}/{i}", None)
        return [await events.next(), await events.next()]

    deep = "/" + "x" * 2000
    assert brief_world.run(scenario) == [
        WatchEvent("created", f"{deep}/0"),
        WatchEvent("created", f"{deep}/699"),
    ]


def test_a_path_that_is_no_text_is_refused_and_the_others_go_on(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> None:
        with pytest.raises(ZkError):
            await zk.create("/a\ud800", None)
        with pytest.raises(ZkError):
            await zk.multi([Create("/a\ud800", None)])
        assert await zk.exists("/a") is None

    stage.run(scenario)


def test_a_watch_that_raises_does_not_keep_others_from_hearing(zk_chroot: str) -> None:
    async def scenario(zk: KazooSession) -> Any:
        events = Events()
        await zk.create("/node", None)
        await zk.get("/node", watch=lambda _: 1 / 0)  # type: ignore[arg-type]
        await zk.get("/node", watch=events)
        await zk.set("/node", b"x")
        return events.so_far()

    assert RealStage(zk_chroot).run(scenario) == [WatchEvent("changed", "/node")]


def test_silence_grows_while_the_server_is_not_heard(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> None:
        await stage.suspend(zk)
        before_ms = zk.silence_ms
        await asyncio.sleep(0.1)
        assert zk.silence_ms >= before_ms + 90
        await stage.resume(zk)
        asked_at = time.monotonic()
        await zk.sync("/")
        heard_ago_ms = zk.silence_ms
        assert heard_ago_ms <= (time.monotonic() - asked_at) * 1000

    stage.run(scenario)
