"""Several brokers' controllers over one ZooKeeper in memory, in virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import attrs

from broker.cluster.registration import Registration
from broker.controller.controller import Controller
from broker.controller.state import LeaderRebalance
from protocol.topic_partition import TopicPartition
from tests.broker.controller.wire import Wire
from tests.broker.refusing_session import RefusingSession
from tests.stage.clock import run_in_virtual_time
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import STARTUP_PATHS, BrokerId, Endpoint, PartitionState, TopicAssignment

P0 = TopicPartition("t", 0)
SETTLED_S = 5.0  # of virtual time: longer than any retry takes


@attrs.define(eq=False)
class Cluster:
    """Brokers 1, 2, … as a controller sees them; a broker's port is its id."""

    zookeeper: MemoryZooKeeper = attrs.Factory(MemoryZooKeeper)
    wire: Wire = attrs.Factory(Wire)
    sessions: dict[int, MemorySession] = attrs.Factory(dict)
    asked: dict[int, RefusingSession] = attrs.Factory(dict)
    controllers: dict[int, Controller] = attrs.Factory(dict)
    rebalance: LeaderRebalance | None = None

    async def start(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            session = self.zookeeper.session()
            await session.start()
            for path in STARTUP_PATHS:
                await session.ensure_path(path)
            node = BrokerId((Endpoint("PLAINTEXT", "host", broker_id),), timestamp_ms=0)
            registration = Registration(session, broker_id, node, session_timeout_ms=6000)
            await registration.register()
            asked = self.asked[broker_id] = RefusingSession(session)
            controller = Controller(
                asked.session,
                broker_id=broker_id,
                register=registration.register,
                connect=self.wire.connect,
                now_ms=lambda: 0,
                rebalance=self.rebalance,
            )
            await controller.start()
            self.sessions[broker_id], self.controllers[broker_id] = session, controller
            await self.settle()

    async def settle(self) -> None:
        """Wait until the controllers have nothing left to do, and check their states."""
        await asyncio.sleep(SETTLED_S)
        for controller in self.controllers.values():
            controller.check()

    async def kill(self, broker_id: int) -> None:
        """End the broker and its session."""
        await self.sessions.pop(broker_id).close()
        await self.controllers.pop(broker_id).close()
        await self.settle()

    async def stop(self, broker_id: int) -> None:
        """Stop the broker's controller in good order; its session goes on."""
        await self.controllers.pop(broker_id).close()
        await self.settle()

    async def create(self, topic: str, *replicas: tuple[int, ...]) -> None:
        await self.session.create(
            TopicAssignment.path(topic), TopicAssignment(dict(enumerate(replicas))).encode()
        )
        await self.settle()

    @property
    def session(self) -> MemorySession:
        return next(iter(self.sessions.values()))

    async def state(self, partition: TopicPartition = P0) -> PartitionState:
        data, _ = await self.session.get(PartitionState.path(*partition))
        return PartitionState.decode(data)

    async def leader_writes(self, *isr: int, partition: TopicPartition = P0) -> None:
        """Change the ISR as the partition's leader does."""
        path = PartitionState.path(*partition)
        state = PartitionState.decode((await self.session.get(path))[0])
        await self.session.set(path, attrs.evolve(state, isr=isr).encode())
        await self.settle()

    async def put(self, path: str, data: bytes) -> None:
        """Create a node as a tool does."""
        await self.session.create(path, data)
        await self.settle()

    async def ask(self, request: Any) -> Any:
        """Return the active controller's reply."""
        (active,) = [controller for controller in self.controllers.values() if controller.is_active]
        answer = await active.ask(request)
        await self.settle()
        return answer

    async def close(self) -> None:
        for controller in self.controllers.values():
            await controller.close()


def on_cluster(test: Callable[[Cluster], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run the test on a cluster in virtual time."""

    async def run() -> None:
        cluster = Cluster()
        try:
            await test(cluster)
        finally:
            await cluster.close()

    def test_in_virtual_time() -> None:
        run_in_virtual_time(run())

    return test_in_virtual_time
