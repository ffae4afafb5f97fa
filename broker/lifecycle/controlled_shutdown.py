"""Controlled shutdown: the controller moves a broker's leaders elsewhere before the broker stops.

It is an attempt, not a condition. If the controller cannot be reached, or cannot move all leaders,
the broker asks a few more times (`controlled.shutdown.max.retries`) and then stops as if it had
been killed. If no other broker is registered, none can take over, and it stops at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from clients.transport.connection import Connection, ConnectionFailed, UnsupportedApi
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from zk.api import NoNode, SessionState, ZkError, ZkSession
from zk.znodes import BrokerId, Controller, Endpoint, ZnodeError

logger = logging.getLogger(__name__)

ZOOKEEPER_TIMEOUT_S = 3.0
"""How long ZooKeeper may take to reply to a broker that wants to stop."""
LOOK_INTERVAL_S = 0.2
"""How often the broker checks, before it asks again, that another broker is still there."""


@frozen
class ShutdownConfig:
    """The settings `controlled.shutdown.*`."""

    enable: bool = True
    max_retries: int = 3
    retry_backoff_ms: int = 5000


@frozen
class ControlledShutdown:
    """The controlled shutdown of one broker, registered at `epoch()`.

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
        if not self.config.enable:
            return
        if self.zk.state is not SessionState.CONNECTED:
            logger.warning("stopping without a controlled shutdown: ZooKeeper is away")
            return

        # One try, and `max_retries` more.
        for retries_left in range(self.config.max_retries, -1, -1):
            try:
                if await self._is_alone() or await self._request_shutdown():
                    return
                if retries_left:
                    await self._pause()
            except (ZkError, TimeoutError) as error:
                # Nobody finds the controller without ZooKeeper: do not wait for it.
                logger.warning("controlled shutdown: ZooKeeper: %r", error)
                return
        logger.warning("stopping without a controlled shutdown")

    async def _request_shutdown(self) -> bool:
        """Ask the controller to move all leaders; return True if it did."""
        try:
            # A connection for this request alone, to the controller of this moment.
            endpoint = await self._find_controller()
            # It has as long for that as for any request (request.timeout.ms).
            logger.info(
                "controlled shutdown: asks the controller at %s:%d to move the leaders",
                *(endpoint.host, endpoint.port),
            )
            connection = await self.connect(endpoint.host, endpoint.port)
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

        # It is done when nothing is left that others could lead.
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

    async def _find_controller(self) -> Endpoint:
        """Return the controller's address for brokers. Raises LookupError."""
        try:
            async with asyncio.timeout(ZOOKEEPER_TIMEOUT_S):
                data, _ = await self.zk.get(Controller.path())
                controller_id = Controller.decode(data).broker_id
                data, _ = await self.zk.get(BrokerId.path(controller_id))
            endpoints = BrokerId.decode(data).endpoints
        except (NoNode, ZnodeError) as error:
            raise LookupError(f"the controller cannot be found: {error}") from error

        # The listener between brokers: others may not be reachable from here.
        for endpoint in endpoints:
            if endpoint.listener == self.listener:
                return endpoint
        raise LookupError(f"controller {controller_id} has no listener {self.listener}")

    async def _is_alone(self) -> bool:
        async with asyncio.timeout(ZOOKEEPER_TIMEOUT_S):
            names, _ = await self.zk.children(BrokerId.directory())
        return not set(BrokerId.ids_of(names)) - {self.broker_id}

    async def _pause(self) -> None:
        """Return when it is time to ask again, or when no other broker is left to take over."""
        # If all brokers stop together, the last ones must not wait out their backoff.
        loop = asyncio.get_running_loop()
        ask_again = loop.time() + self.config.retry_backoff_ms / 1000
        while (left_s := ask_again - loop.time()) > 0:
            await asyncio.sleep(min(LOOK_INTERVAL_S, left_s))
            if await self._is_alone():
                return
