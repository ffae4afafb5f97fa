"""The data source for PySpark: `spark.dataSource.register(KgroupDataSource)`.

Importing this raises ImportError, with the command that installs them, where PySpark or
pyarrow is missing.
"""

from spark_connector.source import KgroupDataSource

__all__ = ["KgroupDataSource"]
