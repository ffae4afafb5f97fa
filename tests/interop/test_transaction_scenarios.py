"""Kafka's scenarios of transactions, played by stock clients on our brokers.

They are those of TransactionsTest, TransactionsExpirationTest and TransactionsBounceTest, in our
words. `make test` plays nearly each of them once, the clients by turns; `make interop` all of them
with each client that can express them (`transactor.py` says which cannot, and why).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest

from broker.process.process_limits import wall_clock_ms
from clients.admin import Admin, NewTopic
from clients.admin.descriptions import TransactionDescription
from clients.producer.producer import Producer
from offsets.topic import partition_for
from protocol.errors import ErrorCode, KgroupError
from protocol.internal_topics import TRANSACTIONS_TOPIC
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.cluster.restartable_cluster import RestartableCluster, create, partition_state
from tests.interop.drivers.transactor.calls import ABORTABLE, FENCED, ILLEGAL, TIMEOUT
from tests.interop.kafka_cluster import unique
from tests.interop.transactor import (
    AIOKAFKA,
    JAVA_2_8,
    JAVA_3_9,
    KINDS,
    LIBRDKAFKA,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    CallRefused,
    Kind,
    Transactor,
)
from tests.stage.broker import Site
from tests.stage.waiting import block_until, until

BROKERS = 3
STATE_PARTITIONS = 3
SETTINGS = {
    "zookeeper.session.timeout.ms": "3000",
    "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "offsets.topic.num.partitions": "3",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    # Leaders ask the coordinator before they open a transaction: no client may notice.
    "transaction.partition.verification.enable": "true",
}
TIMESTAMP, LATER = 1_700_000_000_000, 4_000_000_000_000
"""The time of a marker is between them."""
COPYING_S = 300.0


@attrs.define(eq=False)
class Scene:
    """A client, and names that nobody else has."""

    client: Transactor
    cluster: RestartableCluster
    name: str = attrs.field(factory=partial(unique, "x"))

    @property
    def call(self) -> Callable[..., list[str]]:
        return self.client.call

    def topic(
        self, partitions: int = 1, assignments: Mapping[int, Sequence[int]] | None = None
    ) -> str:
        name = unique("t")
        if assignments is None:
            new = NewTopic(name, partitions, BROKERS)
        else:
            new = NewTopic(name, assignments=assignments, configs={"min.insync.replicas": "1"})
        asyncio.run(self._create(new))
        return name

    async def _create(self, new: NewTopic) -> None:
        async with Admin(self.client.bootstrap) as admin:
            await create(admin, new)

    def producer(self, name: str = "p", transactional_id: str = "", **settings: object) -> None:
        """Open a producer and initialise it; settings are named with underscores for dots."""
        self.open_producer(name, transactional_id, **settings)
        self.call("init", name)

    def open_producer(
        self, name: str = "p", transactional_id: str = "", **settings: object
    ) -> None:
        pairs = [f"{key.replace('_', '.')}={value}" for key, value in settings.items()]
        given = f"transactional.id={transactional_id or self.name}"
        self.call("producer", name, given, *pairs)

    def send(
        self, topic: str, *values: str, producer: str = "p", partition: int = 0, at: int = TIMESTAMP
    ) -> None:
        """Send, and wait until all are in the log."""
        self.call("send", producer, topic, partition, at, *values)
        self.call("flush", producer)

    def refuses(self, kind: str, *words: object) -> None:
        """Make a call that must end with an error of this kind."""
        with pytest.raises(CallRefused) as refused:
            self.call(*words)
        assert refused.value.kind == kind, refused.value

    # ---- what there is

    def read(self, topic: str, isolation: str, partitions: int = 1, min_bytes: int = 1) -> set[str]:
        words = self.call("read", topic, isolation, partitions, min_bytes)
        assert len(set(words)) == len(words)
        return set(words)

    def committed_values(self, topic: str, partitions: int = 1) -> list[str]:
        return sorted(map(value_of, self.read(topic, READ_COMMITTED, partitions)))

    def await_values(self, topic: str, values: Sequence[str], partitions: int = 1) -> None:
        """Wait until these are all that readers of committed data see."""
        read: list[str] = []

        def is_equal() -> bool:
            read[:] = self.committed_values(topic, partitions)
            return read == sorted(values)

        block_until(is_equal, f"{sorted(values)} of {read}")

    def transaction(self) -> TransactionDescription:
        return asyncio.run(described(self.client.bootstrap, self.name))

    def await_state(self, *states: str) -> None:
        block_until(lambda: self.transaction().state in states, f"{self.name} is {states}")

    def group_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return asyncio.run(self._group_offsets())

    async def _group_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        async with Admin(self.client.bootstrap) as admin:
            return dict(await admin.group_offsets(self.name))

    # ---- brokers that are away

    @contextlib.contextmanager
    def without(self, *brokers: int, number: signal.Signals = signal.SIGKILL) -> Iterator[None]:
        """End brokers; start them again at the end, and wait until all is in sync."""
        for broker_id in brokers:
            asyncio.run(self.cluster.stop(broker_id, number))
        try:
            yield
        finally:
            asyncio.run(self._start(brokers))

    async def _start(self, brokers: Sequence[int]) -> None:
        await asyncio.gather(*map(self.cluster.start, brokers))
        async with self.cluster.dev.zookeeper_session() as zk:
            await self.cluster.in_sync(zk)


def value_of(word: str) -> str:
    return word.split("/", 2)[2]


async def described(bootstrap: str, transactional_id: str) -> TransactionDescription:
    async with Admin(bootstrap) as admin:
        return (await admin.describe_transactions([transactional_id]))[transactional_id]


# ---- what readers see


def readers_see_what_is_committed(scene: Scene) -> None:
    topic = scene.topic(2)
    scene.producer()
    for end in ("abort", "commit"):
        scene.call("begin", "p")
        for partition in range(2):
            scene.send(topic, f"{end}-{partition}", partition=partition)
        scene.call(end, "p")

    scene.await_values(topic, ["commit-0", "commit-1"], 2)
    assert len(scene.read(topic, READ_UNCOMMITTED, 2)) == 4


def readers_stop_at_what_is_undecided(scene: Scene) -> None:
    topic = scene.topic()
    scene.producer()
    scene.producer("other", f"{scene.name}-other")
    scene.call("begin", "p")
    scene.send(topic, "first")
    scene.call("commit", "p")
    scene.await_values(topic, ["first"])

    # Offset 1 has the marker.
    scene.call("begin", "other")
    scene.send(topic, "open", producer="other", at=LATER)
    scene.call("begin", "p")
    scene.send(topic, "behind", at=LATER)
    scene.call("commit", "p")
    scene.await_state("CompleteCommit")
    assert scene.read(topic, READ_COMMITTED) == {"0/0/first"}
    assert scene.call("end", topic, READ_COMMITTED) == ["2"]
    assert scene.call("lookup", topic, READ_COMMITTED, LATER) == ["-1"]
    assert scene.call("lookup", topic, READ_UNCOMMITTED, LATER) == ["2"]

    scene.call("abort", "other")
    scene.await_values(topic, ["first", "behind"])


def readers_that_wait_for_many_bytes_skip_what_is_aborted(scene: Scene) -> None:
    topic = scene.topic()
    scene.producer()
    scene.producer("other", f"{scene.name}-other")
    for producer in ("p", "other"):
        scene.call("begin", producer)
    scene.send(topic, "a")
    scene.send(topic, "b", "c", producer="other")
    scene.send(topic, "d")
    scene.call("commit", "p")
    scene.call("abort", "other")

    def read() -> set[str]:
        return scene.read(topic, READ_COMMITTED, min_bytes=100_000)

    block_until(lambda: read() == {"0/0/a", "0/3/d"}, "the fetch returns what is committed")


def markers_are_written_in_many_partitions(scene: Scene) -> None:
    for replicas in ([0], [0, 1, 2]):
        topic = scene.topic(assignments=dict.fromkeys(range(20), replicas))
        scene.producer(f"p-{len(replicas)}", f"{scene.name}-{len(replicas)}")
        for end in ("commit", "abort"):
            scene.call("begin", f"p-{len(replicas)}")
            for partition in range(20):
                scene.call("send", f"p-{len(replicas)}", topic, partition, TIMESTAMP, end)
            scene.call("flush", f"p-{len(replicas)}")
            scene.call(end, f"p-{len(replicas)}")
        scene.await_values(topic, ["commit"] * 20, 20)
        assert len(scene.read(topic, READ_UNCOMMITTED, 20)) == 40


# ---- consume, transform, produce


SendPositions = Callable[[Scene, str, Sequence[str]], object]


def send_by_group_id(scene: Scene, topic: str, words: Sequence[str]) -> None:
    for partition, offset in positions_behind(words).items():
        scene.call("offset_of_group", "p", scene.name, topic, partition, offset, -1, "")


def send_by_group_metadata(scene: Scene, _: str, __: Sequence[str]) -> None:
    scene.call("positions_of_consumer", "p", "c")


def copy_by_group_id(scene: Scene) -> None:
    copy(scene, send_by_group_id)


def copy_by_group_metadata(scene: Scene) -> None:
    copy(scene, send_by_group_metadata)


def copy_while_brokers_are_restarted(scene: Scene) -> None:
    knows_metadata = copy_by_group_metadata.__name__ not in scene.client.kind.cannot
    send_positions = send_by_group_metadata if knows_metadata else send_by_group_id
    with ThreadPoolExecutor(1) as thread:
        copying = thread.submit(copy, scene, send_positions, 10_000, 200)
        for broker_id in itertools.cycle(range(BROKERS)):
            if copying.done():
                break
            with scene.without(broker_id, number=signal.SIGTERM):
                pass
        copying.result()


def copy(
    scene: Scene, send_positions: SendPositions, count: int = 500, most_polled: int = 20
) -> None:
    """Copy messages in transactions, of which every third is aborted."""
    source, target = scene.topic(4), scene.topic(4)
    values = asyncio.run(fill(scene.client.bootstrap, source, 4, count))
    scene.producer()
    scene.call("consumer", "c", scene.name, source, most_polled)

    copied = attempts = 0
    ends_s = time.monotonic() + COPYING_S
    while copied < len(values):
        assert time.monotonic() < ends_s, f"{copied} messages are copied"
        words = scene.call("poll", "c")
        if not words:
            continue
        attempts += 1
        scene.call("begin", "p")
        send_copies(scene, target, words)
        send_positions(scene, source, words)
        if attempts % 3:
            scene.call("commit", "p")
            copied += len(words)
        else:
            scene.call("abort", "p")
            scene.call("rewind", "c")
    scene.call("leave", "c")

    scene.await_values(target, values, 4)
    committed = sum(offset.offset for offset in scene.group_offsets().values())
    assert committed == len(values)


def send_copies(scene: Scene, topic: str, words: Sequence[str]) -> None:
    for partition in range(4):
        values = [value_of(word) for word in words if word.startswith(f"{partition}/")]
        if values:
            scene.call("send", "p", topic, partition, TIMESTAMP, *values)


def positions_behind(words: Sequence[str]) -> dict[int, int]:
    """Return the position behind the last message of each partition."""
    places = [word.split("/") for word in words]
    return {int(partition): int(offset) + 1 for partition, offset, _ in places}


async def fill(bootstrap: str, topic: str, partitions: int, count: int) -> list[str]:
    values = [f"{number:05}" for number in range(count)]
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number, value in enumerate(values):
            await producer.send(topic, value.encode(), partition=number % partitions)
    return values


def offset_is_read_back_with_its_metadata(scene: Scene) -> None:
    topic = scene.topic()
    scene.producer()
    scene.call("begin", "p")
    scene.call("offset_of_group", "p", scene.name, topic, 0, 5, 15, "some metadata")
    scene.call("commit", "p")
    block_until(scene.group_offsets, "the offset")
    (offset,) = scene.group_offsets().values()
    epoch = 15 if scene.client.kind.sends_leader_epochs else -1
    # librdkafka sends its string's end, too.
    metadata = offset.metadata.rstrip("\0")
    assert (offset.offset, offset.leader_epoch, metadata) == (5, epoch, "some metadata")


# ---- one producer in the place of another


@contextlib.contextmanager
def replaced_producer(scene: Scene) -> Iterator[str]:
    """Give a topic in which a producer has a transaction open, when another one has its id."""
    topic = scene.topic(2)
    scene.producer()
    scene.call("begin", "p")
    scene.send(topic, "first")
    scene.producer("second")
    scene.call("begin", "second")
    scene.send(topic, "second", producer="second")
    scene.call("commit", "second")
    yield topic
    scene.await_values(topic, ["second"], 2)


def commit_of_a_replaced_producer_is_fenced(scene: Scene) -> None:
    with replaced_producer(scene):
        scene.refuses(FENCED, "commit", "p")


def offset_of_a_replaced_producer_is_fenced(scene: Scene) -> None:
    with replaced_producer(scene) as topic:
        scene.refuses(FENCED, "offset_of_group", "p", scene.name, topic, 0, 1, -1, "")
    assert scene.group_offsets() == {}


def record_of_a_replaced_producer_is_fenced(scene: Scene) -> None:
    with replaced_producer(scene) as topic:
        refuse_record(scene, FENCED, topic)


def partition_of_a_replaced_producer_is_fenced(scene: Scene) -> None:
    with replaced_producer(scene) as topic:
        refuse_record(scene, FENCED, topic, 1)


def refuse_record(scene: Scene, kind: str, topic: str, partition: int = 0) -> None:
    """Send a record that must end with an error of this kind."""
    scene.call("send", "p", topic, partition, TIMESTAMP, "late")
    scene.refuses(kind, "flush", "p")


def transaction_that_is_open_for_too_long_fences_its_producer(scene: Scene) -> None:
    topic = scene.topic()
    scene.producer(transaction_timeout_ms=1000)
    scene.call("begin", "p")
    scene.send(topic, "first")
    scene.await_state("CompleteAbort")
    refuse_record(scene, FENCED, topic)
    assert scene.committed_values(topic) == []


# ---- brokers that are away


def every_call_times_out_while_no_broker_runs(scene: Scene) -> None:
    topic = scene.topic()
    calls = {"init": [], "offset_of_group": [scene.name, topic, 0, 1, -1, ""]}
    calls |= {"commit": [], "abort": []}
    for verb in calls:
        scene.open_producer(verb, f"{scene.name}-{verb}", max_block_ms=2000)
        if verb == "init":
            continue
        scene.call("init", verb)
        scene.call("begin", verb)
        scene.send(topic, verb, producer=verb)

    with scene.without(*range(BROKERS)):
        for verb, words in calls.items():
            scene.refuses(TIMEOUT, verb, verb, *words)

    # They go on with what timed out, and end it when brokers are there.
    scene.producer("next", f"{scene.name}-offset_of_group")
    scene.await_values(topic, ["commit"])


def second_init_is_refused(scene: Scene) -> None:
    scene.producer()
    scene.refuses(ILLEGAL, "init", "p")


def batch_that_expires_costs_an_epoch(scene: Scene) -> None:
    topic = scene.topic(assignments={0: [2]})
    scene.producer(delivery_timeout_ms=3000, request_timeout_ms=2000)
    scene.call("begin", "p")
    scene.send(topic, "before")
    scene.call("commit", "p")
    scene.await_state("CompleteCommit")
    before = scene.transaction()

    # librdkafka does not end a transaction if it does not know that its partition was added. Then a
    # coordinator, Kafka's too, fences it when it asks for another epoch.
    scene.call("begin", "p")
    scene.send(topic, "aborted")
    with scene.without(2):
        refuse_record(scene, TIMEOUT, topic)
    scene.call("abort", "p")
    block_until(partial(is_committed, scene, topic, "after"), "the next transaction")
    scene.await_values(topic, ["before", "after"])
    after = scene.transaction()
    assert after.producer_id == before.producer_id
    assert after.producer_epoch > before.producer_epoch


def is_committed(scene: Scene, topic: str, value: str) -> bool:
    """Commit a record, or abort; librdkafka may find only now that it has skipped a number."""
    scene.call("begin", "p")
    try:
        scene.send(topic, value)
    except CallRefused as refused:
        if refused.kind != ABORTABLE:
            raise
        scene.call("abort", "p")
        return False
    scene.call("commit", "p")
    return True


def init_that_is_not_written_costs_no_epoch(scene: Scene) -> None:
    topic = scene.topic()
    scene.producer()
    scene.call("begin", "p")
    scene.send(topic, "first")
    scene.call("commit", "p")
    scene.await_state("CompleteCommit")
    before = scene.transaction().producer_epoch

    with scene.without(1, 2):
        asyncio.run(alone_in_sync(scene, 0))
        scene.open_producer("second", max_block_ms=3000)
        scene.refuses(TIMEOUT, "init", "second")
        scene.call("close", "second")
    scene.producer("third")
    assert scene.transaction().producer_epoch == before + 1
    scene.call("begin", "p")
    refuse_record(scene, FENCED, topic)


async def alone_in_sync(scene: Scene, broker_id: int) -> None:
    """Return when the coordinator's partition has this one replica in sync."""
    number = partition_for(scene.name, STATE_PARTITIONS)
    async with scene.cluster.dev.zookeeper_session() as zk:

        async def is_alone() -> bool:
            state = await partition_state(zk, TRANSACTIONS_TOPIC, number)
            return state.leader == broker_id and list(state.isr) == [broker_id]

        await until(is_alone, f"broker {broker_id} alone is in sync")


