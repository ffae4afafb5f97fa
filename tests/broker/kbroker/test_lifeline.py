"""`run_until_stopped` ends with its work, or cancels it at a stop."""

import asyncio

import pytest

from broker.kbroker.lifeline import run_until_stopped


async def wait_forever(cleaned: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        cleaned.append("cleaned")


def test_work_that_ends_by_itself_has_finished() -> None:
    async def run() -> bool:
        return await run_until_stopped(asyncio.Event(), asyncio.sleep(0))

    assert asyncio.run(run())


def test_a_stop_cancels_the_work_and_waits_until_it_has_cleaned_up() -> None:
    cleaned: list[str] = []

    async def run() -> bool:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_soon(stop.set)
        return await run_until_stopped(stop, wait_forever(cleaned))

    assert not asyncio.run(run())
    assert cleaned == ["cleaned"]


def test_what_the_work_raises_is_raised() -> None:
    async def fail() -> None:
        raise OSError("no port")

    async def run() -> bool:
        return await run_until_stopped(asyncio.Event(), fail())

    with pytest.raises(OSError, match="no port"):
        asyncio.run(run())
