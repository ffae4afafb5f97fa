"""Loops in a test's own time."""

import asyncio
import socket

import pytest

from tests.stage.clock import ImpatientLoop, run_in_own_time

LONG_S = 3600.0


def test_impatient_loop_skips_a_wait_in_which_nothing_comes() -> None:
    async def scene() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(LONG_S)
        return loop.time() - began

    assert run_in_own_time(scene(), 2 * LONG_S, ImpatientLoop) >= LONG_S


def test_impatient_loop_hears_what_comes_before_a_wait_ends() -> None:
    async def scene() -> bytes:
        left, right = socket.socketpair()
        with left:
            reader, writer = await asyncio.open_connection(sock=right)
            asyncio.get_running_loop().call_later(LONG_S, left.sendall, b"late")
            async with asyncio.timeout(2 * LONG_S):
                received = await reader.read(4)
            writer.close()
            return received

    assert run_in_own_time(scene(), 3 * LONG_S, ImpatientLoop) == b"late"


@pytest.mark.parametrize(
    ("host", "raised"), [("t", socket.gaierror), ("a..b", UnicodeError), ("no\0host", ValueError)]
)
def test_impatient_loop_asks_nobody_for_a_name(host: str, raised: type[Exception]) -> None:
    with pytest.raises(raised):
        run_in_own_time(asyncio.open_connection(host, 9092), loop=ImpatientLoop)
