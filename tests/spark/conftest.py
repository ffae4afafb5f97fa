"""A Spark session for the tests of a module, with both data sources."""

import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark_connector.group_offsets_source import KgroupOffsetsDataSource
from spark_connector.source import KgroupDataSource
from tests.stage.processes import ROOT


@pytest.fixture(scope="module")
def spark(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """Spark in this process, or on the MASTER that the module names.

    A module's, as other modules start Spark in other ways.
    """
    before = dict(os.environ)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master(getattr(request.module, "MASTER", "local[2]"))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.log.level", "ERROR")
        # Many small queries in a JVM that lives for minutes: compile little, and plan few tasks.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.shuffle.partitions", "2")
        # Executors of their own work in another directory.
        .config("spark.executorEnv.PYTHONPATH", str(ROOT))
        .getOrCreate()
    )

    session.dataSource.register(KgroupDataSource)
    session.dataSource.register(KgroupOffsetsDataSource)
    yield session
    session.stop()
    os.environ.clear()
    os.environ.update(before)
