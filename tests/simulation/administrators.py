"""Stories of administrators: topics are created, moved and deleted, and their names used again.

Meanwhile all faults strike, and producers write to whatever has the name. When peace is made:

a  a topic has every record that was acknowledged while it existed
b  it has no record that was acknowledged by an earlier topic of its name
c  each of its partitions is led, and in sync wherever its replicas are
d  all brokers tell of the same topics, with the same numbers of partitions, as ZooKeeper has them

A topic is known here by the transaction that created its znode, read from ZooKeeper's own tree.

python -m tests.simulation.administrators 42          one story
python -m tests.simulation.administrators 0:100       these; exit code 1 if one was violated
python -m tests.simulation.administrators --first 0:300   until one is violated
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import attrs

from clients.admin import Admin, NewTopic
from clients.producer.producer import Producer
from clients.simple_consumer import EARLIEST_TIME, FetchRequest, SimpleConsumer
from kgroup.testing.simulation.cluster import CLIENT, Cluster
from kgroup.testing.simulation.faults import Faults
from kgroup.testing.simulation.scene import simulate
from kgroup.testing.simulation.story import EXPECTED
from kgroup.testing.story import Violation
from kgroup.testing.waiting import until
from protocol.topic_partition import TopicPartition
from tests.stage.story_totals import seeds_of
from zk.znodes import Controller, TopicAssignment

NAMES = ("a", "b")
"""Few, so that they are used again and again."""
MOST_PARTITIONS = 4
QUIET_S = 120.0
PAUSE_S = (0.2, 4.0)
WRITE_PAUSE_S = (0.0, 0.3)
LONG_SILENCES = 0.2
UNHEARD = 0.3
DEAF_S = (4.0, 8.0)

Record = tuple[str, bytes]
"""The name of a topic, and the value of a record that was sent to it."""


@attrs.define(eq=False)
class Administration:
    """What is done to the topics of one cluster, and what is true of it."""

    cluster: Cluster
    faults: Faults
    rng: Random
    acknowledged: dict[Record, int] = attrs.field(factory=dict)
    """For each record, the creation of the topic in which it was acknowledged."""
    is_over: bool = False

    def created(self, name: str) -> int | None:
        """Return the transaction that created the topic of this name; None if there is none."""
        znode = self.cluster.zookeeper.server.tree.get(TopicAssignment.path(name))
        return None if znode is None else znode.stat.czxid

    # ---- what administrators and producers do

    async def administer(self) -> None:
        """Create, delete and move topics until it is over."""
        async with Admin(
            self.cluster.bootstrap, request_timeout_ms=4000, default_api_timeout_ms=8000
        ) as admin:
            while not self.is_over:
                await asyncio.sleep(self.rng.uniform(*PAUSE_S))
                name = self.rng.choice(NAMES)
                with suppress(*EXPECTED):
                    if self.created(name) is None:
                        await self._create(admin, name)
                    elif self.rng.random() < 0.5:
                        self._tell(f"deletes {name}")
                        if self.rng.random() < UNHEARD:
                            self._deafen(name)
                        await admin.delete_topics([name])
                    else:
                        await self._move(admin, name)

    async def _create(self, admin: Admin, name: str) -> None:
        partitions = range(self.rng.randint(1, MOST_PARTITIONS))
        assignments = {partition: self._replicas() for partition in partitions}
        self._tell(f"creates {name}: {assignments}")
        await admin.create_topics([NewTopic(name, assignments=assignments)])

    async def _move(self, admin: Admin, name: str) -> None:
        replicas = self._replicas()
        self._tell(f"moves {name}-0 to {replicas}")
        await admin.alter_partition_reassignments({TopicPartition(name, 0): replicas})

    def _deafen(self, name: str) -> None:
        """Have a broker without replicas of a topic hear no controller, until another one rules."""
        replicas = {broker_id for ids in self._partitions()[name].values() for broker_id in ids}
        controller = self.cluster.zookeeper.server.tree.get(Controller.path())
        ruler = None if controller is None else Controller.decode(controller.data).broker_id
        deaf = [node for node in self.cluster.nodes if node.broker_id not in replicas | {ruler}]
        if ruler is None or not deaf:
            return

        self.faults.cut("unheard deletion", f"b{ruler}", deaf[0].host, DEAF_S)
        asyncio.get_running_loop().call_later(DEAF_S[0] / 2, self.faults.depose_controller)

    def _replicas(self) -> list[int]:
        return self.rng.sample([node.broker_id for node in self.cluster.nodes], 2)

    async def write(self, writer: str) -> None:
        """Write to what has one of the names, until it is over."""
        config = CLIENT | {
            "bootstrap.servers": self.cluster.bootstrap,
            "acks": "all",
            # What was sent to a topic that is deleted must not hold up the rest.
            "delivery.timeout.ms": 5000,
        }
        number = 0
        async with Producer(config) as producer:
            while not self.is_over:
                await asyncio.sleep(self.rng.uniform(*WRITE_PAUSE_S))
                name, number = self.rng.choice(NAMES), number + 1
                value = b"%s %d" % (writer.encode(), number)
                before = self.created(name)
                if before is None:
                    continue
                with suppress(*EXPECTED):
                    await producer.send_and_wait(name, value)
                    # In between there was no other topic of the name.
                    if self.created(name) == before:
                        self.acknowledged[name, value] = before
                        self.cluster.story.counts["acknowledged"] += 1

    def _tell(self, what: str) -> None:
        self.cluster.story.tell("administrator", what)

    # ---- what must be true in the end

    async def reckon(self) -> None:
        """Check everything. Raises AssertionError."""
        await until(self._all_settled, "every partition is led and in sync", QUIET_S, pause_s=0.5)
        for node in self.cluster.nodes:
            await until(
                partial(self._tells_the_truth, node.address),
                f"{node.host} tells of the topics that there are",
                QUIET_S,
                pause_s=0.5,
                retry_on=(Exception,),
            )
        for name in NAMES:
            created = self.created(name)
            if created is not None:
                self._check(name, created, await self._read_all(name))

    def _partitions(self) -> dict[str, dict[int, tuple[int, ...]]]:
        nodes = self.cluster.zookeeper.server.tree
        return {
            name: dict(TopicAssignment.decode(nodes[TopicAssignment.path(name)].data).partitions)
            for name in NAMES
            if self.created(name) is not None
        }

    def _all_settled(self) -> bool:
        states = self.cluster.partition_states()
        for name, partitions in self._partitions().items():
            for index, replicas in partitions.items():
                state = states.get(TopicPartition(name, index))
                if state is None or state.leader < 0 or set(state.isr) != set(replicas):
                    return False
        return True

    async def _tells_the_truth(self, address: str) -> bool:
        true = {name: len(partitions) for name, partitions in self._partitions().items()}
        async with Admin(address, request_timeout_ms=1000, default_api_timeout_ms=900) as admin:
            told = [name for name in await admin.list_topics() if name in NAMES]
            topics = await admin.describe_topics(told) if told else {}
        counts = {name: len(topic.partitions) for name, topic in topics.items()}
        if counts != true:
            raise AssertionError(f"{address} tells of {counts}, there are {true}")
        return True

    async def _read_all(self, name: str) -> set[bytes]:
        values: set[bytes] = set()
        settings = CLIENT | {"bootstrap.servers": self.cluster.bootstrap}
        for partition in self._partitions()[name]:
            async with await SimpleConsumer.for_leader(settings, name, partition) as consumer:
                at = await consumer.earliest_or_latest_offset(name, partition, EARLIEST_TIME)
                while True:
                    fetched = await consumer.fetch(FetchRequest(name, partition, at))
                    fetched.raise_for_error()
                    values |= {row[3] or b"" for row in fetched.rows}
                    if fetched.next_offset <= at:
                        break
                    at = fetched.next_offset
        return values

    def _check(self, name: str, created: int, values: set[bytes]) -> None:
        own = {v for (of, v), when in self.acknowledged.items() if of == name and when == created}
        others = {v for (of, v), when in self.acknowledged.items() if of == name and when < created}
        foreign = values & others
        assert not foreign, (
            f"{name} has {len(foreign)} records of an earlier topic: {min(foreign)!r}"
        )
        lost = own - values
        assert not lost, f"{name} has lost records: {sorted(lost)}"


async def _scene(cluster: Cluster, faults: Faults) -> None:
    administration = Administration(cluster, faults, Random(cluster.rng.random()))
    faults.long_silences = LONG_SILENCES
    clients: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
        "administrator": administration.administer,
        "w1": partial(administration.write, "w1"),
        "w2": partial(administration.write, "w2"),
    }
    tasks = [cluster.client(name).spawn(main(), name) for name, main in clients.items()]
    await faults.strike()
    cluster.story.tell("nature", "peace")
    faults.heal()
    for process in cluster.clients:
        process.resume()
    administration.is_over = True
    await until(lambda: all(task.done() for task in tasks), "the clients have ended", QUIET_S)
    await cluster.client("auditor").run(administration.reckon)


def violation_of(seed: int) -> str:
    """Tell the story of a seed; return it if it was violated, else nothing."""
    try:
        simulate(
            _scene,
            seed=seed,
            settings={"min.insync.replicas": "1", "auto.leader.rebalance.enable": "false"},
        )
    except Violation as violation:
        return f"{violation}\n{violation.story}"
    return ""


def main(arguments: Sequence[str]) -> int:
    """Exit code 1 when a story was violated."""
    *options, wanted = arguments
    violated = 0
    seeds = seeds_of(wanted)
    for seed in seeds:
        violation = violation_of(seed)
        violated += bool(violation)
        if violation:
            print(violation, end="\n\n", flush=True)
        if violation and options == ["--first"]:
            break
    print(f"{len(seeds)} stories of administrators, {violated} violated")
    return 1 if violated else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
