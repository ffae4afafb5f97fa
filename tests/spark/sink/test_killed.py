"""Tasks, executors and drivers are killed at every step; the log says what was written."""

from collections import Counter
from pathlib import Path
from uuid import uuid4

import attrs
import pytest

from clients import blocking
from clients.admin import NewTopic
from clients.simple_consumer import FetchRequest
from protocol.topic_partition import TopicPartition
from tests.spark.kills import LOCAL, list_faults, run_until_killed
from tests.stage.cluster import DevCluster
from tests.stage.kraft_kafka import kraft_broker
from tests.stage.stock_kafka import stock_broker

BATCH = 2_000


@attrs.define(eq=False)
class Story:
    """A query that goes on from run to run, and is killed in each of them."""

    bootstrap: str
    directory: Path
    delivery: str
    master: str = LOCAL
    name: str = attrs.field(factory=lambda: uuid4().hex[:8])

    def __attrs_post_init__(self) -> None:
        with blocking.Admin(self.bootstrap) as admin:
            admin.create_topics([NewTopic(self.source, 2, 1), NewTopic(self.sink, 2, 1)])

    @property
    def source(self) -> str:
        return f"from-{self.name}"

    @property
    def sink(self) -> str:
        return f"to-{self.name}"

    def produce(self, records: int) -> None:
        """Give the query records to read; half of them have keys."""
        with blocking.Producer({"bootstrap.servers": self.bootstrap}) as p:
            for n in range(records):
                key = b"%d" % (n % 7) if n % 4 < 2 else None
                p.send(self.source, b"%d" % n, key=key, partition=n % 2)

    def run(self, *faults: str) -> int:
        """Run the query until it ends or is killed; return its exit status."""
        return run_until_killed(
            "tests.spark.sink.killed_query",
            *(self.bootstrap, self.source, self.sink, str(self.directory / "checkpoint")),
            *(self.delivery, self.master),
            directory=self.directory,
            faults=faults,
        )

    def faults_left(self) -> set[str]:
        return list_faults(self.directory)

    def written(self) -> list[bytes]:
        """Return the values that a plain reader sees in the sink's topic."""
        partitions = [TopicPartition(self.sink, n) for n in range(2)]
        values = []
        with blocking.Admin(self.bootstrap) as admin:
            ends = admin.list_offsets(dict.fromkeys(partitions, -1))
        host, _, port = self.bootstrap.rpartition(":")
        with blocking.SimpleConsumer(host, int(port)) as consumer:
            for partition in partitions:
                position = 0
                while position < ends[partition].offset:
                    request = FetchRequest(partition.topic, partition.partition, position)
                    fetched = consumer.fetch(request)
                    values += [record.value for record in fetched]
                    position = fetched.next_offset
        return values


def repeated(values: list[bytes]) -> int:
    return len(values) - len(set(values))


def test_once_survives_a_killed_task_and_a_killed_driver(
    dev_cluster: DevCluster, tmp_path: Path
) -> None:
    story = Story(dev_cluster.address("bootstrap"), tmp_path, "once")
    story.produce(2 * BATCH)

    # A task dies and runs again; then the driver dies in the midst of the next batch.
    assert story.run("task-0", "driver-1") != 0
    assert BATCH < len(story.written()) < 2 * BATCH

    assert story.run() == 0
    assert story.faults_left() == set()
    assert sorted(map(int, story.written())) == list(range(2 * BATCH))


@pytest.mark.product
def test_once_survives_a_kill_at_every_step(dev_cluster: DevCluster, tmp_path: Path) -> None:
    story = Story(dev_cluster.address("bootstrap"), tmp_path, "once")
    story.produce(3 * BATCH)

    # A task dies and runs again; then the driver dies in the midst of the next batch.
    assert story.run("task-0", "driver-1") != 0
    assert BATCH < len(story.written()) < 2 * BATCH

    # The batch is run again, and is whole in the log when the driver dies.
    assert story.run("uncommitted-1") != 0
    assert len(story.written()) == 2 * BATCH

    # Nothing is missing. The next driver dies between the sink's commit and Spark's own.
    assert story.run("committed-1") != 0
    assert len(story.written()) == 2 * BATCH

    assert story.run() == 0
    assert story.faults_left() == set()
    values = story.written()
    assert repeated(values) == 0
    assert sorted(map(int, values)) == list(range(3 * BATCH))


@pytest.mark.product
@pytest.mark.parametrize("step", ["task", "driver", "uncommitted", "committed"])
def test_at_least_once_loses_nothing_and_may_repeat(
    dev_cluster: DevCluster, tmp_path: Path, step: str
) -> None:
    story = Story(dev_cluster.address("bootstrap"), tmp_path, "at-least-once")
    story.produce(2 * BATCH)
    assert (story.run(f"{step}-1") == 0) == (step == "task")
    assert story.run() == 0
    assert story.faults_left() == set()
    counts = Counter(map(int, story.written()))
    assert sorted(counts) == list(range(2 * BATCH))

    # Otherwise the faults of these stories would prove nothing.
    assert repeated(story.written()) > 0


@pytest.mark.product
@pytest.mark.parametrize("fault", ["task", "executor", "driver"])
@pytest.mark.parametrize("batch", [0, 1])
def test_once_on_executors_of_their_own(
    dev_cluster: DevCluster, tmp_path: Path, fault: str, batch: int
) -> None:
    story = Story(
        dev_cluster.address("bootstrap"), tmp_path, "once", master="local-cluster[2,1,1024]"
    )
    story.produce(2 * BATCH)
    story.run(f"{fault}-{batch}")
    assert story.run() == 0
    assert story.faults_left() == set()
    assert sorted(map(int, story.written())) == list(range(2 * BATCH))


@pytest.mark.product
@pytest.mark.parametrize("fault", ["task", "driver", "uncommitted", "committed"])
def test_once_on_a_stock_broker(zk_chroot: str, tmp_path: Path, fault: str) -> None:
    with stock_broker(zk_chroot, tmp_path / "broker") as bootstrap:
        check_once(bootstrap, tmp_path, fault)


@pytest.mark.product
@pytest.mark.parametrize("fault", ["task", "driver", "uncommitted", "committed"])
def test_once_on_a_stock_broker_of_today(tmp_path: Path, fault: str) -> None:
    with kraft_broker(tmp_path / "broker") as bootstrap:
        check_once(bootstrap, tmp_path, fault)


def check_once(bootstrap: str, directory: Path, fault: str) -> None:
    """Assert that a query which is killed in its second batch writes each row once."""
    story = Story(bootstrap, directory, "once")
    story.produce(2 * BATCH)
    story.run(f"{fault}-1")
    assert story.run() == 0
    assert story.faults_left() == set()
    assert sorted(map(int, story.written())) == list(range(2 * BATCH))