Scenario = Callable[[Scene], None]

SCENARIOS: dict[Scenario, Kind | None] = {
    readers_see_what_is_committed: AIOKAFKA,
    readers_stop_at_what_is_undecided: JAVA_2_8,
    readers_that_wait_for_many_bytes_skip_what_is_aborted: AIOKAFKA,
    markers_are_written_in_many_partitions: LIBRDKAFKA,
    copy_by_group_id: AIOKAFKA,
    copy_by_group_metadata: JAVA_2_8,
    offset_is_read_back_with_its_metadata: LIBRDKAFKA,
    commit_of_a_replaced_producer_is_fenced: LIBRDKAFKA,
    offset_of_a_replaced_producer_is_fenced: JAVA_2_8,
    record_of_a_replaced_producer_is_fenced: JAVA_2_8,
    partition_of_a_replaced_producer_is_fenced: AIOKAFKA,
    transaction_that_is_open_for_too_long_fences_its_producer: LIBRDKAFKA,
    every_call_times_out_while_no_broker_runs: None,  # it is about clients more than brokers
    second_init_is_refused: LIBRDKAFKA,
    batch_that_expires_costs_an_epoch: LIBRDKAFKA,
    init_that_is_not_written_costs_no_epoch: JAVA_2_8,
    copy_while_brokers_are_restarted: None,  # it takes half a minute
}
"""Each scenario, with the client that plays it in `make test`."""


