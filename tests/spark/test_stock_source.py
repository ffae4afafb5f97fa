"""Our source beside Spark's own Kafka source, on the same broker and the same checkpoint."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from benchmarks.peer import fetch_jars
from clients import blocking
from clients.admin import NewTopic
from tests.stage.cluster import DevCluster
from tests.stage.stock_kafka import jars

STOCK_SOURCE = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
"""The newest that Maven Central has; PySpark 4.3 runs it."""

TIMEOUT_S = 300
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def seen(dev_cluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What both sources have read and planned, see `beside_stock_source`."""
    libraries = jars(partial(fetch_jars, "spark-kafka-4.2.0", (STOCK_SOURCE,)))
    bootstrap = dev_cluster.address("bootstrap")
    topic = f"t-{uuid4().hex[:8]}"
    with blocking.Admin(bootstrap) as admin:
        assert admin.create_topics([NewTopic(topic, 2, 1)]) == {topic: None}

    checkpoint = tmp_path_factory.mktemp("stock") / "checkpoint"
    program = [sys.executable, "-m", "tests.spark.beside_stock_source"]
    ended = subprocess.run(
        [*program, str(libraries), bootstrap, topic, str(checkpoint)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.strip().splitlines()[-1])


def test_a_checkpoint_of_either_source_is_continued_by_the_other(seen: Any) -> None:
    assert seen["read"] == [list(range(50 * n, 50 * (n + 1))) for n in range(4)]


def test_ranges_are_divided_into_the_same_tasks(seen: Any) -> None:
    for stock, ours in seen["tasks"]:
        assert ours == stock
