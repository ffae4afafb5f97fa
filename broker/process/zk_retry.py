"""Repeat a call to ZooKeeper until it responds: Kafka's `retryRequestUntilConnected`.

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
