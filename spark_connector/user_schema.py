"""Refuse a schema of the user's that is not the source's."""

import re

from pyspark.sql.types import StructType

from protocol.settings import SettingError
from spark_connector.options import SourceOptions
from spark_connector.row_columns import schema


def check_user_schema(given: StructType, options: SourceOptions) -> None:
    """Raise SettingError if the query's schema is not that of the source.

    Spark hands over what `.schema()` or a table says; rows come in the source's columns all the
    same, and Spark would fail with types that do not fit.
    """
    columns = schema(options.row_columns)

    # Spark reads DDL on the driver alone, so texts are compared: `a int, b long`
    # is `a:int,b:bigint`.
    own = re.sub(r"(\w) (\w)", r"\1:\2", columns).replace(", ", ",").replace(":long", ":bigint")
    if given.simpleString() != f"struct<{own}>":
        raise SettingError("schema", f"is that of the source, so leave it out: {columns}")
