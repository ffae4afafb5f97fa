"""A compacted topic on a real broker: written to while it is cleaned, its worker and broker killed.

The cleaner is slowed down where a test must catch it at work, and let go when it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs
from kafka import KafkaConsumer
from kafka import TopicPartition as StockTopicPartition

from clients.admin import Admin, NewTopic
from clients.producer.producer import Producer
from compaction.status import STATUS_FILE, CleanerStatus, decode_status
from protocol.topic_partition import TopicPartition
from tests.stage.cluster import DevCluster
from tests.stage.processes import frozen, lives
from tests.stage.topic_contents import contents
from tests.stage.waiting import block_until

TP = TopicPartition("positions", 0)
KEYS = 50
TOPIC = {
    "cleanup.policy": "compact",
    "segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.1",
    "file.delete.delay.ms": "1000",
}
SPEED = "log.cleaner.io.max.bytes.per.second"
SETTINGS = (
    *("--set", "log.cleaner.backoff.ms=200"),
    *("--set", "zookeeper.session.timeout.ms=2000"),
)
PATIENT = ("--set", "zookeeper.session.timeout.ms=30000")
"""For a broker that is stopped for a while."""
SLOWEST, SLOW, FAST = "50", "10000", "1000000000"


@attrs.define(eq=False)
class Positions:
    """A topic of which somebody knows what it should hold."""

    cluster: DevCluster
    newest: dict[str, str] = attrs.field(factory=dict)
    sent: int = 0

    async def create(self) -> None:
        async with Admin(self.cluster.address("bootstrap")) as admin:
            made = await admin.create_topics([NewTopic(TP.topic, 1, 1, configs=TOPIC)])
        assert made == {TP.topic: None}

    async def write(self, count: int) -> None:
        """So many records, all acknowledged when it returns."""
        bootstrap = self.cluster.address("bootstrap")
        async with Producer(bootstrap_servers=bootstrap, acks="all", linger_ms=2) as producer:
            deliveries = []
            for _ in range(count):
                key, value = f"k{self.sent % KEYS}", f"{self.sent}".ljust(60, ".")
                deliveries.append(await producer.send(TP.topic, value.encode(), key=key.encode()))
                self.newest[key] = value
                self.sent += 1
            await asyncio.gather(*deliveries)

    @contextlib.asynccontextmanager
    async def written_to(self) -> AsyncIterator[None]:
        """In the block, too."""
        stopping = asyncio.Event()

        async def go_on() -> None:
            while not stopping.is_set():
                await self.write(50)

        async with asyncio.TaskGroup() as group:
            group.create_task(go_on())
            yield
            stopping.set()

    async def found(self) -> list[tuple[int, str, str]]:
        """Offset, key and value of all there is."""
        records = await contents(self.cluster.address("bootstrap"), TP)
        return [(r.offset, (r.key or b"").decode(), (r.value or b"").decode()) for r in records]

    async def assert_right(self, *, at_most: int) -> None:
        """Each key's newest value is there, offsets go up, and the rest has mostly gone."""
        found = await self.found()
        assert {key: value for _, key, value in found} == self.newest
        offsets = [offset for offset, _, _ in found]
        assert offsets == sorted(set(offsets))
        assert all(value == f"{offset}".ljust(60, ".") for offset, _, value in found)
        assert len(found) <= at_most

    @property
    def directory(self) -> Path:
        return self.cluster.directory / "broker-0"

    def status(self) -> CleanerStatus:
        """What the cleaner wrote of it last."""
        file = self.directory / STATUS_FILE
        text = file.read_bytes() if file.exists() else None
        return decode_status(text).get(str(TP), CleanerStatus())

    def wait_for_failure(self, number: int) -> None:
        """Until its cleaning has failed so often in a row: a past quarantine stays in the file."""

        def has_failed() -> bool:
            quarantine = self.status().quarantine
            return quarantine is not None and quarantine.failures == number

        block_until(has_failed, f"quarantine {number}")

    def row(self) -> dict[str, Any]:
        """What people are shown."""
        args = ("--data", str(self.cluster.directory), "-o", "json")
        listing = json.loads(self.cluster.run("kbroker", "log", "cleaner", TP.topic, *args).stdout)
        (row,) = listing["items"]
        return dict(row)

    def set_speed(self, speed: str) -> None:
        done = self.cluster.run(
            *("kbroker", "configs", "alter", "--broker", "0", "--add", f"{SPEED}={speed}")
        )
        assert done.returncode == 0, done.stderr

    def worker_at_work(self) -> int:
        """The process that is copying the log. A copy without one is left from the last try."""
        directory, broker = self.directory / str(TP), self.cluster.pid("broker-0")
        pids: list[int] = []

        def is_copied() -> bool:
            pids[:] = workers(broker)
            return bool(pids) and any(directory.glob("*.cleaned"))

        block_until(is_copied, "a copy that is being written")
        (pid,) = pids
        return pid

    def leftovers(self) -> list[str]:
        names = os.listdir(self.directory / str(TP))
        return [name for name in names if name.endswith((".cleaned", ".swap"))]


