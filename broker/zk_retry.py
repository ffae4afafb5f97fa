"""Ask ZooKeeper until it answers: what Kafka calls retrying until connected.

A lost connection says nothing about whether a request was carried out. Whoever retries a write
must therefore tell "done already" from "somebody else was first" when the second try fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from zk.api import ConnectionLoss, SessionExpired, ZkSession

T = TypeVar("T")

PAUSE_SECONDS = 0.05  # a session without connection makes calls wait; one that fails at once, not


async def retry_until_connected(zk: ZkSession, call: Callable[[], Awaitable[T]]) -> T:
    """What `call()` gives, called again after each lost connection.

    Raises SessionExpired when the session it began under ends: what was meant for one session
    must not be done under the next.
    """
    session_id = zk.session_id
    while True:
        try:
            return await call()
        except ConnectionLoss:
            await asyncio.sleep(PAUSE_SECONDS)
        if zk.session_id != session_id:
            raise SessionExpired(f"session {session_id:#x} ended before the answer")
