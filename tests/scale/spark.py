"""What a query costs by its partitions: on the driver in bytecodes, in a task in calls."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from clients.cluster import Cluster
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from spark_connector.batch_place import find_records
from spark_connector.batch_reader import KgroupBatchReader
from spark_connector.behind_latest import find_behind_latest
from spark_connector.group_offsets_options import read_offsets_options
from spark_connector.group_offsets_reader import read_group_offsets
from spark_connector.options import read_options
from spark_connector.range_reader import _fetch_ranges
from spark_connector.split import OffsetRange, limit_batch, plan_ranges, plan_tasks
from spark_connector.stream_offset import from_json_text, to_json
from spark_connector.stream_reader import KgroupStreamReader
from tests.scale.cost import Cost
from tests.scale.stage import Row, Stage
from tests.scale.tools import make_groups, make_offsets
from tests.spark.fake_brokers import FakeBrokers
from tests.stage.bytecodes import bytecodes_of

GROUP, TOPIC = "g", "t"
RECORDS = 100


class CountedBrokers(FakeBrokers):
    """Brokers that count what they are asked."""

    asked: int = 0

    def _answer(self) -> None:
        self.asked += 1
        super()._answer()


@attrs.define(eq=False)
class Query:
    """A query over so many partitions, each with some records."""

    size: int
    folder: Path
    brokers: CountedBrokers = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.brokers = CountedBrokers({p: [0, RECORDS] for p in self.partitions})

    @property
    def partitions(self) -> list[TopicPartition]:
        """Return the partitions."""
        return [TopicPartition(TOPIC, number) for number in range(self.size)]

    def options(self, **options: str) -> dict[str, str]:
        """Return the options of the source."""
        start = json.dumps(to_json(dict.fromkeys(self.partitions, 0)))
        return {
            "kafka.bootstrap.servers": "b:9092",
            "assign": json.dumps({TOPIC: list(range(self.size))}),
            "startingOffsets": start,
            "commit.group.id": GROUP,
            **options,
        }

    def stream(self, **options: str) -> KgroupStreamReader:
        """Return the reader of a stream."""
        return KgroupStreamReader(
            read_options(self.options(**options), streaming=True),
            connect=self.brokers.connect,
            now_s=lambda: self.brokers.now_s,
            now_ms=lambda: int(self.brokers.now_s * 1000),
            lock_directory=self.folder,
            lock_patience_s=0,
        )


def stream(query: Query) -> None:
    """Run a stream for some batches: plan them, commit them, look for new partitions."""
    reader = query.stream(initialOffsetsFile=str(query.folder / "initial"))
    place: Any = json.loads(json.dumps(reader.initialOffset()))
    for _ in range(3):
        query.brokers.now_s += 60
        end = json.loads(json.dumps(reader.latestOffset(place, ReadAllAvailable())))
        assert len(reader.partitions(place, end)) >= 1
        reader.commit(end)
        place = end
        for log in query.brokers.logs.values():
            log[1] += RECORDS
    reader.stop()


def restart(query: Query) -> None:
    """Plan a batch in a new process, whose first batch failed."""
    reader = query.stream(initialOffsetsFile=str(query.folder / "initial"))
    place = reader.initialOffset()
    reader.stop()
    reader = query.stream(initialOffsetsFile=str(query.folder / "initial"))
    assert reader.initialOffset() == place
    end = reader.latestOffset(place, ReadAllAvailable())
    reader.partitions(place, end)
    reader.stop()


def limit(query: Query) -> None:
    """Share a limit out between a busy partition and many that have one record each."""
    partitions = query.partitions
    end = dict.fromkeys(partitions, 1) | {partitions[0]: 1_000_000_000}
    place = limit_batch(dict.fromkeys(partitions, 0), end, 2 * query.size)
    assert min(place.values()) > 0


def limited_stream(query: Query) -> None:
    """Plan a batch that a limit bounds."""
    reader = query.stream()
    place = reader.initialOffset()
    end = reader.latestOffset(place, ReadMaxRows(query.size))
    assert sum(end[TOPIC].values()) == query.size
    reader.stop()


def tasks(query: Query) -> None:
    """Plan tasks in each way."""
    start = dict.fromkeys(query.partitions, 0)
    ranges = plan_ranges(start, dict.fromkeys(query.partitions, RECORDS))
    assert len(plan_tasks(ranges, min_partitions=2 * query.size)) == 2 * query.size
    assert len(plan_tasks(ranges, max_records=RECORDS // 2)) == 2 * query.size
    assert sum(map(len, plan_tasks(ranges, joined_offsets=10 * RECORDS))) == query.size


def batch(query: Query) -> None:
    """Plan a batch query."""
    reader = KgroupBatchReader(
        read_options(query.options(endingOffsets="latest"), streaming=False),
        connect=query.brokers.connect,
    )
    assert len(reader.partitions()) >= 1


def listen(query: Query) -> None:
    """Read a progress's JSON, and find what is to be committed."""
    place = dict.fromkeys(query.partitions, RECORDS)
    end = from_json_text(json.dumps(to_json(place)))
    behind = find_behind_latest(end, {p: offset + 1 for p, offset in place.items()})
    assert behind is not None
    assert behind.total == query.size

    text = "spark run=1795532355224-1f3a9c04"
    committed = {partition: OffsetAndMetadata(1, text) for partition in query.partitions}
    assert len(find_records(end, committed, "spark", "q", 7)) == query.size


