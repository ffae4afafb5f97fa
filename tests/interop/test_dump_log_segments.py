"""`kbroker dump` and Kafka's DumpLogSegments: the same lines, of small logs and a broker's own."""

import subprocess
from pathlib import Path
from uuid import uuid4

import pytest

from clients import blocking
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT, command_line
from tests.stage.segment_files import KINDS, OPTIONS, SEGMENTS, files_of, stock_errors, stock_output
from tests.stage.stock_kafka import command, stock_broker
from tests.stage.waiting import DEADLINE_S

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PLAIN = (
    "-Dfile.encoding=UTF-8",
    "-Dstdout.encoding=UTF-8",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
)
OF_EACH_RUN = ("v1", "transactions", "indexes", "offsets")
"""What the stock tool says of the others changes as rarely as they do."""
LINES = "".join(f"key-{n}:value {n} {'é' * (n % 50)}\n" for n in range(400))


def stock(directory: Path, *args: str) -> subprocess.CompletedProcess[str]:
    line = command("kafka.tools.DumpLogSegments", *args)
    at = line.index("-cp")
    return subprocess.run(
        [*line[:at], *PLAIN, *line[at:]],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def ours(directory: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command_line("kbroker", "dump", *args),
        cwd=directory,
        env={"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=() if case in OF_EACH_RUN else pytest.mark.product)
        for case in OPTIONS
    ],
)
def test_the_stock_tool_still_says_what_the_unit_tests_hold_us_to(case: str) -> None:
    result = stock(SEGMENTS / case, "--files", files_of(case), *OPTIONS[case])
    assert (result.stdout, result.stderr) == (stock_output(case), stock_errors(case))


def closed_broker(directory: Path) -> Path:
    """The log directory of a broker that took all kinds of batches, and was stopped."""
    kept = (
        "log.segment.bytes=20000",
        "log.index.interval.bytes=500",
        "offsets.topic.num.partitions=1",
    )
    args = tuple(arg for setting in kept for arg in ("--set", setting))
    with DevCluster(directory, args) as cluster:
        for codec in CODECS:
            for topic in ("plain", "many"):
                settings = {
                    "bootstrap.servers": cluster.address("bootstrap"),
                    "compression.type": codec,
                    "enable.idempotence": True,
                    "batch.size": 100 if topic == "many" else 5000,
                }
                with blocking.Producer(settings) as producer:
                    pairs = [line.encode().split(b":") for line in LINES.splitlines()]
                    for sent in [producer.send(topic, value, key=key) for key, value in pairs]:
                        sent.result(DEADLINE_S)
        consumed = cluster.run(
            *("kgroup", "consume", "--topic", "plain", "--group", "g", "--from-beginning"),
            *("--max-messages", "100", "--property", "offsets.storage=kafka"),
        )
        assert consumed.returncode == 0, consumed.stderr
    return directory / "broker-0"


def kbroker(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command_line("kbroker", *args), cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S
    )


def test_the_logs_of_a_stock_broker_are_verified_and_dumped_in_the_same_lines(
    zookeeper: str, tmp_path: Path
) -> None:
    settings = {"log.segment.bytes": "20000", "log.index.interval.bytes": "500"}
    log_dir = tmp_path / "stock" / "log"
    with stock_broker(f"{zookeeper}/{uuid4().hex[:8]}", log_dir.parent, settings) as bootstrap:
        for codec in ("none", "lz4"):
            produce = ("produce", "--topic", "plain", "-b", bootstrap, "--compression", codec)
            subprocess.run(
                command_line("kgroup", *produce, "--property", "batch.size=1000"),
                cwd=ROOT,
                input=LINES,
                text=True,
                check=True,
                timeout=DEADLINE_S,
            )
        in_use = kbroker("log", "verify", str(log_dir))
        assert (in_use.returncode, in_use.stdout) == (0, "")
    stopped = kbroker("log", "verify", str(log_dir))
    assert (stopped.returncode, stopped.stdout) == (0, "")
    directory = log_dir / "plain-0"
    names = sorted(path.name for path in directory.iterdir() if path.suffix in KINDS)
    args = ("--files", ",".join(names), "--print-data-log")
    theirs, mine = stock(directory, *args), ours(directory, *args)
    assert mine.stdout == theirs.stdout
    assert (mine.stderr, mine.returncode) == ("", 0)
    # the tool of 2.8 takes the last offset of a batch for the only one that may be in a time index
    assert "The following indexed offsets are not found in the log.\n" in theirs.stderr


def test_the_logs_of_our_broker_are_dumped_in_the_same_lines(tmp_path: Path) -> None:
    log_dir = closed_broker(tmp_path / "dev")
    for partition, option, seen in (
        ("plain-0", "--print-data-log", "compresscodec: ZSTD"),
        ("many-0", "--deep-iteration", ".timeindex\ntimestamp: "),
        ("__consumer_offsets-0", "--offsets-decoder", "key: offset_commit::group=g,partition="),
    ):
        directory = log_dir / partition
        names = sorted(path.name for path in directory.iterdir() if path.suffix in KINDS)
        args = ("--files", ",".join(names), option)
        theirs, mine = stock(directory, *args), ours(directory, *args)
        assert seen in mine.stdout
        assert mine.stdout == theirs.stdout
        assert (mine.stderr, mine.returncode) == (theirs.stderr, 0)
