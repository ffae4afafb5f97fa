"""Repeat a call to ZooKeeper until it responds: Kafka's `retryRequestUntilConnected`.

Whoever reads for a client waits for a silent ZooKeeper no longer than clients wait for brokers.

After a lost connection it is unknown whether the request was carried out. A caller that retries a
write must therefore tell "done already" from "another one was first" when the second try fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from zk.api import ConnectionLoss, SessionExpired, ZkSession

T = TypeVar("T")

PAUSE_S = 0.05
"""Between two tries. A session without a connection makes calls wait, but some fail at once."""
PATIENCE_MS = 3_000
"""Time for which a response to a client waits for a silent ZooKeeper: commands wait for 5 s."""
IS_SILENT = "ZooKeeper does not answer"


async def retry_until_connected(zk: ZkSession, call: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `call()`, which is repeated after each lost connection.

    Raises SessionExpired when the session that it began in has ended, because the call must not be
    repeated in another one.
    """
    session_id = zk.session_id
    while True:
        try:
            return await call()
        except ConnectionLoss:
            await asyncio.sleep(PAUSE_S)

        # A session that expired meanwhile may have been replaced already.
        if zk.session_id != session_id:
            raise SessionExpired(f"session {session_id:#x} ended before the response")


async def answers_soon(zk: ZkSession) -> bool:
    """Return whether ZooKeeper answers a small question within PATIENCE_MS.

    What is asked for next may take longer. Raises ZkError.
    """
    try:
        async with asyncio.timeout(PATIENCE_MS / 1000):
            await retry_until_connected(zk, lambda: zk.exists("/"))
    except TimeoutError:
        return False
    return True