@attrs.frozen
class PlainRow:
    """A piece of work on `size` partitions that needs no cluster: its calls are bytecodes."""

    name: str
    act: Callable[[Query], None]
    turn_bound: int | None = None
    sizes: tuple[int, ...] = (100, 1_000, 10_000)
    small: tuple[int, ...] = (50, 500)

    def measure(self, size: int) -> Cost:
        """Do the work, and return what it cost."""
        with tempfile.TemporaryDirectory() as folder:
            # What the first time alone does is not counted.
            self.act(Query(1, Path(folder)))
        with tempfile.TemporaryDirectory() as folder:
            query = Query(size, Path(folder))
            bytecodes = bytecodes_of(lambda: self.act(query))
        return Cost(calls=bytecodes, requests=query.brokers.asked)


# ---- in a task


async def read_task(stage: Stage) -> None:
    """Read all partitions as a task does, one after the other."""
    given = {
        "kafka.bootstrap.servers": stage.cluster.bootstrap,
        "subscribe": stage.partitions[0].topic,
    }
    options = read_options(given, streaming=False)
    ranges = [OffsetRange(partition, 0, 2) for partition in stage.partitions]
    cluster = Cluster(options.client.bootstrap_servers, config=options.client)
    try:
        rows = 0
        async for batches in _fetch_ranges(cluster, options, ranges):
            rows += sum(batch.num_rows for batch in batches)
    finally:
        await cluster.close()
    assert rows == 2 * stage.size


async def make_readable(stage: Stage) -> None:
    """Make offsets, and records that were read before: the decoder is there."""
    await make_offsets(stage)
    await read_task(stage)


async def read_table(stage: Stage) -> None:
    """Read the offsets of all groups as a table."""
    given = {"kafka.bootstrap.servers": stage.cluster.bootstrap, "timeLag": "true"}
    rows = await read_group_offsets(read_offsets_options(given), time.time_ns() // 1_000_000)
    assert len(rows) >= stage.size
    assert all(row.error is None and row.time_lag_ms is not None for row in rows)


TASK_ROWS = (
    Row("Spark: a task's partitions", read_task, make_readable),
    Row("Spark: the table of many offsets", read_table, make_offsets),
    Row("Spark: the table of many groups", read_table, make_groups),
)

SPARK_ROWS = (
    PlainRow("Spark: batches of a stream", stream),
    PlainRow("Spark: a stream starts again", restart),
    PlainRow("Spark: a limited batch", limited_stream),
    PlainRow("Spark: a limit beside a busy partition", limit),
    PlainRow("Spark: tasks", tasks),
    PlainRow("Spark: a batch query", batch),
    PlainRow("Spark: the listener's commit", listen),
)
