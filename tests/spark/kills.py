"""Kill queries with SIGKILL, each at a moment that a file in a directory names.

A program under test calls these; `run_until_killed` runs it. A file in the directory kills once.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession

from spark_connector.sink.writer import BATCH_ID
from tests.stage.processes import ROOT

LOCAL = "local[2,4]"
"""Threads, and how often a task may run: in `local[2]` the first failure ends the query."""

_DIRECTORY = "FAULTS"
_DRIVER = "driver.pid"
_DEADLINE_S = 240


def run_until_killed(module: str, *arguments: str, directory: Path, faults: Iterable[str]) -> int:
    """Run a program until it ends or is killed; return its exit status. Its log is `log`."""
    (directory / "faults").mkdir(exist_ok=True)
    for fault in faults:
        (directory / "faults" / fault).touch()

    with (directory / "log").open("a") as log:
        ended = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env={**os.environ, _DIRECTORY: str(directory / "faults")},
            stdout=log,
            stderr=log,
            timeout=_DEADLINE_S,
        )
    # A test that fails shows why the last run ended.
    print("".join((directory / "log").read_text().splitlines(keepends=True)[-40:]))
    return ended.returncode


def list_faults(directory: Path) -> set[str]:
    """Return the faults that have not happened."""
    return {path.name for path in (directory / "faults").iterdir()} - {_DRIVER}


# ---- in the program


def start_session(master: str, **settings: str) -> SparkSession:
    """Start Spark, whose driver and workers can be killed."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        # Executors of their own work in another directory.
        .config("spark.executorEnv.PYTHONPATH", str(ROOT))
        .config(f"spark.executorEnv.{_DIRECTORY}", os.environ[_DIRECTORY])
    )
    for name, value in settings.items():
        builder = builder.config(name, value)

    spark = builder.getOrCreate()
    driver = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    (Path(os.environ[_DIRECTORY]) / _DRIVER).write_text(str(driver))
    return spark


def read_batch_id() -> str:
    """Return the number of the micro-batch to which this task belongs."""
    context = TaskContext.get()
    assert context is not None
    return str(context.getLocalProperty(BATCH_ID))


def take_fault(fault: str) -> bool:
    """Return whether this fault is to happen, and let it happen no second time."""
    try:
        (Path(os.environ[_DIRECTORY]) / fault).unlink()
    except FileNotFoundError:
        return False
    return True


def kill_worker() -> None:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def kill_executor() -> None:
    """Kill the executor of this worker, and the worker."""
    # The worker's parent is Spark's daemon, and that one's the executor.
    os.kill(_parent_of(os.getppid()), signal.SIGKILL)
    kill_worker()


def kill_driver() -> None:
    """Kill the driver's JVM, and this process."""
    os.kill(int((Path(os.environ[_DIRECTORY]) / _DRIVER).read_text()), signal.SIGKILL)
    kill_worker()


KILLS = {"task": kill_worker, "executor": kill_executor, "driver": kill_driver}
"""What may be killed while a task runs."""


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
