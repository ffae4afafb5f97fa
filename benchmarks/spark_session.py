"""A Spark session as a child process: it runs queries on demand, and says how long they took.

    python -m benchmarks.spark_session JAR,JAR…

Each line of its input is a JSON object, a query; each line of its output is that query's figure in
a JSON object, or {"error": …}. `Session` is the other side.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean
from typing import Any, Self

import attrs

ROOT = Path(__file__).resolve().parent.parent
IDLE_TRIGGERS = 60
"""Number of idle triggers whose times are averaged."""
IDLE_TIMEOUT_S = 60.0

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_POLL_S = 0.05


@attrs.define(eq=False)
class Session:
    """A session with two cores, and its child process. Use it as a context manager."""

    jars: Sequence[Path]
    log_file: Path
    _child: subprocess.Popen[str] = attrs.field(init=False)

    def __enter__(self) -> Self:
        # Spark's Python workers need the sources too.
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
        jars = ",".join(map(str, self.jars))
        with self.log_file.open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.spark_session", jars],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._child.stdin is not None
        # The end of its input ends it.
        self._child.stdin.close()
        self._child.wait()

    def run(self, query: str, source: str, options: dict[str, str]) -> float:
        """Run a query of QUERIES; return its figure. Raises RuntimeError."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        order = {"query": query, "source": source, "options": options}
        print(json.dumps(order), file=self._child.stdin, flush=True)

        line = self._child.stdout.readline()
        told: dict[str, Any] = (
            json.loads(line) if line else {"error": f"it ended, see {self.log_file}"}
        )
        if "error" in told:
            raise RuntimeError(f"{query} of {source}: {told['error']}")
        figure: float = told["figure"]
        return figure

    @property
    def cpu_s(self) -> float:
        """Processor seconds of Python and JVM together, workers that have ended included."""
        return sum(map(_cpu_s, _family(self._child.pid)))


def _family(pid: int) -> Iterator[int]:
    yield pid
    for thread in Path(f"/proc/{pid}/task").iterdir():
        # A process may end meanwhile.
        with contextlib.suppress(OSError):
            for child in (thread / "children").read_text().split():
                yield from _family(int(child))


def _cpu_s(pid: int) -> float:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0

    # Fields 14 to 17 of proc(5): its own time, and that of children that it has waited for.
    fields = stat.rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS_A_SECOND


def main() -> None:
    """Run the queries that come in."""
    from pyspark.sql import SparkSession

    from benchmarks.naive_source import NaiveSource
    from spark_connector.source import KgroupDataSource

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", sys.argv[1])
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        # Each idle trigger reports itself.
        .config("spark.sql.streaming.noDataProgressEventInterval", "0")
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        .getOrCreate()
    )
    spark.dataSource.register(KgroupDataSource)
    spark.dataSource.register(NaiveSource)

    for line in sys.stdin:
        order = json.loads(line)
        try:
            figure = QUERIES[order["query"]](spark, order["source"], order["options"])
        except Exception as error:
            print(json.dumps({"error": str(error)[:2000]}), flush=True)
        else:
            print(json.dumps({"figure": figure}), flush=True)
    spark.stop()


def _count(spark: Any, source: str, options: dict[str, str]) -> float:
    """Return the number of rows of a table."""
    return float(spark.read.format(source).options(**options).load().count())


def _read(spark: Any, source: str, options: dict[str, str]) -> float:
    """Return the seconds in which a table is read, all columns of it."""
    begins = time.perf_counter()
    table = spark.read.format(source).options(**options).load()
    table.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begins


def _stream(spark: Any, source: str, options: dict[str, str]) -> float:
    """Return the seconds in which a stream that has started reads all there is."""
    with tempfile.TemporaryDirectory() as checkpoint:
        query = _start(spark, source, options, checkpoint, availableNow=True)
        query.awaitTermination()

    # From the begin of the first trigger to the end of the last.
    first, last = query.recentProgress[0], query.recentProgress[-1]
    between = datetime.fromisoformat(last.timestamp) - datetime.fromisoformat(first.timestamp)
    return float(between.total_seconds() + last.durationMs["triggerExecution"] / 1000)


def _start_stream(spark: Any, source: str, options: dict[str, str]) -> float:
    """Return the seconds from a query's start to its first trigger."""
    begins = datetime.now(UTC)
    with tempfile.TemporaryDirectory() as checkpoint:
        query = _start(spark, source, options, checkpoint, availableNow=True)
        query.awaitTermination()
    first = datetime.fromisoformat(query.recentProgress[0].timestamp)
    return (first - begins).total_seconds()


def _idle(spark: Any, source: str, options: dict[str, str]) -> float:
    """Return the mean time of an idle trigger in ms."""
    ends = time.monotonic() + IDLE_TIMEOUT_S
    with tempfile.TemporaryDirectory() as checkpoint:
        query = _start(spark, source, options, checkpoint, processingTime="0 seconds")
        try:
            while len(query.recentProgress) < 2 * IDLE_TRIGGERS:
                if time.monotonic() > ends:
                    raise RuntimeError(f"only {len(query.recentProgress)} triggers")
                time.sleep(_POLL_S)
        finally:
            query.stop()

        # The first ones warm up, and the very first is not idle.
        last = query.recentProgress[-IDLE_TRIGGERS:]
        return float(mean(progress.durationMs["triggerExecution"] for progress in last))


def _start(
    spark: Any, source: str, options: dict[str, str], checkpoint: str, **trigger: Any
) -> Any:
    stream = spark.readStream.format(source).options(**options).load()
    writer = stream.writeStream.format("noop").option("checkpointLocation", checkpoint)
    return writer.trigger(**trigger).start()


QUERIES: dict[str, Callable[[Any, str, dict[str, str]], float]] = {
    "count": _count,
    "read": _read,
    "stream": _stream,
    "start": _start_stream,
    "idle": _idle,
}

if __name__ == "__main__":
    main()
