"""Install in a Spark Connect client, read a topic, and print what `commit.on` says.

A process of its own, because one process is a client or has its Spark inside:

    python -m tests.spark.connect_client BOOTSTRAP TOPIC
"""

import logging
import os
import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_connector.install import install


def main(bootstrap: str, topic: str) -> None:
    """Print the listener, the number of rows, and the refusal; the log goes to stderr."""
    logging.basicConfig(level=logging.WARNING)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.remote("local[1]").getOrCreate()
    try:
        print("listener", install(spark))
        reader = spark.read.format("kgroup").options(
            **{"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "commit.group.id": "g"}
        )
        print("rows", reader.load().count())
        try:
            reader.option("commit.on", "batch-end").load().count()
        except PySparkException as error:
            print("refused", "needs kgroup.spark.install(spark)" in str(error))
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
