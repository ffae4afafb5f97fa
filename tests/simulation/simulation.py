"""One story of a cluster: it comes up, sixty seconds of faults, peace, the reckoning."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random

import attrs

from core_log import loop_guard
from kgroup.testing.simulation.faults import Faults
from kgroup.testing.simulation.node import SESSION_TIMEOUT_MS
from kgroup.testing.simulation.zookeeper import HOST as ZK_HOST
from kgroup.testing.story import Violation
from protocol.state_checks import STATE_CHECKS
from tests.simulation.cluster import PARTITIONS, SEED_NAME, TOPIC, Cluster, until_answered
from tests.simulation.cluster_admin import ClusterAdmin
from tests.simulation.group_members import MemberGroup
from tests.simulation.workload import (
    Committer,
    Member,
    Onlooker,
    Reader,
    Writer,
    leaders_told,
    whole_log,
)
from tests.stage.checked_states import checking_states

WRITERS = 2
MEMBERS = 2
QUIET_S = 60.0
LOOK_S = 0.5
WRITE_BACK = 0.2
"""Chance that the system of one machine writes its memory to the disk, at each look."""
AT_REST = "k: the group at the coordinator is at rest"
LONG_SILENCES = 0.2
NAME_LASTS_S = (5.0, 40.0)
LASTING_SILENCE = 0.5
"""Chance that one broker falls silent for good after the faults, until the rest has settled."""


class Simulation:
    """The story of one seed; `run` lives it. Raises Violation."""

    def __init__(self, seed: int) -> None:
        self.cluster = Cluster(seed)
        self.world = self.cluster.world
        self.story = self.world.story
        self.story.again = f"python -m tests.simulation --tell {seed}"
        self.rng = Random(self.world.rng.random())
        self.faults = Faults(self.cluster, Random(self.rng.random()), long_silences=LONG_SILENCES)
        self.consumed: set[tuple[int, int]] = set()
        self.writers: list[Writer] = []
        self.group = MemberGroup(self.cluster, Random(self.rng.random()))

    def run(self) -> None:
        """Live it."""
        self.world.run(self._live())

    async def _live(self) -> None:
        cluster, invariants = self.cluster, self.cluster.invariants
        server = cluster.zookeeper.server
        server.committed = lambda: invariants.look_at_tree(server.tree, server.zxid)
        await cluster.begin({TOPIC: PARTITIONS})
        self._lend_a_name()
        writing = self._begin_clients()
        looking = asyncio.get_running_loop().create_task(self._look_on())
        coming_and_going = asyncio.get_running_loop().create_task(self.group.come_and_go())
        self.story.bites.clear()
        await self.faults.strike()
        self.story.tell("nature", "peace")
        self.faults.heal()
        for process in cluster.clients:
            process.resume()
        coming_and_going.cancel()
        self.group.make_peace()
        if not cluster.loss_allowed and self.rng.random() < LASTING_SILENCE:
            await self._bear_silence()
        for writer in self.writers:
            writer.stopped = True
        await until_answered(self._all(writing), "the writers have ended", QUIET_S)
        looking.cancel()
        await self._reckon()

    def _begin_clients(self) -> list[asyncio.Task[None]]:
        cluster = self.cluster
        storage = self.rng.choice(["kafka", "zookeeper"])
        writing = []
        for number in range(WRITERS):
            is_idempotent = number % 2 == 1
            writer = Writer(cluster, f"w{number}", Random(self.rng.random()), is_idempotent)
            self.writers.append(writer)
            writing.append(cluster.client(writer.name).spawn(writer.live()))
        reading = cluster.client("r0")
        for partition in range(PARTITIONS):
            reading.spawn(Reader(cluster, "r0", partition).live())
        for node in cluster.nodes:
            onlooker = Onlooker(cluster, node, Random(self.rng.random()))
            cluster.client(f"o{node.broker_id}").spawn(onlooker.live())
        committer = Committer(cluster, "c0", Random(self.rng.random()))
        cluster.client(committer.name).spawn(committer.live())
        for number in range(MEMBERS):
            process = cluster.client(f"m{number}")
            process.spawn(Member(cluster, process.name, storage, self.consumed).live())
        admin = ClusterAdmin(cluster, "a0", Random(self.rng.random()))
        cluster.client(admin.name).spawn(admin.live())
        self.group.begin()
        return writing

    def _lend_a_name(self) -> None:
        """Have a name lead to one of the brokers, for a while."""
        names = self.cluster.network.names
        names[SEED_NAME] = self.rng.choice(self.cluster.nodes).host

        def take_back() -> None:
            # Who has never reached anybody would know nothing at all.
            if not self.group.have_learned:
                loop.call_later(1.0, take_back)
                return
            self.story.tell("network", f"{SEED_NAME} is known no more")
            del names[SEED_NAME]

        loop = asyncio.get_running_loop()
        loop.call_later(self.rng.uniform(*NAME_LASTS_S), take_back)

    async def _bear_silence(self) -> None:
        """Have one broker silent for as long as it takes: all others must go on without it."""
        cluster = self.cluster

        async def all_in_sync() -> bool:
            states = cluster.partition_states().values()
            return all(len(state.isr) == cluster.replication for state in states)

        # Whoever starts now may know no other broker than the one that will be silent.
        await until_answered(all_in_sync, "all replicas are in sync", QUIET_S)
        await until_answered(self._at_rest, AT_REST, QUIET_S)
        node = self.rng.choice(cluster.nodes)
        self.story.tell(node.host, "falls silent")
        if self.rng.random() < 0.5:
            node.process.pause()
            end_silence: Callable[[], None] = node.process.resume
        else:
            others = [process.host for process in cluster.clients] + [ZK_HOST]
            others += [other.host for other in cluster.nodes if other is not node]
            end_silence = self.faults.silence_host(node.host, sorted(set(others)), None)
        began_s = self.world.now + SESSION_TIMEOUT_MS / 1000

        async def goes_on() -> bool:
            missing = self.group.unsettled() or self.group.lacks_commits_since(began_s)
            if missing:
                raise AssertionError(missing)
            return True

        await until_answered(goes_on, f"l: the group goes on without {node.host}", QUIET_S)
        self.story.counts["silences borne"] += 1
        end_silence()

    @staticmethod
    def _all(tasks: list[asyncio.Task[None]]) -> Callable[[], Awaitable[bool]]:
        async def done() -> bool:
            return all(task.done() for task in tasks)

        return done

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self.cluster.invariants.look_at_logs()
            if self.rng.random() < WRITE_BACK:
                self.rng.choice(self.cluster.nodes).write_back()

    async def _reckon(self) -> None:
        cluster, invariants = self.cluster, self.cluster.invariants
        if cluster.loss_allowed:
            await self._reckon_with_loss()
            return
        log: dict[tuple[int, int], bytes] = {}
        auditor = cluster.client("auditor")
        # A broker that was not heard answers as a leader until it hears of its deposition, and not
        # all that is acknowledged is in its log.
        await auditor.run(self._until_told_alike)
        await auditor.run(lambda: self._read_all(log, QUIET_S))
        invariants.all_there(log)
        invariants.once_in_order(log, {w.name for w in self.writers if w.is_idempotent})
        self.story.counts["records"] = len(log)
        self.story.counts["duplicates"] = len(log) - len(set(log.values()))

        async def settled() -> bool:
            missing = invariants.settled()
            if missing:
                raise AssertionError(missing)
            return True

        await until_answered(settled, "all replicas are in sync and alike", QUIET_S)
        invariants.look_at_logs()

        async def consumed() -> bool:
            return self.consumed >= log.keys()

        await until_answered(consumed, "the group has consumed all there is", QUIET_S)

        await until_answered(self._at_rest, AT_REST, QUIET_S)

    async def _until_told_alike(self) -> None:
        """Wait until all brokers tell clients of the same leaders."""

        async def told_alike() -> bool:
            leaders = self.cluster.invariants.leaders()
            for node in self.cluster.nodes:
                told = await leaders_told(node)
                if told != leaders:
                    raise AssertionError(f"{node.host} tells of {told}, the states of {leaders}")
            return True

        await until_answered(told_alike, "all brokers tell of the leaders", QUIET_S)

    async def _at_rest(self) -> bool:
        unsettled = self.group.unsettled()
        if unsettled:
            raise AssertionError(unsettled)
        return True

    async def _reckon_with_loss(self) -> None:
        """After a power failure that may have taken what was acknowledged: count what is gone."""
        cluster, log = self.cluster, dict[tuple[int, int], bytes]()
        try:
            await cluster.client("auditor").run(lambda: self._read_all(log, QUIET_S, anyway=True))
        finally:
            cluster.invariants.all_there(log)
            self.story.counts["records"] = len(log)

    async def _read_all(
        self, log: dict[tuple[int, int], bytes], within_s: float, *, anyway: bool = False
    ) -> None:
        async def whole() -> bool:
            log.update(await whole_log(self.cluster))
            return True

        try:
            await until_answered(whole, "the whole log is read", within_s)
        except AssertionError:
            if not anyway:
                raise
            self.story.counts["unreadable after a power failure"] += 1


@attrs.frozen
class Outcome:
    """What came of a seed. `violation` is empty if all went well."""

    seed: int
    violation: str
    transcript: str
    faults: Counter[str]
    bites: Counter[str]
    counts: Counter[str]
    virtual_s: float
    cpu_s: float


def outcome_of(seed: int) -> Outcome:
    """Live the story of a seed."""
    began = time.process_time()
    loop_guard.turn_on()
    loop_guard.take_refusals()
    simulation, violation = Simulation(seed), ""
    with checking_states():
        try:
            simulation.run()
        except Violation as told:
            violation = str(told)
    failures = [*STATE_CHECKS.take_failures(), *loop_guard.take_refusals()]
    violation = violation or "; ".join(failures)
    story = simulation.story
    return Outcome(
        seed,
        violation,
        story.transcript(),
        story.faults,
        story.bites,
        story.counts,
        simulation.world.now,
        time.process_time() - began,
    )
