"""Workers, executors and drivers of queries that only read are killed; no record is lost or twice.

Each query goes on from its checkpoint, and from the lock on its group that the killed one had.
"""

import json
from pathlib import Path
from uuid import uuid4

import attrs
import pytest

from clients import blocking
from clients.admin import NewTopic
from protocol.topic_partition import TopicPartition
from tests.spark.killed_reader import BATCH
from tests.spark.kills import LOCAL, list_faults, run_until_killed
from tests.stage.cluster import DevCluster

RECORDS = 2 * BATCH


@attrs.define(eq=False)
class Story:
    """A query that is killed in its first run, and goes on in the next."""

    bootstrap: str
    directory: Path
    master: str = LOCAL
    topic: str = attrs.field(factory=lambda: f"read-{uuid4().hex[:8]}")

    def __attrs_post_init__(self) -> None:
        with blocking.Admin(self.bootstrap) as admin:
            admin.create_topics([NewTopic(self.topic, 2, 1)])
        settings = {"bootstrap.servers": self.bootstrap, "batch.size": 500}
        with blocking.Producer(settings) as producer:
            for n in range(RECORDS):
                producer.send(self.topic, b"%d" % n, partition=n % 2)

    @property
    def group(self) -> str:
        return f"g-{self.topic}"

    def run(self, *faults: str) -> int:
        """Run the query until it ends or is killed; return its exit status."""
        return run_until_killed(
            "tests.spark.killed_reader",
            *(self.bootstrap, self.topic, self.group, str(self.directory), self.master),
            directory=self.directory,
            faults=faults,
        )

    def check(self) -> None:
        """Assert that all has happened, and that each record was read once."""
        assert list_faults(self.directory) == set()
        batches = [json.loads(f.read_text()) for f in sorted(self.directory.glob("batch-*"))]
        assert [len(batch) for batch in batches] == [BATCH, BATCH]
        assert sorted(n for batch in batches for n in batch) == list(range(RECORDS))

        partitions = [TopicPartition(self.topic, n) for n in range(2)]
        with blocking.Admin(self.bootstrap) as admin:
            committed = admin.group_offsets(self.group, partitions)
        assert [committed[p].offset for p in partitions] == [RECORDS // 2] * 2


def test_a_query_goes_on_when_a_worker_is_killed_while_it_reads(
    dev_cluster: DevCluster, tmp_path: Path
) -> None:
    story = Story(dev_cluster.address("bootstrap"), tmp_path)
    assert story.run("task-0", "task-1") == 0
    story.check()


@pytest.mark.product
@pytest.mark.parametrize("batch", [0, 1])
@pytest.mark.parametrize("step", ["asked", "planned", "task", "driver", "unwritten", "written"])
def test_a_killed_query_reads_each_record_once(
    dev_cluster: DevCluster, tmp_path: Path, step: str, batch: int
) -> None:
    story = Story(dev_cluster.address("bootstrap"), tmp_path)
    assert (story.run(f"{step}-{batch}") == 0) == (step == "task")
    assert story.run() == 0
    story.check()


@pytest.mark.product
@pytest.mark.parametrize("batch", [0, 1])
@pytest.mark.parametrize("step", ["task", "executor", "driver"])
def test_a_query_on_executors_of_its_own_reads_each_record_once(
    dev_cluster: DevCluster, tmp_path: Path, step: str, batch: int
) -> None:
    story = Story(dev_cluster.address("bootstrap"), tmp_path, master="local-cluster[2,1,1024]")
    assert (story.run(f"{step}-{batch}") == 0) == (step != "driver")
    assert story.run() == 0
    story.check()
