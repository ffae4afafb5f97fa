"""The arguments that all pipelines take, and the Spark session that they ask for."""

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import kgroup.spark


def make_parser(program: str | None) -> argparse.ArgumentParser:
    """Return a parser with the common arguments; `program` is the docstring of the pipeline."""
    parser = argparse.ArgumentParser(description=(program or "").splitlines()[0])
    parser.add_argument("--bootstrap-server", required=True, help="host:port[,host:port…]")
    parser.add_argument("--checkpoint", required=True, help="directory for what a query remembers")
    parser.add_argument("--follow", action="store_true", help="go on with what comes in later")
    parser.add_argument(
        "--batch", default="100000", metavar="RECORDS", help="most records in a batch (%(default)s)"
    )
    parser.add_argument("--master", default="local[2]", help="where Spark runs (%(default)s)")
    parser.add_argument("--remote", help="a server of Spark Connect, instead of --master")
    return parser


def start_session(name: str, arguments: argparse.Namespace) -> SparkSession:
    """Start a session that knows our formats, and whose groups are at the end of the last batch."""
    # The workers need the packages of this Python.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

    builder = SparkSession.builder.appName(name)
    if arguments.remote:
        builder = builder.remote(arguments.remote)
    else:
        builder = builder.master(arguments.master).config("spark.log.level", "ERROR")
    spark = (
        builder.config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    kgroup.spark.install(spark)
    return spark


def run_program(main: Callable[[], None]) -> None:
    """Run a pipeline, and stop its session: Spark hands the last reports to listeners then."""
    try:
        main()
    finally:
        if (spark := SparkSession.getActiveSession()) is not None:
            spark.stop()


def choose_trigger(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return when batches start: until all is read that is there now, or every 5 seconds."""
    return {"processingTime": "5 seconds"} if arguments.follow else {"availableNow": True}


def run_to_end(query: StreamingQuery) -> None:
    """Wait until the query ends; Ctrl-C stops it in good order."""
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()
