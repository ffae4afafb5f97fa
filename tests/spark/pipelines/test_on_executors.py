"""Pipelines on executors in processes of their own, as on a cluster."""

from pathlib import Path

from pyspark.sql import SparkSession

from examples.pipelines import airborne, decode
from tests.spark.pipelines import flights

MASTER = "local-cluster[2,1,1024]"


def test_every_flight_that_arrived_is_paired_once(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    arguments = ["--bootstrap-server", bootstrap, "--checkpoint", str(tmp_path / "checkpoint")]
    airborne.main([*arguments, "--batch", "4000"])

    pairs = flights.read_json(bootstrap, "airborne")
    assert sorted(pairs, key=lambda pair: int(pair["id"])) == flights.airborne_flights()
    assert flights.group_lag(bootstrap, "airborne-departures", "departures") == 0
    assert flights.group_lag(bootstrap, "airborne-arrivals", "arrivals") == 0


def test_avro_is_decoded_to_the_last_field(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    arguments = ["--bootstrap-server", bootstrap, "--checkpoint", str(tmp_path / "checkpoint")]
    decode.main([*arguments, "--format", "avro", "--out", str(out)])

    rows = flights.read_parquet(out)
    assert sorted(rows, key=lambda row: int(row["id"])) == flights.decoded_flights()
