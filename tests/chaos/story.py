"""A story: a cluster under load, faults from a seed, recovery, and the verdict."""

import asyncio
import contextlib
import json
import logging
import random
import traceback
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from broker.kbroker.start import LOG_LINE
from clients.admin import LATEST_TIME, Admin, NewTopic
from clients.errors import ClientError
from protocol.errors import ApiError
from protocol.topic_partition import TopicPartition
from tests.chaos.checker import (
    Verdict,
    judge_members,
    judge_offsets,
    judge_producer,
    judge_reader,
    judge_starts,
)
from tests.chaos.cluster import BROKERS, Cluster
from tests.chaos.disks import alarms, differing_logs, errors, is_partition, long_turns
from tests.chaos.faults import ALONE, FAULTS, FaultStage, deal
from tests.chaos.in_sync import out_of_sync
from tests.chaos.ledger import Committed, Observed, Produced
from tests.chaos.load import (
    GROUP,
    PARTITIONS,
    PROMPT,
    Committer,
    Member,
    OurProducer,
    StockProducer,
    read_along,
    read_through,
    watch_group,
)
from tests.chaos.observer import Observer
from tests.chaos.report import Happened, Report
from tests.chaos.stock_group import STOCK_GROUP, StockGroup
from tests.chaos.teller import Teller
from tests.interop.stock_consumers import Kind
from tests.stage.waiting import until
from zk.session import KazooSession

TOPICS = ("plain", "idempotent", "stock")
LOADED = [TopicPartition(topic, index) for topic in TOPICS for index in range(PARTITIONS)]
COMMITTED = [TopicPartition("plain", 0), TopicPartition("stock", 1)]
REST_S = (1.0, 5.0)
TWO_AT_ONCE = 0.3
"""How often a second fault comes upon a first one."""
PROGRESS_S = 5.0
RECOVERY_S = 60.0
ANSWER_S = 90.0
CALM_S = 4.0
END_LINES = 25
CLIENTS_LOG = "clients.log"


