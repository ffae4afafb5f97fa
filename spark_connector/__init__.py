"""PySpark data sources that keep their place in a consumer group."""
