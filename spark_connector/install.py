"""Set a Spark session up: the data sources, and the listeners on its driver."""

import logging
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from spark_connector.batch_listener import BatchListener
from spark_connector.group_offsets_source import KgroupOffsetsDataSource
from spark_connector.query_listener import KgroupQueryListener
from spark_connector.source import KgroupDataSource, KgroupDataSourceWithListener

logger = logging.getLogger(__name__)

_LISTENERS: WeakKeyDictionary[SparkSession, KgroupQueryListener] = WeakKeyDictionary()
"""The listener of each session: a cell of a notebook may be run twice."""


def install(spark: SparkSession, *, time_lag: bool = False) -> KgroupQueryListener | None:
    """Register the data sources, and the listeners that commit at the end of a batch.

    Return the listener to streaming queries, which has their progress; with `time_lag` also in
    time. In a Spark Connect client there are no listeners: return None, with a warning. A session
    that has its listeners keeps them.
    """
    spark.dataSource.register(KgroupOffsetsDataSource)
    # What runs in the JVM of this process is out of reach for a client.
    if not hasattr(spark, "_jsparkSession"):
        spark.dataSource.register(KgroupDataSource)
        logger.warning(
            "a Spark Connect client cannot see the options of queries, so no listener is "
            "installed: add a KgroupQueryListener with the options of each query, by its name"
        )
        return None

    if (installed := _LISTENERS.get(spark)) is not None:
        return installed

    spark.dataSource.register(KgroupDataSourceWithListener)
    listener = KgroupQueryListener(session=spark, time_lag=time_lag)
    spark.streams.addListener(listener)
    BatchListener(spark).register()
    _LISTENERS[spark] = listener
    return listener