def cases() -> list[Any]:
    """Return each scenario with each client that can express it."""
    return [
        pytest.param(
            scenario,
            kind,
            id=f"{scenario.__name__}-{kind}",
            marks=() if SCENARIOS[scenario] is kind else pytest.mark.product,
        )
        for scenario in SCENARIOS
        for kind in KINDS
        if scenario.__name__ not in kind.cannot
    ]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestartableCluster]:
    directory = tmp_path_factory.mktemp("transactions")
    with RestartableCluster.running(directory, BROKERS, SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def clients(
    cluster: RestartableCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Kind], Transactor]]:
    """Give the process of each kind, started when it is asked for."""
    directory = tmp_path_factory.mktemp("clients")
    started: dict[Kind, Transactor] = {}
    with contextlib.ExitStack() as stack:

        def client_of(kind: Kind) -> Transactor:
            if kind not in started:
                client = Transactor(kind, cluster.bootstrap, directory / f"{kind}.log")
                started[kind] = stack.enter_context(client)
            return started[kind]

        yield client_of


def test_what_a_client_cannot_express_is_a_scenario() -> None:
    named = {scenario.__name__ for scenario in SCENARIOS} | {EXPIRED_ID}
    assert {name for kind in KINDS for name in kind.cannot} <= named


@pytest.mark.parametrize(("scenario", "kind"), cases())
def test_scenario(
    cluster: RestartableCluster,
    clients: Callable[[Kind], Transactor],
    scenario: Scenario,
    kind: Kind,
) -> None:
    scenario(Scene(clients(kind), cluster))


