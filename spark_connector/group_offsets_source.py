"""`format("kgroup-offsets")`: the committed offsets of groups as a table, to read and to write.

spark.dataSource.register(KgroupOffsetsDataSource)
spark.read.format("kgroup-offsets").option("kafka.bootstrap.servers", "localhost:9092")
    .option("group", "etl").load()
"""

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter
from pyspark.sql.types import StructType

from protocol.settings import SettingError
from spark_connector.group_offsets_options import OffsetsOptions, read_offsets_options
from spark_connector.group_offsets_reader import SCHEMA, GroupOffsetsReader
from spark_connector.group_offsets_writer import GroupOffsetsWriter
from spark_connector.worker_python import check_worker_python


class KgroupOffsetsDataSource(DataSource):
    """The data source `kgroup-offsets`. Its options are in `group_offsets_options`."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name. Spark asks for it at registration, before any worker runs."""
        check_worker_python()
        return "kgroup-offsets"

    def schema(self) -> str:
        """Return the columns of the table that is read."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader of a batch query. Raises SettingError."""
        return GroupOffsetsReader(self._options())

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Make the writer of a batch query. Raises SettingError."""
        if overwrite:
            raise SettingError("mode", "is overwrite; use append: offsets of others stay")
        return GroupOffsetsWriter(self._options(), schema)

    def _options(self) -> OffsetsOptions:
        return read_offsets_options(dict(self.options))
