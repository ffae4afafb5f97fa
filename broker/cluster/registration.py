"""This broker's node /brokers/ids/<id>: there for as long as its session.

The node's czxid is the *broker epoch* (KIP-380): each registration has a larger one, which is how
a controller tells a broker that bounced from one that stayed.

A broker killed without a chance to close its session leaves its node behind until ZooKeeper ends
the session, some seconds. Kafka's broker, started again within them, gives up ("already
registered"), and so whatever restarts it must try again. We wait instead, but only when the node
names our own host and port: we hold that port, so nobody else can be serving there, and the node
is a dead predecessor's. A node that names another address is a living broker with the same id.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import attrs

from broker.zk_retry import retry_until_connected
from zk.api import NodeExists, NoNode, Stat, WatchEvent, ZkSession
from zk.znodes import BrokerId, ZnodeError

T = TypeVar("T")

logger = logging.getLogger(__name__)

PREDECESSOR_PATIENCE = 2.0
"""How many session timeouts a predecessor's node is given to go: ZooKeeper rounds a timeout up,
and a server that takes over sessions from another begins their time anew."""


class AlreadyRegistered(Exception):
    """Another broker is registered under this broker's id, or with its address."""


@attrs.define(eq=False)
class Registration:
    """Registers `broker` as `broker_id`, once for each session."""

    zk: ZkSession
    broker_id: int
    broker: BrokerId
    session_timeout_ms: int
    epoch: int = -1  # of the last registration; -1 before the first
    _session_id: int = 0

    async def register(self) -> int:
        """Create the node in the present session; return the broker epoch.

        To be called again for each new session, before the broker stands for election. Raises
        AlreadyRegistered; and SessionExpired, when this session ends meanwhile.
        """
        await self._refuse_taken_address()
        path, data = BrokerId.path(self.broker_id), self.broker.encode()
        deadline = None
        while True:
            try:
                await self._ask(lambda: self.zk.create(path, data, ephemeral=True))
            except NodeExists:
                found = await self._find(path)
                if found is None:
                    continue
                other, stat = found
                if stat.ephemeral_owner == self._session_id != self.zk.session_id:
                    await self._delete(path)
                    continue
                if stat.ephemeral_owner != self.zk.session_id:
                    now = asyncio.get_running_loop().time()
                    deadline = deadline or now + self._patience_seconds
                    await self._outlive(path, other, deadline - now)
                    continue
            node = await self._ask(lambda: self.zk.exists(path))
            if node is not None:
                break
        self._session_id, self.epoch = self.zk.session_id, node.czxid
        logger.info("broker %s is registered, epoch %s", self.broker_id, self.epoch)
        return self.epoch

    async def _ask(self, call: Callable[[], Awaitable[T]]) -> T:
        return await retry_until_connected(self.zk, call)

    @property
    def _patience_seconds(self) -> float:
        return PREDECESSOR_PATIENCE * self.session_timeout_ms / 1000

    async def _refuse_taken_address(self) -> None:
        """Two brokers that advertise one address would get each other's requests."""
        ours = _addresses(self.broker)
        ids, _ = await self._ask(lambda: self.zk.children(BrokerId.directory()))
        for other_id in ids:
            if other_id == str(self.broker_id):
                continue
            found = await self._find(BrokerId.path(int(other_id)))
            taken = ours & _addresses(found[0]) if found else set()
            if taken:
                host, port = min(taken)
                raise AlreadyRegistered(
                    f"broker {other_id} is registered with the address {host}:{port},"
                    f" which broker {self.broker_id} advertises too"
                )

    async def _outlive(self, path: str, other: BrokerId | None, seconds: float) -> None:
        """Wait for the node of a dead predecessor to go. Raises AlreadyRegistered."""
        addresses = _addresses(other)
        if not addresses & _addresses(self.broker) or seconds <= 0:
            where = ", ".join(f"{host}:{port}" for host, port in sorted(addresses))
            raise AlreadyRegistered(
                f"broker id {self.broker_id} is taken: a broker at"
                f" {where or 'an unknown address'} is registered with it"
            )
        logger.info("waiting for the last session of broker %s to end", self.broker_id)
        gone = asyncio.Event()

        def fired(event: WatchEvent) -> None:
            gone.set()

        if await self._ask(lambda: self.zk.exists(path, watch=fired)) is not None:
            try:
                async with asyncio.timeout(seconds):
                    await gone.wait()
            except TimeoutError:
                return  # the next look finds the node still there, and no time left

    async def _find(self, path: str) -> tuple[BrokerId | None, Stat] | None:
        """Who is registered there; None for one whose node cannot be read."""
        try:
            data, stat = await self._ask(lambda: self.zk.get(path))
        except NoNode:
            return None
        try:
            return BrokerId.decode(data, path), stat
        except ZnodeError as error:
            logger.warning("%s", error)
            return None, stat

    async def _delete(self, path: str) -> None:
        with suppress(NoNode):
            await self._ask(lambda: self.zk.delete(path))


def _addresses(broker: BrokerId | None) -> set[tuple[str, int]]:
    return {(each.host, each.port) for each in broker.endpoints} if broker else set()
