"""Members on a ZooKeeper in memory, in virtual time."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence, Set
from typing import Any

from groups.zookeeper.member import Member
from groups.zookeeper.membership_state import Membership, MembershipSettings
from groups.zookeeper.registration import StaticSubscription
from groups.zookeeper.tree import GroupTree
from protocol.topic_partition import TopicPartition
from tests.stage.clock import run_in_virtual_time
from zk.api import Op, Stat
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import ConsumerRegistration, TopicAssignment

Partitions = Set[TopicPartition]
OWNERS = "/consumers/g/owners/t"
REGISTRATION = ConsumerRegistration({"t": 1}, "static", timestamp_ms=0).encode()


class Counting(MemoryZooKeeper):
    """A session that counts operations below `owners`."""

    def __init__(self) -> None:
        super().__init__(lambda: int(asyncio.get_running_loop().time() * 1000))
        self.owner_writes: Counter[str] = Counter()

    def commit(self, ops: Sequence[Op], session_id: int) -> list[str | Stat | None]:
        results = super().commit(ops, session_id)
        self.owner_writes.update(
            type(op).__name__ for op in ops if op.path.startswith("/consumers/g/owners/t/")
        )
        return results


class Streams:
    """A Delivery that records its calls."""

    def __init__(self) -> None:
        self.opened: dict[TopicPartition, str] = {}
        self.delivering: dict[TopicPartition, str] = {}
        self.diary: list[str] = []
        self.failure: Exception | None = None
        self.releasing_takes_s = 0.0
        self.ends_when_releasing: asyncio.Task[Any] | None = None
        self.offsets_trouble = ""
        self.offsets_known = asyncio.Event()
        self.offsets_known.set()

    def stop(self, partitions: Partitions) -> None:
        self.diary.append("stop")
        for partition in partitions:
            self.delivering.pop(partition, None)

    def move(self, threads: Mapping[TopicPartition, str]) -> None:
        self.delivering |= threads

    def open(self, starts: Mapping[TopicPartition, tuple[str, int | None]]) -> None:
        self.opened = {p: thread for p, (thread, _) in starts.items()}

    def fetch_opened(self, partitions: Partitions) -> None:
        self.diary.append("start")
        self.delivering |= {p: self.opened[p] for p in partitions}

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def abandon(self) -> None:
        self.delivering.clear()

    def fail(self, error: Exception) -> None:
        self.failure = error

    async def forget(self, partitions: Partitions) -> None: ...
    async def commit(self, partitions: Partitions) -> None:
        self.diary.append("commit")

    async def fetch_offsets(
        self, partitions: Partitions
    ) -> tuple[Mapping[TopicPartition, int | None], Mapping[TopicPartition, str]]:
        self.diary.append("fetch_offsets")
        await self.offsets_known.wait()
        if self.offsets_trouble:
            return {}, dict.fromkeys(partitions, self.offsets_trouble)
        return dict.fromkeys(partitions), {}

    async def before_releasing(self, owned: Partitions) -> None:
        await asyncio.sleep(self.releasing_takes_s)
        if self.ends_when_releasing is not None:
            self.ends_when_releasing.cancel()
            await self.ends_when_releasing

    async def before_starting(self, assignment: Mapping[TopicPartition, str]) -> None: ...

    async def notify_revoked(self, partitions: Partitions) -> None: ...

    async def notify_lost(self, partitions: Partitions) -> None: ...

    async def notify_assigned(self, partitions: Partitions) -> None: ...


class Scene:
    def __init__(self) -> None:
        self.zk = Counting()

    async def session(self) -> MemorySession:
        session = self.zk.session()
        await session.start()
        return session

    async def topic(self, partitions: int) -> None:
        content = TopicAssignment(dict.fromkeys(range(partitions), (0,))).encode()
        await (await self.session()).create(TopicAssignment.path("t"), content, make_parents=True)

    async def member(self, name: str, strategy: str = "range") -> tuple[Member, Streams]:
        streams = Streams()
        consumer_id = f"g_{name}"
        session = await self.session()
        wanted = StaticSubscription({"t": 1})
        tree = GroupTree(session, "g", consumer_id, wanted, strategy=strategy)
        settings = MembershipSettings(partition_assignment_strategy=strategy)
        return Member(tree, streams, Membership(consumer_id, settings)), streams


def play(scene: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        await scene(Scene())

    run_in_virtual_time(whole())


class Watched:
    """A session that counts calls."""

    def __init__(self, session: Any, calls: Counter[str]) -> None:
        self._session = session
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._session, name)
        if asyncio.iscoroutinefunction(method):
            self._calls[name] += 1
        return method
