"""Simulate the migration of a group in virtual time, with ZooKeeper and a coordinator in memory.

Consumers are very simple: each wants certain partitions, claims the free ones, reads their offsets
through its `GovernedStore`, processes messages without end, and commits. Every call to ZooKeeper or
the coordinator takes time before it is applied, and again before its reply comes. After every step
the claim of `offsets.migration` is checked, for every mode in which a member is or would begin.
"""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from random import Random
from types import SimpleNamespace
from typing import Any, Literal

import attrs

from clients.admin import EARLIEST_TIME, LATEST_TIME
from clients.migrator import Migrator
from offsets.governed_store import GovernedStore
from offsets.migration import LADDER, Finish, Run
from offsets.store import OffsetStore
from offsets.store_errors import CommitFailed, OffsetFetchFailed
from offsets.zookeeper_store import ZooKeeperStore
from protocol.errors import ApiError, ErrorCode, KgroupError
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from zk.api import ConnectionLoss, NodeExists
from zk.memory import MemorySession, MemoryZooKeeper
from zk.migration_znodes import GroupMigration, OffsetMode, OffsetStorage
from zk.znodes import ConsumerOffset, ConsumerRegistration, PartitionOwner, TopicAssignment

GROUP = "g"
PARTITIONS = [TopicPartition("t", number) for number in range(4)]
FORSAKEN = TopicPartition("t", 4)
"""A partition that was consumed once, and has no owner now."""
SESSION_TIMEOUT_S = 6.0
MAX_LATENCY_S = 0.02
SLUGGISH_LATENCY_S = 0.6
COMMIT_INTERVAL_S = 0.3
OUTAGE_S = 2.0
REST_S = 4.0
WRITES = {"create", "set", "delete", "commit_group_offsets"}

MODE_OF_SETTINGS = {
    "zookeeper": OffsetMode.ZOOKEEPER,
    "kafka": OffsetMode.KAFKA,
}


class Killed(BaseException):
    """The command's process is killed."""


@attrs.define(eq=False)
class Death:
    """The death of a command at its `at`-th write: before the write, or after it is applied."""

    at: int
    when: Literal["before", "after"]
    strike: Callable[[], None]
    writes: int = 0

    @property
    def has_struck(self) -> bool:
        return self.writes >= self.at


