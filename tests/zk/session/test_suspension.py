"""A session that is closed, suspended, or expires."""

import asyncio
import time
from typing import Any

import pytest

from tests.stage.sessions import Events, SessionStage
from zk.api import ConnectionLoss, SessionExpired, SessionState, WatchEvent, ZkSession


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


def test_a_call_that_has_nothing_to_ask_succeeds_without_a_connection(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession, other: ZkSession) -> Any:
        await stage.suspend(zk)
        await other.close()
        for session in (zk, other):
            await session.ensure_path("/")
        return [(await session.multi([]), await session.get_many([])) for session in (zk, other)]

    assert stage.run(scenario) == [([], []), ([], [])]


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


def test_calls_fail_while_the_session_stays_suspended(brief_stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> None:
        await brief_stage.suspend(zk)
        with pytest.raises(ConnectionLoss):
            await zk.create("/node", None)

    brief_stage.run(scenario)


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


def test_expiry_is_told_before_the_new_session(brief_stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> None:
        seen: list[tuple[SessionState, int]] = []
        zk.add_state_listener(lambda state: seen.append((state, zk.session_id)))
        old_id = zk.session_id
        await zk.create("/mine", None, ephemeral=True)
        await brief_stage.expire(zk)
        assert seen == [
            (SessionState.SUSPENDED, old_id),
            (SessionState.EXPIRED, 0),
            (SessionState.CONNECTED, zk.session_id),
        ]
        assert zk.session_id != old_id
        assert await zk.exists("/mine") is None
        await zk.create("/mine", None, ephemeral=True)

    brief_stage.run(scenario)


def test_expiry_ends_all_watches(brief_stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        events = Events()
        await zk.create("/node", None)
        await zk.get("/node", watch=events)
        await brief_stage.expire(zk)
        await zk.set("/node", b"x")
        return events.so_far()

    assert brief_stage.run(scenario) == []


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
