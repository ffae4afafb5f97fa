"""Pipelines as programs: killed and run again, stopped by Ctrl-C, and over Spark Connect."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from tests.spark.pipelines import flights
from tests.stage.processes import ROOT
from tests.stage.waiting import block_until

DEADLINE_S = 240


@attrs.define(eq=False)
class Program:
    """A pipeline with its arguments, to be started again and again."""

    name: str
    arguments: list[str]
    log: Path

    def start(self) -> subprocess.Popen[bytes]:
        """Start the program, in a process group of its own with its Spark."""
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", f"examples.pipelines.{self.name}", *self.arguments],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def run(self) -> None:
        """Run the program to its end.

        Spark gives a planning process 10 s to connect: on a busy machine that may be too short.
        """
        while True:
            self.log.write_bytes(b"")
            status = self.start().wait(DEADLINE_S)
            if b"Python worker failed to connect back" not in self.log.read_bytes():
                assert status == 0, self.log.read_text()
                return

    def send_when(self, number: signal.Signals, holds: Callable[[], bool]) -> int:
        """Start the program, and send a signal to all of it once something holds.

        Returns its exit status.
        """
        process = self.start()
        try:
            block_until(
                lambda: holds() or process.poll() is not None, "the moment to end it", DEADLINE_S
            )
            assert process.poll() is None, self.log.read_text()
        finally:
            os.killpg(process.pid, number)
            status = process.wait(DEADLINE_S)
        return status


@pytest.mark.product
def test_totals_are_exact_after_a_kill_in_the_midst_of_a_batch(
    bootstrap: str, tmp_path: Path
) -> None:
    totals, checkpoint = tmp_path / "totals.json", tmp_path / "checkpoint"
    program = make_program("flight_delays", bootstrap, tmp_path, "--totals", str(totals))
    batches = checkpoint / "totals"
    assert program.send_when(signal.SIGKILL, (batches / "offsets" / "0").exists) < 0
    assert not (batches / "commits" / "0").exists()

    program.run()
    assert json.loads(totals.read_text()) == flights.totals_of(flights.closed_flights())
    assert flights.group_lag(bootstrap, "delay-totals", "delays") == 0


def test_a_table_is_exact_after_a_kill_and_a_ctrl_c(bootstrap: str, tmp_path: Path) -> None:
    table = tmp_path / "table"
    options = ("--table", str(table), "--batch", "600", "--follow")
    program = make_program("flights_table", bootstrap, tmp_path, *options)

    def has_batches(count: int) -> bool:
        return len(list(table.glob("manifests/*.json"))) >= count

    assert program.send_when(signal.SIGKILL, lambda: has_batches(2)) < 0
    assert not has_batches(5)

    # It goes on, and would wait for more flights.
    assert program.send_when(signal.SIGINT, lambda: has_batches(5)) == 0
    manifests = table.glob("manifests/*.json")
    directories = [table / json.loads(file.read_text())["directory"] for file in manifests]
    rows = flights.read_parquet(*directories)
    assert sorted(row["id"] for row in rows) == list(range(flights.COUNT))
    assert sum(row["distance"] for row in rows) == sum(
        flight["distance"] for flight in flights.FLIGHTS
    )


def test_json_is_decoded_over_spark_connect(bootstrap: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ("--out", str(out), "--remote", "local[2]")
    make_program("decode", bootstrap, tmp_path, *options).run()

    rows = flights.read_parquet(out)
    assert sorted(rows, key=lambda row: int(row["id"])) == flights.decoded_flights()
    assert flights.group_lag(bootstrap, "decode-json", "flights") == 0


def make_program(name: str, bootstrap: str, directory: Path, *options: str) -> Program:
    """Return a pipeline whose checkpoint and log are in a directory."""
    common = ["--bootstrap-server", bootstrap, "--checkpoint", str(directory / "checkpoint")]
    return Program(name, [*common, *options], directory / "log")
