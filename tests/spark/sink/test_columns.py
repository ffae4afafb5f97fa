import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VarcharType,
)

from spark_connector.sink.columns import ColumnError, check_columns

STRING, BINARY, INT, LONG = StringType(), BinaryType(), IntegerType(), LongType()


def headers(key: str = "key", value: DataType = BINARY) -> DataType:
    return ArrayType(StructType([StructField(key, STRING), StructField("value", value, False)]))


def schema(columns: dict[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def refusal(columns: dict[str, DataType], topic: str | None = "out") -> str:
    with pytest.raises(ColumnError) as refused:
        check_columns(schema(columns), topic)
    return str(refused.value)


@pytest.mark.parametrize(
    "columns",
    [
        {"value": STRING},
        {"value": BINARY},
        {"key": STRING, "value": BINARY, "topic": STRING, "partition": INT},
        {"value": STRING, "headers": headers()},
        {"value": VarcharType(5), "timestamp": TimestampType()},
        {"value": STRING, "timestamp": DoubleType(), "anything": MapType(STRING, INT)},
        {"value": STRING, "topic": INT},
    ],
)
def test_the_columns_of_sparks_sink_are_taken_and_others_ignored(
    columns: dict[str, DataType],
) -> None:
    check_columns(schema(columns), "out")


def test_a_topic_is_required_from_the_option_or_the_column() -> None:
    assert refusal({"value": STRING}, None) == (
        "topic option required when no 'topic' attribute is present. "
        "Use the topic option for setting a topic."
    )


def test_a_value_is_required() -> None:
    assert refusal({"key": STRING}) == "Required attribute 'value' not found"


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("value", INT, "value attribute unsupported type int. value must be a(n) string or binary"),
        ("key", LONG, "key attribute unsupported type bigint. key must be a(n) string or binary"),
        ("partition", LONG, "partition must be a(n) int"),
        ("topic", BINARY, "topic must be a(n) string"),
        ("headers", STRING, "headers must be a(n) array<struct<key:string,value:binary>>"),
        ("headers", headers(value=STRING), "headers attribute unsupported type array<struct<"),
        ("headers", headers(key="name"), "headers attribute unsupported type array<struct<"),
        ("timestamp", STRING, "timestamp must be a(n) double or timestamp"),
    ],
)
def test_a_type_that_is_not_taken_is_named_in_sparks_words(
    name: str, kind: DataType, text: str
) -> None:
    assert text in refusal({"value": STRING, "topic": STRING, name: kind}, None)