# ---- what expires

WEEK_MS = 7 * 86_400_000
"""The default of transactional.id.expiration.ms."""
ALONE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
}
EXPIRED_ID = "expired_id_is_initialised_by_the_abort"
OF_KIP_360 = [
    pytest.param(kind, id=str(kind), marks=() if kind is JAVA_3_9 else pytest.mark.product)
    for kind in KINDS
    if EXPIRED_ID not in kind.cannot
]


@attrs.define(eq=False)
class Expiring:
    """A broker in this process whose clock is set forward, and a client that transacts on it."""

    client: Transactor
    topic: str = attrs.field(factory=partial(unique, "t"))
    name: str = attrs.field(factory=partial(unique, "x"))

    async def call(self, *words: object) -> list[str]:
        return await asyncio.to_thread(self.client.call, *words)

    async def begin(self) -> None:
        """Create the topic, and make the first transaction."""
        async with Admin(self.client.bootstrap) as admin:
            assert await admin.create_topics([NewTopic(self.topic, 1, 1)]) == {self.topic: None}
        await self.call("producer", "p", f"transactional.id={self.name}")
        await self.call("init", "p")
        await self.commit("before")

    async def commit(self, value: str) -> None:
        await self.call("begin", "p")
        await self.call("send", "p", self.topic, 0, TIMESTAMP, value)
        await self.call("flush", "p")
        await self.call("commit", "p")

        async def is_complete() -> bool:
            return (await self.describe()).state == "CompleteCommit"

        await until(is_complete, "the transaction is complete")

    async def describe(self) -> TransactionDescription:
        return await described(self.client.bootstrap, self.name)

    async def is_expired(self) -> bool:
        try:
            await self.describe()
        except KgroupError as error:
            return getattr(error, "code", None) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return False

    async def values(self) -> list[str]:
        words = await self.call("read", self.topic, READ_COMMITTED, 1, 1)
        return list(map(value_of, words))


