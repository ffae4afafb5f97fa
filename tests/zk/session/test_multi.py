"""Transactions of a session, and the order of its calls."""

import asyncio
from typing import Any

import pytest

from tests.stage.sessions import SessionStage
from zk.api import (
    BadVersion,
    Check,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    NotEmpty,
    SetData,
    ZkError,
    ZkSession,
)


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