def workers(broker: int) -> list[int]:
    """The cleaner's processes of a broker."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            pid = int(stat.parent.name)
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            if parent == broker and b"compaction.worker" in (stat.parent / "cmdline").read_bytes():
                found.append(pid)
    return found


def stock_consumer_sees(bootstrap: str) -> dict[str, str]:
    """What a consumer that is not ours makes of the topic."""
    with contextlib.closing(
        KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=10_000)
    ) as consumer:
        at = StockTopicPartition(*TP)
        consumer.assign([at])
        consumer.seek_to_beginning(at)
        end = consumer.end_offsets([at])[at]
        newest: dict[str, str] = {}
        for record in consumer:
            newest[record.key.decode()] = record.value.decode()
            if record.offset == end - 1:
                break
        return newest


def test_under_load_the_newest_value_of_each_key_stays(tmp_path: Path) -> None:
    async def scenario(positions: Positions) -> None:
        await positions.create()
        async with positions.written_to():
            await asyncio.to_thread(
                block_until, lambda: positions.sent > 3000 and positions.status().last, "a cleaning"
            )
        await positions.write(KEYS)
        await asyncio.to_thread(
            block_until, lambda: positions.row()["dirty_ratio"] <= 0.1, "the rest"
        )
        await positions.assert_right(at_most=positions.sent // 3)
        bootstrap = positions.cluster.address("bootstrap")
        assert await asyncio.to_thread(stock_consumer_sees, bootstrap) == positions.newest

    with DevCluster(tmp_path, SETTINGS) as cluster:
        positions = Positions(cluster)
        asyncio.run(scenario(positions))
        broker = cluster.pid("broker-0")
        block_until(lambda: not workers(broker), "the end of workers that have nothing to do")
        assert positions.leftovers() == []


def test_a_worker_that_is_killed_puts_the_log_in_quarantine_and_the_next_try_works(
    tmp_path: Path,
) -> None:
    with DevCluster(tmp_path, (*SETTINGS, *PATIENT, "--set", f"{SPEED}={SLOW}")) as cluster:
        positions = Positions(cluster)
        asyncio.run(positions.create())
        asyncio.run(positions.write(1000))
        row: dict[str, Any] = {"state": "not looked at"}
        kills = 0
        while row["state"] != "quarantined":
            os.kill(positions.worker_at_work(), signal.SIGKILL)
            kills += 1
            positions.wait_for_failure(kills)
            with frozen(cluster.pid("broker-0")):  # it ends after 5 s, on its own
                row = positions.row()
        assert (row["state"], row["failures"]) == ("quarantined", kills)
        assert "has died: killed by signal 9" in row["reason"]
        assert asyncio.run(positions.found())[-1][0] == 999
        positions.set_speed(FAST)
        block_until(lambda: positions.status().last, "the next try")
        assert positions.status().quarantine is None
        asyncio.run(positions.assert_right(at_most=500))
        assert positions.leftovers() == []
        assert "positions-0 cannot be cleaned, the next try is in 5 s" in cluster.log()


def test_a_broker_that_is_killed_while_it_cleans_has_everything_when_it_is_back(
    tmp_path: Path,
) -> None:
    with DevCluster(tmp_path, (*SETTINGS, "--set", f"{SPEED}={SLOW}")) as cluster:
        positions = Positions(cluster)
        asyncio.run(positions.create())
        asyncio.run(positions.write(1000))
        worker = positions.worker_at_work()
        cluster.kill("broker-0")
        block_until(lambda: not lives(worker), "the end of the worker")
        with cluster.started_again():
            positions.set_speed(FAST)
            asyncio.run(positions.write(500))
            block_until(lambda: positions.status().last, "a cleaning")
            block_until(lambda: positions.row()["dirty_ratio"] <= 0.1, "the rest")
            asyncio.run(positions.assert_right(at_most=750))
            assert positions.leftovers() == []


def test_a_limit_that_is_lifted_lets_the_cleaning_under_way_go_on(tmp_path: Path) -> None:
    with DevCluster(tmp_path, (*SETTINGS, "--set", f"{SPEED}={SLOWEST}")) as cluster:
        positions = Positions(cluster)
        asyncio.run(positions.create())
        asyncio.run(positions.write(1000))
        block_until(lambda: positions.status().running, "a cleaning")
        positions.set_speed(FAST)
        block_until(lambda: positions.status().last, "its end")
        asyncio.run(positions.assert_right(at_most=500))


def test_a_cleaner_that_is_off_is_off(tmp_path: Path) -> None:
    with DevCluster(tmp_path, (*SETTINGS, "--set", "log.cleaner.enable=false")) as cluster:
        positions = Positions(cluster)
        asyncio.run(positions.create())
        asyncio.run(positions.write(1000))
        assert workers(cluster.pid("broker-0")) == []
        assert len(asyncio.run(positions.found())) == 1000
