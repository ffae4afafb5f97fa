"""What docs/spark.md has one type, typed: its blocks in their order, and its bad input."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from clients import blocking
from protocol.settings import SettingError
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from spark_connector.options import read_options
from tests.cluster.typed_guide import put_on_path
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT
from tests.stage.waiting import block_until

DEADLINE_S = 240

GUIDE = (ROOT / "docs" / "spark.md").read_text("utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", GUIDE, re.DOTALL)
SECTION = GUIDE.split("## Bad input")[1].split("\n## ")[0]
BAD_INPUT = re.findall(r"^\| `([\w.]+)=([^`]+)` \| (.+) \|$", SECTION, re.M)
FLIGHTS = [TopicPartition("flights", number) for number in range(4)]


def test_every_block_of_the_guide_runs_in_its_order(spark: SparkSession, tmp_path: Path) -> None:
    # A cluster of its own: the topics and groups of the guide have fixed names.
    with DevCluster(tmp_path / "dev") as cluster:
        path = put_on_path(tmp_path / "bin")
        names: dict[str, Any] = {}
        for language, block in BLOCKS:
            text = block.replace("localhost:9092", cluster.address("bootstrap"))
            text = text.replace("/data", str(tmp_path / "data"))
            if language == "sh":
                type_commands(text, cluster, path)
            else:
                wait_for_what_it_needs(text, names)
                run_program(text, names)

        assert len(list_values(spark, tmp_path / "data" / "flights")) == 1_000
        assert len(list_values(spark, tmp_path / "data" / "nightly")) == 1_000
        assert count_delays(spark, cluster) == {"flights": 1_000, "batch": 1_000}

        # A commit after the last batch comes with the listener, when Spark has reported.
        ends = end_offsets(cluster)
        for group in ("etl", "nightly"):
            block_until(lambda group=group: offsets(cluster, group) == ends, group, DEADLINE_S)
        assert offsets(cluster, "etl-again") == dict.fromkeys(FLIGHTS, 0)


def type_commands(text: str, cluster: DevCluster, path: str) -> None:
    typed = subprocess.run(
        ["bash", "-c", f"set -eux -o pipefail\n{text}"],
        env=cluster.env | {"PATH": path, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert typed.returncode == 0, typed.stderr


def wait_for_what_it_needs(text: str, names: dict[str, Any]) -> None:
    """Wait for the listener's report of the batch, which the reader of a guide has by then."""
    if "listener.progress" in text:
        listener = names["listener"]
        block_until(lambda: listener.progress("etl") is not None, "the report", DEADLINE_S)


def run_program(text: str, names: dict[str, Any]) -> None:
    """Run a block; again if Spark gave up on a query's planning process, see streaming.py."""
    try:
        exec(text, names)
    except StreamingQueryException as error:
        if "Python worker failed to connect back" not in str(error):
            raise
        run_program(text, names)


def list_values(spark: SparkSession, directory: Path) -> list[bytes]:
    return [row.value for row in spark.read.parquet(str(directory)).select("value").collect()]


def count_delays(spark: SparkSession, cluster: DevCluster) -> dict[str, int]:
    """Return how many rows the stream and the batch query have written to `delays`."""
    reader = spark.read.format("kgroup").option(
        "kafka.bootstrap.servers", cluster.address("bootstrap")
    )
    rows = reader.option("subscribe", "delays").load().select("value").collect()
    of_batch = sum(row.value.startswith(b"flight ") for row in rows)
    return {"flights": len(rows) - of_batch, "batch": of_batch}


def end_offsets(cluster: DevCluster) -> dict[TopicPartition, int]:
    with blocking.Admin(cluster.address("bootstrap")) as admin:
        ends = admin.list_offsets(dict.fromkeys(FLIGHTS, -1))
    return {partition: end.offset for partition, end in ends.items()}


def offsets(cluster: DevCluster, group: str) -> dict[TopicPartition, int]:
    with blocking.Admin(cluster.address("bootstrap")) as admin:
        committed: dict[TopicPartition, OffsetAndMetadata] = admin.group_offsets(group, FLIGHTS)
    return {partition: place.offset for partition, place in committed.items()}


@pytest.mark.parametrize(("option", "value", "sentence"), BAD_INPUT)
def test_bad_input_is_refused_in_the_words_of_the_guide(
    option: str, value: str, sentence: str
) -> None:
    needed = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "flights"}
    with pytest.raises(SettingError) as refused:
        read_options({**needed, option: value}, streaming=True)
    assert str(refused.value) == sentence
