"""Watches of a session: what they tell, when, and how often."""

import asyncio
import weakref
from typing import Any

import pytest

from tests.stage.sessions import Events, MemoryStage, RealStage, SessionStage
from zk.api import Create, NoNode, SetData, WatchEvent, ZkSession
from zk.session import KazooSession


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


def test_a_watch_that_raises_does_not_keep_others_from_hearing(zk_chroot: str) -> None:
    async def scenario(zk: KazooSession) -> Any:
        events = Events()
        await zk.create("/node", None)
        await zk.get("/node", watch=lambda _: 1 / 0)  # type: ignore[arg-type]
        await zk.get("/node", watch=events)
        await zk.set("/node", b"x")
        return events.so_far()

    assert RealStage(zk_chroot).run(scenario) == [WatchEvent("changed", "/node")]
