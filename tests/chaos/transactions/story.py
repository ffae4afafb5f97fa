"""A story of transactions on real processes: faults from a seed, recovery, and the verdict.

The clients are `clients.py`'s, the judge is `tests/transactions/checker.py`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random

import attrs

from clients.admin import Admin, NewTopic
from clients.fetch_requests import Isolation
from protocol.api_key import ApiKey
from tests.chaos.checker import Verdict
from tests.chaos.cluster import BROKERS, Cluster
from tests.chaos.disks import alarms, long_turns
from tests.chaos.faults import FaultStage
from tests.chaos.load import PROMPT
from tests.chaos.observer import Observer
from tests.chaos.report import table
from tests.chaos.stock_group import StockGroup
from tests.chaos.teller import Teller
from tests.chaos.transactions.clients import (
    AIOKAFKA,
    JAVA_2_8,
    JAVA_3_9,
    KAFKA_PYTHON,
    LIBRDKAFKA,
    READERS,
    Client,
    Kind,
    available,
    read_by,
)
from tests.chaos.transactions.clients import OURS as OUR_PRODUCER
from tests.chaos.transactions.faults import BROKER_FAULTS, CLIENT_FAULTS, Fault, Scene, deal
from tests.chaos.transactions.repeater import Repeater
from tests.interop.handover import OURS
from tests.transactions.checker import Finding, judge
from tests.transactions.history import Outcome
from tests.transactions.reckoning import reckon
from tests.transactions.repeats import LATE, TWICE
from tests.transactions.workload import (
    ACCOUNTS,
    ALL_PARTITIONS,
    COPIED,
    COPIES,
    PARTITIONS,
    Copier,
    Mover,
    Onlooker,
    Part,
    Reader,
    StableOnlooker,
    Stage,
)

SETTINGS = {
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.segment.bytes": "100000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "offsets.topic.segment.bytes": "100000",
}
MOVERS: tuple[tuple[Kind, ...], ...] = (
    (OUR_PRODUCER, AIOKAFKA),
    (LIBRDKAFKA, KAFKA_PYTHON),
    (JAVA_3_9, JAVA_2_8),
)
COPIERS: tuple[tuple[Kind, ...], ...] = ((JAVA_2_8, OUR_PRODUCER), (KAFKA_PYTHON, LIBRDKAFKA))
"""The kinds of clients that run the transactions of an id, each when the one before has ended."""
COMMIT_S = 240.0
REST_S = (0.5, 3.0)
PROGRESS_S = 10.0
ENDED_S = 150.0


@attrs.define(eq=False)
class Story(Teller):
    """`tell` it once. Everything is kept in the directory.

    - `broker_faults`, `client_faults`: names of what happens, again and again.
    - `once`: each of these happens once, whatever time it takes; `seconds` do not count.
    - `make`: OURS, or the release of Kafka that the brokers are.
    - `ends_come_late`: EndTxn and TxnOffsetCommit come late too; what they do to the next
      transaction of their producer is Kafka's (`tests/transactions/repeats.py`).
    """

    directory: Path
    seed: int
    seconds: float
    broker_faults: Sequence[str] = tuple(BROKER_FAULTS)
    client_faults: Sequence[str] = tuple(CLIENT_FAULTS)
    once: bool = False
    make: str = OURS
    ends_come_late: bool = False
    verdict: Verdict = attrs.field(factory=Verdict)
    findings: list[Finding] = attrs.field(factory=list)
    struck: Counter[str] = attrs.field(factory=Counter)
    clients: list[Client] = attrs.field(factory=list)
    repeater: Repeater = attrs.field(init=False)
    stage: Stage = attrs.field(init=False)

    async def tell(self) -> None:
        """Let it all happen, and judge it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.say(f"seed {self.seed}, brokers {self.make}, in {self.directory}")
        chance = Random(self.seed)
        late: frozenset[ApiKey] = TWICE if self.ends_come_late else LATE
        async with Repeater(Random(chance.random()), late=late) as self.repeater:
            cluster = Cluster(self.directory, self.say, SETTINGS, self.make, self.repeater.open)
            async with cluster:
                await self._create_topics(cluster)
                await self._on(cluster, chance)
                for each in cluster.brokers.values():
                    if each.is_up:
                        await cluster.terminate(each.broker_id)
        self.verdict.complain("processes that ended by themselves", cluster.deaths)
        if self.make == OURS:
            for each in cluster.brokers.values():
                self.verdict.complain("tracebacks and worse", alarms(each.log_file))
                self.verdict.complain("an event loop that stops", long_turns(each.log_file))
        self.findings = judge(self.stage.history)
        self.verdict.wrong += map(str, self.findings)
        (self.directory / "story.log").write_text("\n".join(self.told) + "\n")

    async def _create_topics(self, cluster: Cluster) -> None:
        topics = [NewTopic(topic, PARTITIONS, len(BROKERS)) for topic in (ACCOUNTS, COPIES)]
        async with Admin({"bootstrap.servers": cluster.bootstrap} | PROMPT) as admin:
            verdicts = await admin.create_topics(topics)
        assert not any(verdicts.values()), verdicts

    # ---- under load

    async def _on(self, cluster: Cluster, chance: Random) -> None:
        self.stage = stage = Stage(cluster.bootstrap, PROMPT, self._tell_of)
        observer, stop = Observer(cluster, self.now), asyncio.Event()
        onlooker = Onlooker(stage, COPIED)
        loop = asyncio.get_running_loop()
        watching = [loop.create_task(work) for work in (observer.run(stop), self._tell_progress())]
        watching += self._begin_readers(onlooker)
        ending = asyncio.Event()
        self._begin_clients(chance, ending)
        try:
            group = StockGroup(cluster.bootstrap, (), (), self.directory)
            faults = FaultStage(
                cluster, chance, self.say, ALL_PARTITIONS, [], group, lambda: observer.controller
            )
            await self._hurt(Scene(faults, self.clients, self.repeater, ending))
            await self._recover(cluster)
            await reckon(stage, onlooker)
        finally:
            stop.set()
            await self._end(watching)

    def _tell_of(self, who: str, what: str) -> None:
        self.told.append(f"[{self.now():6.1f} s] {who}: {what}")

    def _begin_readers(self, onlooker: Onlooker) -> list[asyncio.Task[None]]:
        stage, loop = self.stage, asyncio.get_running_loop()
        readers = [
            Reader(stage, f"our {isolation.name.lower()} reader", partition, isolation).live()
            for isolation in Isolation
            for partition in ALL_PARTITIONS
        ]
        stock = [
            read_by(kind, stage, self.directory, ALL_PARTITIONS) for kind in available(READERS)
        ]
        onlookers = (onlooker.live(), StableOnlooker(stage).live())
        return [loop.create_task(work) for work in (*onlookers, *readers, *stock)]

    def _begin_clients(self, chance: Random, ending: asyncio.Event) -> None:
        stage = self.stage

        for number, kinds in enumerate(MOVERS):
            name = f"mover-{number}"
            self._begin_client(name, kinds, partial(Mover, stage, name), chance, ending)
        for partition, kinds in zip(COPIED, COPIERS, strict=True):
            name = f"copier-{partition.partition}"
            copier = partial(Copier, stage, name, partition=partition)
            self._begin_client(name, kinds, copier, chance, ending)

    def _begin_client(
        self,
        name: str,
        kinds: Sequence[Kind],
        make_part: Callable[[Random], Part],
        chance: Random,
        ending: asyncio.Event,
    ) -> None:
        cycle = itertools.cycle(available(kinds) or [OUR_PRODUCER])
        rng = Random(chance.random())
        client = Client(self.stage, name, self.directory, cycle, make_part, rng, ending)
        client.start()
        self.clients.append(client)

    async def _tell_progress(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_S)
            self.say(f"      {self.totals()}")

    def totals(self) -> str:
        """Return how many transactions there were, and what became of them."""
        outcomes = Counter(each.outcome for each in self.stage.history.attempts.values())
        return ", ".join(
            [f"{len(self.stage.history.attempts)} transactions"]
            + [f"{outcomes[outcome]} {outcome.value}" for outcome in Outcome]
        )

    # ---- what goes wrong

    async def _hurt(self, scene: Scene) -> None:
        idle = await self._await_commits()
        assert not idle, f"these commit nothing: {idle}"
        tracks = ((self.client_faults, CLIENT_FAULTS), (self.broker_faults, BROKER_FAULTS))
        ends = self.now() + self.seconds
        async with asyncio.TaskGroup() as tasks:
            for names, faults in tracks:
                chance = Random(scene.brokers.chance.random())
                tasks.create_task(self._strike(scene, names, faults, chance, ends))

    async def _await_commits(self) -> list[str]:
        """Wait until each client has committed something more; return those that have not."""
        before = len(self.stage.history.attempts)
        ends = self.now() + COMMIT_S
        while True:
            attempts = itertools.islice(self.stage.history.attempts.values(), before, None)
            committed = {a.producer for a in attempts if a.outcome is Outcome.COMMITTED}
            idle = [client.name for client in self.clients if client.name not in committed]
            if not idle or self.now() > ends:
                return idle
            await asyncio.sleep(0.25)

    async def _strike(
        self,
        scene: Scene,
        names: Sequence[str],
        faults: Mapping[str, Fault],
        chance: Random,
        ends: float,
    ) -> None:
        dealt = deal(names, chance)
        for name in itertools.islice(dealt, len(names)) if self.once else dealt:
            if scene.brokers.cluster.deaths or (not self.once and self.now() >= ends):
                return
            self.say(f"--- {name}")
            await faults[name](scene)
            self.say(f"    {name}: over")
            self.struck[name] += 1
            await asyncio.sleep(chance.uniform(*REST_S))

    # ---- afterwards

    async def _recover(self, cluster: Cluster) -> None:
        self.say("=== no more faults")
        cluster.network.heal(list(cluster.network.links))
        for each in cluster.brokers.values():
            if not each.is_up:
                await cluster.start(each.broker_id)

        idle = await self._await_commits()
        self.verdict.complain(f"clients that commit nothing within {COMMIT_S:.0f} s of calm", idle)
        self.stage.is_over = True
        tasks = [task for client in self.clients for task in client.tasks]
        done, late = await asyncio.wait(tasks, timeout=ENDED_S)
        for task in late:
            task.cancel()
        names = [task.get_name() for task in late]
        self.verdict.complain(f"clients that do not end within {ENDED_S:.0f} s", names)
        hung = [f"{client.name} by {kind}" for client in self.clients for kind in client.hung]
        self.say(f"clients that hung: {', '.join(hung) or 'none'}")
        ill = [kind.name for each in self.clients for kind in each.hung if not kind.may_hang]
        self.verdict.complain("clients that hang, and are not known to", ill)
        failed = [repr(task.exception()) for task in done if task.exception()]
        self.verdict.complain("clients that failed", failed)
        self.say(self.totals())

    async def _end(self, watching: Sequence[asyncio.Task[None]]) -> None:
        tasks = [*watching, *(task for client in self.clients for task in client.tasks)]
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                self.verdict.complain("tasks that failed", [repr(result)])

    # ---- the report

    def lines(self) -> list[str]:
        """Return the report for people."""
        outcomes = sum((client.outcomes for client in self.clients), Counter[tuple[str, Outcome]]())
        kinds = sorted({name for name, _ in outcomes})
        rows = [
            {"client": name} | {each.value: outcomes[name, each] for each in Outcome}
            for name in kinds
        ]
        return [
            "",
            *table(rows),
            "",
            *table([{"fault": name, "times": n} for name, n in sorted(self.struck.items())]),
            "",
            *table(
                [
                    {"request": name, "times": n}
                    for name, n in sorted(self.repeater.repeated.items())
                ]
            ),
            "",
            *(f"WRONG  {sentence}" for sentence in self.verdict.wrong),
            f"seed {self.seed}, {self.now():.0f} s, brokers {self.make}: {self.totals()}: "
            f"{'wrong' if self.verdict.wrong else 'all is well'}",
        ]

    def keep_history(self) -> None:
        """Write what the judge has judged, for those who look for a reason."""
        history = self.stage.history
        rows = {
            str(partition): {offset: value.decode() for offset, value in rows.items()}
            for partition, rows in history.committed.items()
        }
        attempts = {
            each.number: [
                each.producer,
                each.outcome.value,
                {
                    value.decode(): [str(place), offset]
                    for value, (place, offset) in each.writes.items()
                },
                [f"{partition} {offset}" for partition, offset in each.inputs],
            ]
            for each in history.attempts.values()
        }
        text = json.dumps({"committed": rows, "attempts": attempts}, indent=1)
        (self.directory / "history.json").write_text(text)
