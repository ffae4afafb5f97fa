"""PySpark data sources whose place is kept in a consumer group."""
