"""Query the same topic with Spark: mean delay by carrier and hour, with its place in a group.

Prints one JSON object: rows of [carrier, hour, flights, minutes late in all].
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile

from examples.packages import require


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    arguments = parser.parse_args()
    require("pyspark", "pyarrow")
    os.environ["PYSPARK_PYTHON"] = sys.executable

    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    from kgroup.spark import KgroupDataSource

    spark = (
        SparkSession.builder.master("local[2]")
        .appName("flights")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    spark.dataSource.register(KgroupDataSource)
    fields = "carrier string, hour int, dep_delay double"
    flight = f.from_json(f.col("value").cast("string"), fields)
    delays = (
        spark.readStream.format("kgroup")
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("subscribe", arguments.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "150000")
        .option("commit.group.id", arguments.group)
        .load()
        .select(flight.alias("flight"))
        .groupBy("flight.carrier", "flight.hour")
        .agg(f.count("*").alias("flights"), f.sum("flight.dep_delay").alias("minutes"))
    )
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            delays.writeStream.format("memory")
            .queryName("delays")
            .outputMode("complete")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        rows = [list(row) for row in spark.table("delays").orderBy("carrier", "hour").collect()]
    spark.stop()
    print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
