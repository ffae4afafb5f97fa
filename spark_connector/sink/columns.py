"""The columns that the sink takes, and the types that they may have: those of Spark's Kafka sink.

Other columns are ignored, as there. The texts of errors are Spark's.
"""

from collections.abc import Mapping

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CharType,
    DataType,
    DoubleType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VarcharType,
)

TOPIC = "topic"
KEY = "key"
VALUE = "value"
HEADERS = "headers"
PARTITION = "partition"
TIMESTAMP = "timestamp"

_HEADERS_TYPE = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)

TYPES: Mapping[str, tuple[DataType, ...]] = {
    TOPIC: (StringType(),),
    KEY: (StringType(), BinaryType()),
    VALUE: (StringType(), BinaryType()),
    HEADERS: (_HEADERS_TYPE,),
    PARTITION: (IntegerType(),),
    TIMESTAMP: (DoubleType(), TimestampType()),
}
"""The types that a column may have."""


class ColumnError(ValueError):
    """The table cannot be written: a column is missing, or has a type that is not taken."""


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raise ColumnError if a table of this schema cannot be written. `topic` is the option."""
    types = {field.name: field.dataType for field in schema.fields}

    if topic is None and TOPIC not in types:
        raise ColumnError(
            "topic option required when no 'topic' attribute is present. "
            "Use the topic option for setting a topic."
        )
    if VALUE not in types:
        raise ColumnError("Required attribute 'value' not found")

    for name, wanted in TYPES.items():
        # The option outranks the column, which is then not even looked at.
        if name not in types or (name == TOPIC and topic is not None):
            continue
        if not any(_is_same(types[name], one) for one in wanted):
            raise ColumnError(
                f"{name} attribute unsupported type {types[name].simpleString()}. {name} must be "
                f"a(n) {' or '.join(one.simpleString() for one in wanted)}"
            )


def _is_same(given: DataType, wanted: DataType) -> bool:
    """Return whether two types are the same but for what may be null."""
    if isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        return _is_same(given.elementType, wanted.elementType)
    if isinstance(given, StructType) and isinstance(wanted, StructType):
        pairs = zip(given.fields, wanted.fields, strict=False)
        return len(given) == len(wanted) and all(
            a.name == b.name and _is_same(a.dataType, b.dataType) for a, b in pairs
        )

    # A string has collations, a char and a varchar lengths: the bytes are a string's.
    if isinstance(wanted, StringType):
        return isinstance(given, StringType | CharType | VarcharType)
    return type(given) is type(wanted)