@attrs.define(eq=False)
class Coordinator:
    """A coordinator in memory: an `OffsetStore` for consumers, an `OffsetsAdmin` for commands."""

    pause: Callable[[], Any]
    step: Callable[[], None]
    offsets: dict[TopicPartition, int] = attrs.field(factory=dict)
    is_away: bool = False

    async def fetch(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        await self.pause()
        if self.is_away:
            raise OffsetFetchFailed(dict.fromkeys(partitions, "away"), {})
        found = {p: OffsetAndMetadata(self.offsets[p]) for p in partitions if p in self.offsets}
        await self.pause()
        return found

    async def commit(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for partition, committed in offsets.items():
            await self.pause()
            if self.is_away:
                raise CommitFailed({partition: ErrorCode.COORDINATOR_NOT_AVAILABLE})
            self.offsets[partition] = committed.offset
            self.step()
        await self.pause()

    async def group_offsets(
        self, group_id: str, *, require_stable: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        await self.pause()
        self._must_be_there()
        return {p: OffsetAndMetadata(offset) for p, offset in self.offsets.items()}

    async def commit_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        self._must_be_there()
        await self.commit(group_id, offsets)

    def _must_be_there(self) -> None:
        if self.is_away:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def describe_groups(self, group_ids: Collection[str]) -> Any:
        return {group: SimpleNamespace(group=SimpleNamespace(members=())) for group in group_ids}

    async def list_offsets(
        self,
        times: Mapping[TopicPartition, int],
        *,
        isolation: int = 0,
        waits_for_topics: bool = True,
    ) -> Any:
        offsets = {EARLIEST_TIME: 0, LATEST_TIME: 2**62}
        return {p: SimpleNamespace(error=0, offset=offsets[at]) for p, at in times.items()}


class Slow:
    """A proxy that delays calls; to a command one of them may be the last."""

    def __init__(
        self,
        real: Any,
        world: "MigratingGroup",
        death: Death | None = None,
        latency_s: float = MAX_LATENCY_S,
    ) -> None:
        self._real = real
        self._world = world
        self._death = death
        self._latency_s = latency_s

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._real, name)
        if not asyncio.iscoroutinefunction(method):
            return method

        async def slow(*arguments: Any, **keywords: Any) -> Any:
            await self._world.pause(self._latency_s)
            due = self._is_due(name)
            if due and self._death and self._death.when == "before":
                self._death.strike()
            try:
                return await method(*arguments, **keywords)
            finally:
                self._world.step()
                if due and self._death and self._death.when == "after":
                    self._death.strike()
                await self._world.pause(self._latency_s)

        return slow

    def _is_due(self, name: str) -> bool:
        if self._death is None or name not in WRITES:
            return False
        self._death.writes += 1
        return self._death.writes == self._death.at


@attrs.define(eq=False)
class Consumer:
    """A member; `positions` are those of the partitions that it delivers."""

    world: "MigratingGroup"
    name: str
    session: MemorySession
    store: GovernedStore
    positions: dict[TopicPartition, int] = attrs.field(factory=dict)
    tasks: list[asyncio.Task[None]] = attrs.field(factory=list)

    @property
    def consumer_id(self) -> str:
        return f"{GROUP}_{self.name}"

    async def live(self) -> None:
        path = ConsumerRegistration.path(GROUP, self.consumer_id)
        registration = ConsumerRegistration({"t": 1}, "static", 0).encode()
        while not await self._create(path, registration):
            await asyncio.sleep(0.05)
        while True:
            for partition in self._list_wanted():
                await self._claim(partition)
            for partition in self.positions:
                self._process(partition)
            await asyncio.sleep(0.05)

    def _list_wanted(self) -> list[TopicPartition]:
        shares = self.world.shares.items()
        return [p for p, name in shares if name == self.name and p not in self.positions]

    async def commit_by_the_clock(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_INTERVAL_S)
            await self.commit()

    async def commit(self) -> None:
        positions = dict(self.positions)
        try:
            await self.store.commit(GROUP, {p: OffsetAndMetadata(o) for p, o in positions.items()})
        except CommitFailed:
            return
        for partition, offset in positions.items():
            self.world.acknowledged[partition] = offset
        self.world.step()

    async def _claim(self, partition: TopicPartition) -> None:
        path = PartitionOwner.path(GROUP, *partition)
        thread = f"{self.consumer_id}-0".encode()
        if not await self._create(path, thread):
            return
        while True:
            try:
                offsets = await self.store.fetch(GROUP, [partition])
                break
            except OffsetFetchFailed:
                await asyncio.sleep(0.1)
        start = offsets[partition].offset if partition in offsets else None
        self.world.check_start(partition, start, f"{self.name} began")
        self.positions[partition] = start or 0

    async def _create(self, path: str, content: bytes) -> bool:
        try:
            await self.store.zk.create(path, content, ephemeral=True, make_parents=True)
        except (NodeExists, ConnectionLoss):
            return False
        return True

    def _process(self, partition: TopicPartition) -> None:
        if self.world.is_resting:
            return
        self.positions[partition] += self.world.random.choice([0, 0, 1, 3])
        processed = self.world.processed
        processed[partition] = max(processed[partition], self.positions[partition])

    def end(self) -> None:
        """End as by kill -9: nothing runs any more, and ZooKeeper notices it later."""
        for task in self.tasks:
            task.cancel()
        self.positions.clear()


class MigratingGroup:
    """The world of a simulation. `storage` is the store in the settings of all members."""

    def __init__(self, storage: OffsetStorage, seed: int) -> None:
        self.random = Random(seed)
        self.storage = storage
        self.clock = asyncio.get_running_loop().time
        self.zk = MemoryZooKeeper(lambda: int(self.clock() * 1000))
        self.kafka = Coordinator(self.pause, self.step)
        self.consumers: dict[str, Consumer] = {}
        self.processed = dict.fromkeys(PARTITIONS, 0)
        self.acknowledged: dict[TopicPartition, int] = {}
        self.shares: dict[TopicPartition, str] = {}
        self.tasks: list[asyncio.Task[Any]] = []
        self.steps = 0
        self.is_resting = False
        self.session_of_command: MemorySession = self.zk.session()
        self._names = iter("abcdefghijklmnopqrstuvwxyz")

    async def pause(self, latency_s: float = MAX_LATENCY_S) -> None:
        await asyncio.sleep(self.random.uniform(0, latency_s))

    async def begin(self, members: int = 3) -> None:
        session = self.zk.session()
        await session.start()
        topic = TopicAssignment({p.partition: (0,) for p in (*PARTITIONS, FORSAKEN)}).encode()
        await session.create(TopicAssignment.path("t"), topic, make_parents=True)
        self.processed[FORSAKEN] = self.acknowledged[FORSAKEN] = 77
        if self.storage is OffsetStorage.KAFKA:
            self.kafka.offsets[FORSAKEN] = 77
        else:
            await session.create(ConsumerOffset.path(GROUP, *FORSAKEN), b"77", make_parents=True)

        await session.close()
        names = [next(self._names) for _ in range(members)]
        self.shares = {p: names[p.partition % members] for p in PARTITIONS}
        for name in names:
            await self.join(name)
        while self.acknowledged.keys() != self.processed.keys():
            await asyncio.sleep(0.1)

    # --- members ------------------------------------------------------------------------------

    async def join(self, name: str) -> Consumer:
        session = self.zk.session()
        await session.start()
        latency_s = self.random.choice([MAX_LATENCY_S, SLUGGISH_LATENCY_S])
        slow: Any = Slow(session, self, latency_s=latency_s)
        in_zookeeper = ZooKeeperStore(slow)
        stores: dict[str, OffsetStore] = {"zookeeper": in_zookeeper, "kafka": self.kafka}
        store = GovernedStore(
            zk=slow,
            group=GROUP,
            consumer_id=f"{GROUP}_{name}",
            kafka=self.kafka,
            zookeeper=in_zookeeper,
            settings=self.storage,
            configured=stores[self.storage],
            is_member=True,
        )

        consumer = self.consumers[name] = Consumer(self, name, session, store)
        loops = (store.follow_migration(), consumer.live(), consumer.commit_by_the_clock())
        consumer.tasks += [asyncio.create_task(loop) for loop in loops]
        self.tasks += consumer.tasks
        return consumer

    def kill_one(self) -> None:
        """Kill the oldest member; another one with the old settings takes its place."""
        name = next(iter(self.consumers))
        consumer = self.consumers.pop(name)
        consumer.end()
        self._die(consumer.session)
        heir = next(self._names)
        self.shares = {p: heir if who == name else who for p, who in self.shares.items()}
        self.tasks.append(asyncio.create_task(self.join(heir)))

    def _die(self, session: MemorySession) -> None:
        self.zk.suspend(session)
        asyncio.get_running_loop().call_later(SESSION_TIMEOUT_S, self.zk.expire, session)

    def cut_off_from_zookeeper(self, session: MemorySession) -> None:
        """Cut all members, and the command if its session is given, off for less than a lease."""
        for cut_session in (session, *(consumer.session for consumer in self.consumers.values())):
            self.zk.suspend(cut_session)
            asyncio.get_running_loop().call_later(OUTAGE_S, self.zk.resume, cut_session)

    def lose_coordinator(self) -> None:
        """Lose the coordinator; it is found again some time later."""
        self.kafka.is_away = True
        asyncio.get_running_loop().call_later(OUTAGE_S, self._find_coordinator)

    def _find_coordinator(self) -> None:
        self.kafka.is_away = False

    @contextlib.asynccontextmanager
    async def rests(self) -> AsyncIterator[None]:
        """Stop all messages for a while, until all that were processed are committed."""
        self.is_resting = True
        await asyncio.sleep(REST_S)
        yield
        self.is_resting = False

    # --- commands -----------------------------------------------------------------------------

    async def command(
        self, run: Run, death: Death | None = None, *, again: bool = True
    ) -> Finish | None:
        """Carry a command out; after a kill continue with `again`.

        Returns None if it was killed.
        """
        while True:
            session = self.session_of_command = self.zk.session(int(SESSION_TIMEOUT_S * 1000))
            await session.start()
            migrator = Migrator(
                zk=Slow(session, self, death),  # type: ignore[arg-type]
                admin=Slow(self.kafka, self, death),  # type: ignore[arg-type]
                group=GROUP,
                now_ms=lambda: int(self.clock() * 1000),
            )
            try:
                _, finish = await migrator.carry_out(run)
                await session.close()
                return finish
            except (Killed, ConnectionLoss, KgroupError, ApiError):
                self._die(session)
                if not again:
                    return None
                await asyncio.sleep(1)

    # --- what must hold -----------------------------------------------------------------------

    def read_stored(self, storage: OffsetStorage, partition: TopicPartition) -> int | None:
        if storage is OffsetStorage.KAFKA:
            return self.kafka.offsets.get(partition)
        node = self.zk.tree.get(ConsumerOffset.path(GROUP, *partition))
        return int(node.data) if node and node.data else None

    def modes(self) -> set[OffsetMode]:
        """Return the modes in which a member is, and the one in which another would begin."""
        by_settings = MODE_OF_SETTINGS[self.storage]
        stores = [consumer.store for consumer in self.consumers.values()]
        held = {store._mode or by_settings for store in stores if store._listed_in}
        node = self.zk.tree.get(GroupMigration.path(GROUP))
        return held | {mode_of(node.data) if node and node.data else by_settings}

    def step(self) -> None:
        """Check all that must hold at any time."""
        self.steps += 1
        modes = self.modes()
        rungs = [LADDER.index(mode) for mode in modes]
        assert max(rungs) - min(rungs) <= 1, f"members are in {modes}"
        for mode in modes:
            for partition in self.processed:
                self.check_start(partition, self.read_stored(mode.reads, partition), mode)

    def check_start(self, partition: TopicPartition, start: int | None, who: str) -> None:
        """Check that a start at this offset neither skips nor repeats acknowledged messages."""
        acknowledged = self.acknowledged.get(partition)
        if acknowledged is None and start is None:
            return
        story = f"{self.clock():.3f} s, {who}, {partition}: {acknowledged} <= {start} <= "
        assert start is not None, story
        assert (acknowledged or 0) <= start <= self.processed[partition], (
            f"{story}{self.processed[partition]}"
        )

    async def end(self) -> None:
        """End the simulation. Raises the error of any member."""
        for task in self.tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@functools.cache
def mode_of(content: bytes) -> OffsetMode:
    """Return the mode in a migration's znode."""
    return GroupMigration.decode(content).mode