@pytest.mark.parametrize("kind", OF_KIP_360)
async def test_id_that_expired_is_initialised_by_the_abort(kind: Kind, tmp_path: Path) -> None:
    ahead_ms = 0
    site = Site(tmp_path, now_ms=lambda: wall_clock_ms() + ahead_ms)
    often = {"transaction.remove.expired.transaction.cleanup.interval.ms": "100"}
    async with site.running(1, **ALONE, **often) as broker:
        with Transactor(kind, broker.bootstrap, tmp_path / "client.log") as client:
            scene = Expiring(client)
            await scene.begin()
            before = await scene.describe()

            ahead_ms = WEEK_MS + 1
            await until(scene.is_expired, "the id is expired")
            ahead_ms = 0
            await scene.call("begin", "p")
            await scene.call("send", "p", scene.topic, 0, TIMESTAMP, "lost")
            with pytest.raises(CallRefused) as refused:
                await scene.call("flush", "p")
            assert refused.value.kind == ABORTABLE, refused.value
            await scene.call("abort", "p")

            await scene.commit("after")
            after = await scene.describe()
            assert (after.producer_id > before.producer_id, after.producer_epoch) == (True, 0)
            assert await scene.values() == ["before", "after"]


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, id=str(kind), marks=() if kind is AIOKAFKA else pytest.mark.product)
        for kind in KINDS
    ],
)
async def test_producer_that_its_partition_has_forgotten_goes_on(
    kind: Kind, tmp_path: Path
) -> None:
    async with Site(tmp_path).running(1, **ALONE) as broker:
        with Transactor(kind, broker.bootstrap, tmp_path / "client.log") as client:
            scene = Expiring(client)
            await scene.begin()
            before = await scene.describe()

            # The broker looks for old producers every ten minutes.
            place = TopicPartition(scene.topic, 0)
            producers = broker.partitions[place].log.producers
            assert len(producers.producers) == 1
            assert len([*producers.expire(wall_clock_ms() + WEEK_MS, WEEK_MS)]) == 1
            assert not producers.producers

            await scene.commit("after")
            assert (await scene.describe()).producer_id == before.producer_id
            assert await scene.values() == ["before", "after"]
