"""Requests that are too large for a server, and paths that are no text."""

import asyncio
from typing import Any

import pytest

from tests.stage.sessions import Events, SessionStage
from zk.api import (
    Create,
    RequestTooLarge,
    SessionState,
    SetData,
    Stat,
    WatchEvent,
    ZkError,
    ZkSession,
)

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
    brief_stage: SessionStage,
) -> None:
    async def scenario(zk: ZkSession) -> Any:
        events = Events()
        deep = "/" + "x" * 2000
        await zk.create(deep, None)
        await asyncio.gather(*(zk.exists(f"{deep}/{i}", watch=events) for i in range(700)))
        await brief_stage.suspend(zk)
        await brief_stage.resume(zk)
        for i in (0, 699):
            await zk.create(f"{deep}/{i}", None)
        return [await events.next(), await events.next()]

    deep = "/" + "x" * 2000
    assert brief_stage.run(scenario) == [
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
