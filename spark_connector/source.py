"""`format("kgroup")`: topics as tables and streams, with their place in a consumer group.

spark.dataSource.register(KgroupDataSource)
spark.readStream.format("kgroup").option("kafka.bootstrap.servers", "localhost:9092")
    .option("subscribe", "flights").option("commit.group.id", "etl").load()
df.writeStream.format("kgroup").option("kafka.bootstrap.servers", "localhost:9092")
    .option("topic", "delays").option("checkpointLocation", "/checkpoints/delays").start()
"""

from typing import ClassVar

from protocol.settings import SettingError

# Imported for the check alone: SupportsTriggerAvailableNow came with PySpark 4.2.
try:
    import pyarrow  # noqa: F401
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow  # noqa: F401
    from pyspark.sql.types import StructType
except ImportError as missing:
    raise ImportError(
        f"the Spark source needs pyspark 4.2 or newer and pyarrow ({missing}): "
        "pip install 'kgroup[spark]'"
    ) from missing

from spark_connector.options import SourceOptions, read_options, warn_of_groups
from spark_connector.row_columns import schema
from spark_connector.user_schema import check_user_schema
from spark_connector.worker_python import check_worker_python


class KgroupDataSource(DataSource):
    """The data source `kgroup`. Its options are in `options` and `sink.options`.

    Spark starts a Python process to plan each query, so each imports what it needs and no more.
    """

    commits_batch_ends: ClassVar[bool] = False
    """Whether the session has the listener that commits the end of a batch query."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name. Spark asks for it at registration, before any worker runs."""
        check_worker_python()
        return "kgroup"

    def schema(self) -> str:
        """Return the columns of Spark's Kafka source, or those of `columns`.

        Raises SettingError.
        """
        # Spark asks before it says whether the query is a batch or a stream.
        return schema(self._options(streaming=None).row_columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader of a batch query. Raises SettingError."""
        from spark_connector.batch_reader import KgroupBatchReader

        options = self._options(streaming=False)
        check_user_schema(schema, options)
        if options.commit_on is not None and not self.commits_batch_ends:
            raise SettingError(
                "commit.on",
                f"is {options.commit_on}, which needs kgroup.spark.install(spark) in place of "
                "register, and no Spark Connect; or commit with kgroup.spark.commit_end",
            )
        return KgroupBatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Make the reader of a streaming query. Raises SettingError."""
        from spark_connector.stream_reader import KgroupStreamReader

        options = self._options(streaming=True)
        check_user_schema(schema, options)
        warn_of_groups(dict(self.options), options)
        return KgroupStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Make the writer of a batch query. Raises SettingError, ColumnError, SaveModeRefused."""
        from spark_connector.sink.options import read_sink_options
        from spark_connector.sink.writer import KgroupBatchWriter

        options = read_sink_options(dict(self.options))
        return KgroupBatchWriter(options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Make the writer of a batch of a streaming query. Raises SettingError, ColumnError."""
        from spark_connector.sink.options import read_sink_options
        from spark_connector.sink.writer import KgroupStreamWriter

        # The output mode complete sets `overwrite`: each batch is appended, as in Spark's sink.
        return KgroupStreamWriter(read_sink_options(dict(self.options)), schema)

    def _options(self, *, streaming: bool | None) -> SourceOptions:
        return read_options(dict(self.options), streaming=streaming)


class KgroupDataSourceWithListener(KgroupDataSource):
    """The data source of a session with listeners, see `install`."""

    commits_batch_ends = True
