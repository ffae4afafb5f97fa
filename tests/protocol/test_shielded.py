"""A future goes on when who waits is cancelled, and its error is nobody's."""

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any

import pytest

from protocol.shielded import wait_shielded
from tests.stage.clock import run_in_virtual_time


async def ends_with(result: int | Exception) -> int:
    await asyncio.sleep(1)
    if isinstance(result, Exception):
        raise result
    return result


def test_result_and_error_are_those_of_the_future() -> None:
    async def scenario() -> None:
        assert await wait_shielded(asyncio.ensure_future(ends_with(7))) == 7
        with pytest.raises(ValueError, match="no"):
            await wait_shielded(asyncio.ensure_future(ends_with(ValueError("no"))))

    run_in_virtual_time(scenario())


@pytest.mark.fault("strangers-79")
@pytest.mark.parametrize("result", [7, ValueError("no")])
def test_a_future_outlives_who_waits_and_its_error_is_logged_by_nobody(
    result: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        running = asyncio.ensure_future(ends_with(result))
        waiting = asyncio.create_task(call(wait_shielded(running)))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert not running.done()
        await asyncio.wait([running])
        assert not running.cancelled()
        await asyncio.sleep(0)

    run_in_virtual_time(scenario())
    gc.collect()
    assert caplog.messages == []


async def call(work: Coroutine[Any, Any, Any]) -> Any:
    return await work


def test_a_future_that_is_cancelled_cancels_who_waits() -> None:
    async def scenario() -> None:
        running = asyncio.ensure_future(ends_with(7))
        waiting = asyncio.create_task(call(wait_shielded(running)))
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()

    run_in_virtual_time(scenario())
