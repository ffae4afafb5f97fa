"""Where the whole brokers of a test live: in this process, over a ZooKeeper in memory."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import attrs

from broker.network.authorization import Authorizer
from broker.process.process_limits import wall_clock_ms
from broker.server import Broker
from broker.settings.config import load_broker_config
from clients.transport.connection import Connection
from core_log.directory import LogDirectory
from core_log.storage import Directory
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import BrokerId, Controller

DEADLINE_S = 20.0


@attrs.define(eq=False)
class Site:
    """Where brokers of one test live."""

    directory: Path
    zookeeper: MemoryZooKeeper = attrs.field(factory=MemoryZooKeeper)
    open_directory: Callable[[str], Directory] = LogDirectory
    authorizer: Authorizer | None = None
    now_ms: Callable[[], int] = wall_clock_ms
    session: MemorySession = attrs.field(init=False)

    def broker(self, broker_id: int = 1, /, **settings: str) -> Broker:
        """One that is not started; settings may be named with underscores for dots."""
        given = {
            "broker.id": str(broker_id),
            "zookeeper.connect": "memory:1",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(self.directory / f"logs-{broker_id}"),
            "num.io.threads": "2",
        } | {
            name if "." in name else name.replace("_", "."): value
            for name, value in settings.items()
        }
        self.session = self.zookeeper.session()
        return Broker(
            load_broker_config(given)[0],
            now_ms=self.now_ms,
            zk=self.session,
            open_directory=self.open_directory,
            authorizer=self.authorizer,
        )

    @contextlib.asynccontextmanager
    async def running(self, broker_id: int = 1, /, **settings: str) -> AsyncIterator[Broker]:
        broker = self.broker(broker_id, **settings)
        try:
            await broker.start()
            yield broker
        finally:
            await broker.close()

    def node(self, broker_id: int = 1) -> tuple[BrokerId, int] | None:
        """Who is registered under the id, and in which session."""
        found = self.zookeeper.tree.get(BrokerId.path(broker_id))
        return (BrokerId.decode(found.data), found.ephemeral_owner) if found else None

    def controller(self) -> int | None:
        found = self.zookeeper.tree.get(Controller.path())
        return Controller.decode(found.data).broker_id if found else None


@contextlib.asynccontextmanager
async def connected(broker: Broker) -> AsyncIterator[Connection]:
    host, _, port = broker.bootstrap.rpartition(":")
    connection = await Connection.open(host, int(port))
    try:
        yield connection
    finally:
        await connection.close()
