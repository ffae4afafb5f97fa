"""The pipelines of examples/ give exactly what their input has."""

import json
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from examples.pipelines import backfill, flight_delays, flights_table, load
from kgroup.blocking import Producer
from tests.spark.pipelines import flights
from tests.stage.processes import ROOT


@pytest.fixture
def arguments(spark: SparkSession, bootstrap: str, tmp_path: Path) -> list[str]:
    """The arguments of every pipeline; its session is the one that is there."""
    return ["--bootstrap-server", bootstrap, "--checkpoint", str(tmp_path / "checkpoint")]


def test_closed_windows_are_written_once_and_their_totals_are_exact(
    arguments: list[str], bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    totals = tmp_path / "totals.json"
    arguments += ["--totals", str(totals), "--batch", "1500"]
    flight_delays.main(arguments)

    windows = flights.read_json(bootstrap, "delays")
    closed = flights.closed_flights()
    assert 0 < len(closed) < flights.COUNT
    assert Counter({(w["carrier"], w["start"]): w["flights"] for w in windows}) == Counter(
        (flight["carrier"], flight["time_hour"].replace("Z", ".000Z")) for flight in closed
    )
    assert len(windows) == len({(window["carrier"], window["start"]) for window in windows})
    assert json.loads(totals.read_text()) == flights.totals_of(closed)

    assert flights.group_lag(bootstrap, "delay-totals", "delays") == 0
    shown = capsys.readouterr().out
    assert "|delay-totals|delays|" in shown


def test_past_and_live_meet_without_a_gap_or_a_repeat(
    arguments: list[str], bootstrap: str, tmp_path: Path
) -> None:
    arguments += ["--out", str(tmp_path / "out"), "--since", "2013-01-02"]
    backfill.main(arguments)

    # These come after the meeting point: the live query reads them, the one of the past does not.
    later = [{"id": 10_000 + n, "carrier": "XX", "distance": n} for n in range(50)]
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for flight in later:
            producer.send("flights", json.dumps(flight).encode())
    backfill.main(arguments)

    past = flights.read_parquet(tmp_path / "out" / "past")
    live = flights.read_parquet(tmp_path / "out" / "live")
    since = [flight for flight in flights.FLIGHTS if is_since_january_2nd(flight)]
    assert 0 < len(since) < flights.COUNT
    assert sorted(row["id"] for row in past) == sorted(flight["id"] for flight in since)
    assert sorted(row["id"] for row in live) == [flight["id"] for flight in later]
    assert sum(row["distance"] for row in past + live) == sum(
        flight["distance"] for flight in since + later
    )


def is_since_january_2nd(flight: flights.Flight) -> bool:
    return load.scheduled(flight) >= datetime(2013, 1, 2, tzinfo=UTC)


def test_a_batch_that_is_run_again_replaces_itself_in_the_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    first = spark.range(10).selectExpr("id", "'JFK' origin")
    second = spark.range(10, 15).selectExpr("id", "'LGA' origin")
    flights_table.write_batch(table, first, 0)
    flights_table.write_batch(table, second, 1)
    flights_table.write_batch(table, first, 0)

    # A run that was killed before its manifest leaves files that nobody reads.
    second.write.partitionBy("origin").parquet(str(table / "batch-2-killed"))

    rows = flights_table.read_table(spark, table).collect()
    assert sorted((row["id"], row["origin"]) for row in rows) == [
        (number, "JFK" if number < 10 else "LGA") for number in range(15)
    ]
    assert len(list(table.glob("batch-0-*"))) == 1


def test_a_table_without_its_checkpoint_is_refused(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    with pytest.raises(SystemExit, match="table has batches of another checkpoint than"):
        flights_table.main([*arguments, "--table", str(tmp_path / "table")])


def test_avro_without_its_package_ends_in_one_sentence() -> None:
    program = "import sys; sys.modules['fastavro'] = None; from examples.pipelines import decode; "
    run = "decode.main('--bootstrap-server x:1 --checkpoint c --out o --format avro'.split())"
    ended = subprocess.run(
        [sys.executable, "-c", program + run], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: this example needs fastavro (")
    assert ended.stderr.endswith("): pip install '.[all,demo]'\n")
