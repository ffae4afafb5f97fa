"""Leaving in good order: before it stops, a broker has the controller move its leaders elsewhere.

It is an offer, not a condition. Where the controller cannot be reached or cannot move everything,
the broker asks again a few times (`controlled.shutdown.max.retries`), and then stops as if it had
been killed. Where no other broker is registered, nobody can take over, and it stops at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import attrs

from clients.transport.connection import Connection, ConnectionFailed, UnsupportedApi
from protocol.errors import ErrorCode
from protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from zk.api import NoNode, SessionState, ZkError, ZkSession
from zk.znodes import BrokerId, Controller, Endpoint, ZnodeError

logger = logging.getLogger(__name__)

ZOOKEEPER_SECONDS = 3.0
"""How long ZooKeeper may take to answer a broker that wants to stop."""
LOOK_SECONDS = 0.2
"""How often, while it waits to ask again, it looks whether there is still another broker."""


@attrs.frozen
class ShutdownConfig:
    """The settings `controlled.shutdown.*`."""

    enable: bool = True
    max_retries: int = 3
    retry_backoff_ms: int = 5000


@attrs.frozen
class ControlledShutdown:
    """The way out of one broker, registered at `epoch()`.

    `connect(host, port)` raises ConnectionFailed.
    """

    zk: ZkSession
    broker_id: int
    epoch: Callable[[], int]
    listener: str
    connect: Callable[[str, int], Awaitable[Connection]]
    config: ShutdownConfig

    async def prepare(self) -> None:
        """Return when the broker may stop: its leaders are moved, or cannot be."""
        if not self.config.enable or self.zk.state is not SessionState.CONNECTED:
            return
        for retries_left in range(self.config.max_retries, -1, -1):
            try:
                if await self._is_alone() or await self._ask():
                    return
                if retries_left:
                    await self._pause()
            except (ZkError, TimeoutError) as error:
                logger.warning("controlled shutdown: ZooKeeper: %r", error)
                return
        logger.warning("stopping without a controlled shutdown")

    async def _ask(self) -> bool:
        """Whether the controller has moved everything."""
        try:
            at = await self._controller()
            connection = await self.connect(at.host, at.port)
            try:
                request = ControlledShutdownRequest(
                    broker_id=self.broker_id, broker_epoch=self.epoch()
                )
                response: ControlledShutdownResponse = await connection.call(request)
            finally:
                connection.abort("asked")
        except (LookupError, ConnectionFailed, UnsupportedApi) as error:
            logger.info("controlled shutdown: %s", error)
            return False
        if response.error_code != ErrorCode.NONE:
            logger.info("controlled shutdown: %s", ErrorCode.of(response.error_code).name)
            return False
        if response.remaining_partitions:
            logger.info(
                "controlled shutdown: %s partitions cannot be led elsewhere yet",
                len(response.remaining_partitions),
            )
            return False
        logger.info("controlled shutdown: all leaders are moved")
        return True

    async def _controller(self) -> Endpoint:
        """Where the controller listens for brokers. Raises LookupError."""
        try:
            async with asyncio.timeout(ZOOKEEPER_SECONDS):
                data, _ = await self.zk.get(Controller.path())
                controller_id = Controller.decode(data).broker_id
                data, _ = await self.zk.get(BrokerId.path(controller_id))
            endpoints = BrokerId.decode(data).endpoints
        except (NoNode, ZnodeError) as error:
            raise LookupError(f"the controller cannot be found: {error}") from error
        for each in endpoints:
            if each.listener == self.listener:
                return each
        raise LookupError(f"controller {controller_id} has no listener {self.listener}")

    async def _is_alone(self) -> bool:
        async with asyncio.timeout(ZOOKEEPER_SECONDS):
            ids, _ = await self.zk.children(BrokerId.directory())
        return not set(ids) - {str(self.broker_id)}

    async def _pause(self) -> None:
        """Until it is time to ask again, or there is nobody left to take over."""
        loop = asyncio.get_running_loop()
        ask_again = loop.time() + self.config.retry_backoff_ms / 1000
        while (left := ask_again - loop.time()) > 0:
            await asyncio.sleep(min(LOOK_SECONDS, left))
            if await self._is_alone():
                return
