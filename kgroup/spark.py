"""The data sources for PySpark: `install(spark)`, or `spark.dataSource.register(KgroupDataSource)`.

`KgroupDataSource` is `format("kgroup")`: topics as tables and streams. `KgroupOffsetsDataSource` is
`format("kgroup-offsets")`: the committed offsets of groups as a table.

`install` adds listeners, which commit the end of a stream's last batch too, and that of a batch
query. `KgroupQueryListener` is the one for streams, with their progress. Where no listener sees a
query, `find_end` goes before it and `commit_end` behind it.

Importing this raises ImportError, with the command that installs them, where PySpark or
pyarrow is missing.
"""

from spark_connector.source import KgroupDataSource  # isort: skip  (it says what is missing)
from spark_connector.batch_commit import commit_end, find_end
from spark_connector.group_offsets_source import KgroupOffsetsDataSource
from spark_connector.install import install
from spark_connector.query_listener import KgroupQueryListener

__all__ = [
    "KgroupDataSource",
    "KgroupOffsetsDataSource",
    "KgroupQueryListener",
    "commit_end",
    "find_end",
    "install",
]