@attrs.define(eq=False)
class Story(Teller):
    """`tell` it once. Everything is kept in the directory."""

    directory: Path
    seed: int
    seconds: float
    stock_kinds: Sequence[Kind]
    """The kinds of consumers in the group of stock consumers; () for no such group."""
    verdict: Verdict = attrs.field(factory=Verdict)
    happened: list[Happened] = attrs.field(factory=list)
    produced: list[Produced] = attrs.field(factory=list)
    read: Observed = attrs.field(factory=lambda: Observed("reader"))
    handed_out: list[Observed] = attrs.field(
        factory=lambda: [Observed("member 0"), Observed("member 1")]
    )
    committed: list[Committed] = attrs.field(factory=list)
    stock: StockGroup = attrs.field(init=False)

    async def tell(self) -> Report:
        """Let it all happen."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._clients_log():
            return await self._tell()

    @contextlib.contextmanager
    def _clients_log(self) -> Iterator[None]:
        """What our own clients write of themselves is kept too."""
        log = logging.FileHandler(self.directory / CLIENTS_LOG)
        log.setFormatter(logging.Formatter(LOG_LINE))
        root = logging.getLogger()
        level = root.level
        root.addHandler(log)
        root.setLevel(logging.INFO)
        logging.getLogger("kazoo").setLevel(logging.WARNING)
        logging.getLogger("librdkafka").setLevel(logging.DEBUG)
        try:
            yield
        finally:
            root.removeHandler(log)
            root.setLevel(level)
            log.close()

    async def _tell(self) -> Report:
        self.say(f"seed {self.seed}, {self.seconds:.0f} s, in {self.directory}")
        async with Cluster(self.directory, self.say) as cluster:
            observer = Observer(cluster, self.now)
            await self._create_topics(cluster)
            stop = asyncio.Event()
            watching = asyncio.create_task(observer.run(stop))
            try:
                await self._under_load(cluster, observer)
            except Exception as error:
                traceback.print_exc()
                self.verdict.wrong.append(f"the story could not be told to its end: {error!r}")
            finally:
                stop.set()
                await watching
            for each in cluster.brokers.values():
                if each.is_up:
                    await cluster.terminate(each.broker_id)
            self.verdict.complain("processes that ended by themselves", cluster.deaths)
        self._judge_disks(cluster)
        return self._report(cluster, observer)

    async def _create_topics(self, cluster: Cluster) -> None:
        async with Admin({"bootstrap.servers": cluster.bootstrap} | PROMPT) as admin:
            verdicts = await admin.create_topics([NewTopic(t, PARTITIONS, 3) for t in TOPICS])
            assert not any(verdicts.values()), verdicts

    # ---- under load

    async def _under_load(self, cluster: Cluster, observer: Observer) -> None:
        members = [
            Member(cluster.bootstrap, cluster.zookeeper, TOPICS, observed)
            for observed in self.handed_out
        ]
        self.stock = StockGroup(cluster.bootstrap, TOPICS, self.stock_kinds, self.directory)
        consumers_stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            consuming = [tasks.create_task(each.run(consumers_stop)) for each in members]
            consuming.append(tasks.create_task(self.stock.run(consumers_stop)))
            consuming += [
                tasks.create_task(read_along(cluster.bootstrap, at, self.read, consumers_stop))
                for at in LOADED
            ]
            members_offsets = Committed(f"group {GROUP}")
            for group, offsets in ((GROUP, members_offsets), (STOCK_GROUP, self.stock.committed)):
                self.committed.append(offsets)
                watching = watch_group(cluster.bootstrap, group, LOADED, offsets, consumers_stop)
                consuming.append(tasks.create_task(watching))
            try:
                async with self._producing(cluster):
                    await asyncio.sleep(CALM_S)
                    await until(self.stock.have_all_joined, "stock consumers join")
                    stage = FaultStage(
                        cluster,
                        random.Random(self.seed),
                        self.say,
                        LOADED,
                        members,
                        self.stock,
                        lambda: observer.controller,
                    )
                    await self._hurt(stage, observer)
                    await self._recover(cluster, observer, stage)
                    await asyncio.sleep(CALM_S)
                await self._in_sync(cluster, observer)
                await self._read_back(cluster)
            finally:
                consumers_stop.set()
                _, late = await asyncio.wait(consuming, timeout=ANSWER_S)
                for task in late:
                    task.cancel()
                self.verdict.complain("consumers that do not stop", sorted(map(str, late)))
                self._judge_stock()
        await self._in_sync(cluster, observer)

    @contextlib.asynccontextmanager
    async def _producing(self, cluster: Cluster) -> AsyncIterator[None]:
        """Until the end of the block; behind it all is answered, or complained of."""
        stop = asyncio.Event()
        bootstrap, now = cluster.bootstrap, self.now
        runs: list[Coroutine[Any, Any, None]] = []
        for topic, name, is_idempotent in (
            ("plain", "plain-1", False),
            ("plain", "plain-2", False),
            ("idempotent", "idempotent-1", True),
            ("idempotent", "idempotent-2", True),
            ("stock", "stock-1", True),
        ):
            produced = Produced(name, is_idempotent)
            self.produced.append(produced)
            kind = StockProducer if topic == "stock" else OurProducer
            runs.append(kind(bootstrap, topic, produced, now).run(stop))
        for number, at in enumerate(COMMITTED):
            committed = Committed(f"committer-{number}")
            self.committed.append(committed)
            runs.append(Committer(bootstrap, committed.who, at, committed).run(stop))
        tasks = [asyncio.create_task(run) for run in runs]
        progress = asyncio.create_task(self._tell_progress())
        try:
            yield
        finally:
            stop.set()
            done, late = await asyncio.wait(tasks, timeout=ANSWER_S)
            progress.cancel()
            for task in late:
                task.cancel()
            failed = [repr(task.exception()) for task in done if task.exception()]
            self.verdict.complain("producers and committers that failed", failed)
            names = [str(task) for task in late]
            self.verdict.complain(f"not answered within {ANSWER_S:.0f} s of calm", names)

    async def _tell_progress(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_S)
            sent = sum(sum(each.sent.values()) for each in self.produced)
            acknowledged = sum(each.count for each in self.produced)
            lag, stock_lag = (
                max(0, acknowledged - number_of_messages(observed))
                for observed in (self.handed_out, self.stock.observed.values())
            )
            commits = sum(each.count for each in self.committed)
            self.say(
                f"      acknowledged {acknowledged} of {sent}, "
                f"members lag {lag}, stock consumers {stock_lag}, commits {commits}"
            )

    # ---- what goes wrong

    async def _hurt(self, stage: FaultStage, observer: Observer) -> None:
        names = deal(stage.chance)
        ends = self.now() + self.seconds
        while self.now() < ends and not stage.cluster.deaths:
            chosen = [next(names)]
            if stage.chance.random() < TWO_AT_ONCE:
                second = next(names)
                if second != chosen[0] and not {second, chosen[0]} <= ALONE:
                    chosen.append(second)
            began = self.now()
            changes, shrinks = observer.leader_changes, observer.isr_shrinks
            for name in chosen:
                self.say(f"--- {name}")
            async with asyncio.TaskGroup() as tasks:
                for name in chosen:
                    fault, _ = FAULTS[name]
                    tasks.create_task(fault(stage))
            self.say(f"    {' and '.join(chosen)}: over")
            await asyncio.sleep(stage.chance.uniform(*REST_S))
            self.happened.append(
                Happened(
                    " + ".join(chosen) if len(chosen) > 1 else chosen[0],
                    began,
                    self.now(),
                    observer.leader_changes - changes,
                    observer.isr_shrinks - shrinks,
                    self._longest_gap(began),
                )
            )

    def _longest_gap(self, since: float) -> float:
        ended = [end - max(begin, since) for _, begin, end in self._gaps() if end > since]
        lasting = [self.now() - max(last, since) for p in self.produced for last in p.last.values()]
        return max([gap for gap in ended + lasting if gap >= 1], default=0.0)

    def _gaps(self) -> list[tuple[TopicPartition, float, float]]:
        return [gap for produced in self.produced for gap in produced.gaps]

    # ---- afterwards

    async def _recover(self, cluster: Cluster, observer: Observer, stage: FaultStage) -> None:
        self.say("=== no more faults")
        cluster.network.heal(list(cluster.network.links))
        for each in cluster.brokers.values():
            if not each.is_up:
                await cluster.start(each.broker_id)
        async with Admin({"bootstrap.servers": cluster.bootstrap} | PROMPT) as admin:
            ends = self.now() + RECOVERY_S
            while self.now() < ends and not await self._is_whole_again(admin, stage.passing):
                await asyncio.sleep(1)
        await self._in_sync(cluster, observer)

    async def _is_whole_again(self, admin: Admin, passing: Sequence[str]) -> bool:
        """Whether all partitions have, or have been given, three replicas, and no topic is left."""
        try:
            found = await admin.describe_topics(TOPICS)
            few = {
                TopicPartition(name, index): list(BROKERS)
                for name, topic in found.items()
                for index, view in topic.partitions.items()
                if len(view.replicas) < len(BROKERS)
            }
            if few:
                await admin.alter_partition_reassignments(few)
            left = sorted(set(passing) & set(await admin.list_topics()))
            if left:
                await admin.delete_topics(left)
        except (ApiError, ClientError) as error:
            self.say(f"recovering: {error!r}")
            return False
        return not few and not left

    async def _in_sync(self, cluster: Cluster, observer: Observer) -> None:
        """All ISRs are full, and everybody knows: the brokers alike, as ZooKeeper has it."""
        ends = self.now() + RECOVERY_S
        wrong = ["nothing is known"]
        session = KazooSession(cluster.zookeeper)
        await session.start()
        try:
            while wrong and self.now() < ends:
                await asyncio.sleep(0.25)
                wrong = await out_of_sync(session, observer, LOADED)
        finally:
            await session.close()
        self.say(f"in sync: {'no, ' + wrong[0] if wrong else 'all'}")
        self.verdict.complain(f"not in sync within {RECOVERY_S:.0f} s", wrong)

    async def _read_back(self, cluster: Cluster) -> None:
        """Read everything again, and hold against it all that was told."""
        async with Admin({"bootstrap.servers": cluster.bootstrap} | PROMPT) as admin:
            ends = await admin.list_offsets(dict.fromkeys(LOADED, LATEST_TIME))
        final = Observed("the last reader")
        async with asyncio.timeout(ANSWER_S):
            await asyncio.gather(
                *(read_through(cluster.bootstrap, at, final, ends[at].offset) for at in LOADED)
            )
        stored = {at: dict(sorted(final.values[at].items())) for at in LOADED}
        until = self.now() + RECOVERY_S
        while self.now() < until and not self._all_is_handed_out(stored):
            await asyncio.sleep(0.25)
        for produced in self.produced:
            judge_producer(self.verdict, produced, stored)
        for who, observed in self._groups.items():
            for each in observed:
                judge_reader(self.verdict, each, stored)
            judge_members(self.verdict, who, observed, stored)
        for committed in self.committed:
            judge_offsets(self.verdict, committed)

    @property
    def _groups(self) -> dict[str, Sequence[Observed]]:
        """Who has to be handed out everything, together."""
        groups = {"members": self.handed_out, "reader": [self.read]}
        if self.stock_kinds:
            groups["stock consumers"] = list(self.stock.observed.values())
        return groups

    def _all_is_handed_out(self, stored: dict[TopicPartition, dict[int, bytes]]) -> bool:
        return all(
            any(offset in each.values[at] for each in observed)
            for observed in self._groups.values()
            for at, values in stored.items()
            for offset in values
        )

    def _judge_stock(self) -> None:
        """Of their commits and positions, when all have ended."""
        who = "stock consumers"
        judge_starts(self.verdict, who, self.stock.starts, self.stock.commits)
        self.verdict.complain(f"{who}: went back in what they own", self.stock.steps_back)
        self.verdict.complain(f"{who}: ended by themselves", self.stock.deaths)

    # ---- what is left

    def _judge_disks(self, cluster: Cluster) -> None:
        directories = [each.log_dir for each in cluster.brokers.values()]
        self.verdict.complain("replicas that differ", differing_logs(directories))
        left = [
            f"{d.name}/{each.name}"
            for d in directories
            for each in d.glob("passing-*")
            if is_partition(each)
        ]
        self.verdict.complain("logs of topics that were deleted", left)
        for name in (*(each.log_file.name for each in cluster.brokers.values()), CLIENTS_LOG):
            self.verdict.complain("tracebacks and worse", alarms(self.directory / name))
            self.verdict.complain("an event loop that stops", long_turns(self.directory / name))

    def _report(self, cluster: Cluster, observer: Observer) -> Report:
        report = Report(
            seed=self.seed,
            seconds=self.now(),
            verdict=self.verdict,
            stock=self.stock.rows,
            happened=self.happened,
            gaps=self._gaps(),
            leaderless=observer.leaderless,
            commits=sum(each.count for each in self.committed),
            handed_out=sum(sum(map(len, each.values.values())) for each in self.handed_out),
            handed_out_again=sum(each.again for each in self.handed_out),
            errors={each.log_file.name: errors(each.log_file) for each in cluster.brokers.values()},
            given_up=cluster.given_up,
        )
        (self.directory / "report.json").write_text(json.dumps(report.as_json(), indent=2))
        (self.directory / "story.log").write_text("\n".join(self.told) + "\n")
        return report


def number_of_messages(observed: Iterable[Observed]) -> int:
    """Count the messages that any of these was handed out."""
    return len({(at, n) for each in observed for at, values in each.values.items() for n in values})


def told_for_people(story: Story, report: Report) -> str:
    """The tables; and where something is wrong, the end of the story and where to look."""
    lines = report.lines()
    if report.verdict.wrong:
        lines += [
            "",
            "the end of the story:",
            *story.told[-END_LINES:],
            f"everything is in {story.directory}; again: "
            f"python -m tests.chaos --minutes {story.seconds / 60:g} --seed {story.seed}",
        ]
    return "\n".join(lines)
