"""The data sources for PySpark: `spark.dataSource.register(KgroupDataSource)`.

`KgroupDataSource` is `format("kgroup")`: topics as tables and streams. `KgroupOffsetsDataSource` is
`format("kgroup-offsets")`: the committed offsets of groups as a table.

Importing this raises ImportError, with the command that installs them, where PySpark or
pyarrow is missing.
"""

from spark_connector.source import KgroupDataSource  # isort: skip  (it says what is missing)
from spark_connector.group_offsets_source import KgroupOffsetsDataSource

__all__ = ["KgroupDataSource", "KgroupOffsetsDataSource"]
