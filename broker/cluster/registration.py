"""This broker's node /brokers/ids/<id>, which lives as long as its session.

The node's czxid is the *broker epoch* (KIP-380). Each registration has a larger one; by it a
controller tells a broker that bounced from one that stayed.

A broker that is killed leaves its node behind until ZooKeeper ends the session, some seconds later.
Kafka's broker, started again within them, gives up ("already registered") and must be started once
more. This one waits instead, but only when the node names its own host and port: it holds that
port, so nobody else can serve there, and the node is a dead predecessor's. A node with another
address is of a living broker with the same id.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import attrs

from broker.process.zk_retry import retry_until_connected
from zk.api import NodeExists, NoNode, Stat, WatchEvent, ZkSession
from zk.znodes import BrokerId, Endpoint, ZnodeError

T = TypeVar("T")

logger = logging.getLogger(__name__)

PREDECESSOR_PATIENCE = 2.0
"""How long to wait for a predecessor's node to go, in session timeouts. ZooKeeper rounds a timeout
up, and a server that takes over another's sessions starts their time again."""


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
        """Create the node in the current session; return the broker epoch.

        Call this again for each new session, before the broker stands for election. Raises
        AlreadyRegistered; and SessionExpired, when the session ends meanwhile.
        """
        await self._refuse_taken_address()

        # Create the node, or find out whose node is in the way.
        path = BrokerId.path(self.broker_id)
        deadline = None
        while True:
            try:
                # Its addresses may change while a predecessor is waited for.
                await self._ask(lambda: self.zk.create(path, self.broker.encode(), ephemeral=True))
            except NodeExists:
                existing = await self._read_broker(path)

                # The node has gone meanwhile.
                if existing is None:
                    continue

                # The node of our own last session can go at once.
                other, stat = existing
                if stat.ephemeral_owner == self._session_id != self.zk.session_id:
                    await self._delete(path)
                    continue

                # Any other is a predecessor's, or another broker's. Our own may be there already,
                # if the reply to its creation was lost.
                if stat.ephemeral_owner != self.zk.session_id:
                    # One patience for all rounds, from the first look on.
                    now = asyncio.get_running_loop().time()
                    deadline = deadline or now + self._patience_s
                    await self._outlive(path, other, deadline - now)
                    continue

            # The node's czxid is the epoch. A node that is gone already is created again.
            node = await self._ask(lambda: self.zk.exists(path))
            if node is not None:
                break

        assert node.czxid >= self.epoch, "a later registration has a larger epoch"
        self._session_id = self.zk.session_id
        self.epoch = node.czxid
        logger.info("broker %s is registered, epoch %s", self.broker_id, self.epoch)
        return self.epoch

    async def advertise(self, endpoints: tuple[Endpoint, ...]) -> None:
        """Register other addresses, now and in each later session.

        Raises AlreadyRegistered, and keeps those before, if another broker has one of them.
        """
        if endpoints == tuple(self.broker.endpoints):
            return
        before = self.broker
        # Host and port are those of the endpoints, for old clients.
        self.broker = BrokerId(endpoints, before.timestamp_ms, before.jmx_port, before.rack)
        if self.epoch < 0:
            return

        try:
            await self._refuse_taken_address()
        except AlreadyRegistered:
            self.broker = before
            raise

        # Without a node the next session registers them.
        path, data = BrokerId.path(self.broker_id), self.broker.encode()
        with suppress(NoNode):
            await self._ask(lambda: self.zk.set(path, data))
            where = ", ".join(str(endpoint) for endpoint in endpoints)
            logger.info("broker %s is registered at %s", self.broker_id, where)

    async def _ask(self, call: Callable[[], Awaitable[T]]) -> T:
        return await retry_until_connected(self.zk, call)

    @property
    def _patience_s(self) -> float:
        return PREDECESSOR_PATIENCE * self.session_timeout_ms / 1000

    async def _refuse_taken_address(self) -> None:
        """Refuse an address that another broker advertises: each would get the other's requests."""
        own_addresses = _addresses(self.broker)
        names, _ = await self._ask(lambda: self.zk.children(BrokerId.directory()))
        for other_id in BrokerId.ids_of(names):
            # Our own id is judged in `register`: it may be a predecessor.
            if other_id == self.broker_id:
                continue
            existing = await self._read_broker(BrokerId.path(other_id))
            taken = own_addresses & _addresses(existing[0]) if existing else set()
            if taken:
                host, port = min(taken)
                raise AlreadyRegistered(
                    f"broker {other_id} is registered with the address {host}:{port},"
                    f" which broker {self.broker_id} advertises too"
                )

    async def _outlive(self, path: str, other: BrokerId | None, patience_s: float) -> None:
        """Wait for the node of a dead predecessor to go. Raises AlreadyRegistered."""
        # Another address is a living broker; ours is too, if its node outlives the patience.
        addresses = _addresses(other)
        if not addresses & _addresses(self.broker) or patience_s <= 0:
            where = ", ".join(f"{host}:{port}" for host, port in sorted(addresses))
            raise AlreadyRegistered(
                f"broker id {self.broker_id} is taken: a broker at"
                f" {where or 'an unknown address'} is registered with it"
            )

        logger.info("waiting for the last session of broker %s to end", self.broker_id)

        # Any change of the node is a reason to look again.
        gone = asyncio.Event()

        def on_change(event: WatchEvent) -> None:
            gone.set()

        if await self._ask(lambda: self.zk.exists(path, watch=on_change)) is not None:
            try:
                async with asyncio.timeout(patience_s):
                    await gone.wait()
            except TimeoutError:
                return  # the next look finds the node still there, and no time left

    async def _read_broker(self, path: str) -> tuple[BrokerId | None, Stat] | None:
        """Return the broker that is registered there; None instead of one that cannot be parsed."""
        try:
            data, stat = await self._ask(lambda: self.zk.get(path))
        except NoNode:
            return None
        try:
            return BrokerId.decode(data, path), stat
        except ZnodeError as error:
            logger.warning("%s", error)
            # It is there, but has no address to compare.
            return None, stat

    async def _delete(self, path: str) -> None:
        with suppress(NoNode):
            await self._ask(lambda: self.zk.delete(path))


def _addresses(broker: BrokerId | None) -> set[tuple[str, int]]:
    if broker is None:
        return set()
    return {(endpoint.host, endpoint.port) for endpoint in broker.endpoints}
