"""Groups' offsets as a table: rows, checks before a commit, and both in a real Spark."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.types import (
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from protocol.settings import SettingError
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from spark_connector.group_offsets_options import read_offsets_options
from spark_connector.group_offsets_writer import BadOffsets, GroupOffsetsWriter
from tests.spark.fake_brokers import FakeBrokers

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
TYPES: Mapping[str, DataType] = {"partition": IntegerType(), "offset": LongType()}


def table(*columns: str) -> StructType:
    return StructType([StructField(name, TYPES.get(name, StringType())) for name in columns])


TABLE = table("topic", "partition", "offset")


def writer(brokers: FakeBrokers, schema: StructType = TABLE, **options: str) -> GroupOffsetsWriter:
    given = {"kafka.bootstrap.servers": "b:1", "group": "etl", **options}
    return GroupOffsetsWriter(read_offsets_options(given), schema, connect=brokers.connect)


def write(writer: GroupOffsetsWriter, *rows: Mapping[str, Any]) -> None:
    writer.commit([writer.write(iter([Row(**row)])) for row in rows])


@pytest.fixture
def brokers() -> FakeBrokers:
    return FakeBrokers({T0: [5, 40], T1: [0, 7]}, groups={"etl": {T0: OffsetAndMetadata(30)}})


def test_rows_of_all_tasks_are_committed_together(brokers: FakeBrokers) -> None:
    rows = {"topic": "t", "partition": 0, "offset": 12}, {"topic": "t", "partition": 1, "offset": 7}
    write(writer(brokers, execute="true"), *rows)
    assert brokers.commits == [{T0: OffsetAndMetadata(12), T1: OffsetAndMetadata(7)}]


@pytest.mark.fault("strangers-61")
def test_the_leader_epoch_of_another_offset_is_not_committed(brokers: FakeBrokers) -> None:
    schema = StructType([*TABLE.fields, StructField("leaderEpoch", IntegerType())])
    row = {"topic": "t", "partition": 0, "offset": 12, "leaderEpoch": 3}
    write(writer(brokers, schema, execute="true"), row)
    assert brokers.commits == [{T0: OffsetAndMetadata(12)}]


def test_nothing_is_committed_unless_asked_for_and_the_log_says_what_would_be(
    brokers: FakeBrokers, caplog: pytest.LogCaptureFixture
) -> None:
    write(writer(brokers), {"topic": "t", "partition": 0, "offset": 12})
    assert brokers.commits == []
    assert caplog.messages == [
        "group etl: would commit t-0: 30 -> 12",
        "nothing was committed: set the option execute to true",
    ]


def test_a_column_may_name_the_group_of_each_row(brokers: FakeBrokers) -> None:
    schema = table("group", "topic", "partition", "offset")
    by_column = writer(brokers, schema, group="", execute="true")
    write(
        by_column,
        {"group": "a", "topic": "t", "partition": 0, "offset": 5},
        {"group": "b", "topic": "t", "partition": 0, "offset": 40},
    )
    assert brokers.groups["a"] == {T0: OffsetAndMetadata(5)}
    assert brokers.groups["b"] == {T0: OffsetAndMetadata(40)}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            {"topic": "t", "partition": 0, "offset": 41},
            "41 is not in the log, which has 5 to 40",
        ),
        ({"topic": "t", "partition": 0, "offset": 4}, "offset 4 is not in the log"),
        ({"topic": "t", "partition": 0, "offset": -1}, "has offset -1"),
        ({"topic": "t", "partition": None, "offset": 5}, "a row has no partition"),
    ],
)
def test_a_row_that_makes_no_sense_keeps_all_others_from_being_committed(
    brokers: FakeBrokers, row: Mapping[str, Any], words: str
) -> None:
    good = {"topic": "t", "partition": 1, "offset": 3}
    with pytest.raises(BadOffsets, match=words):
        write(writer(brokers, execute="true"), good, row)
    assert brokers.commits == []


def test_a_partition_without_a_leader_is_named_and_waited_for_once(brokers: FakeBrokers) -> None:
    brokers.leaderless.add(T1)
    with pytest.raises(BadOffsets, match="t-1 of group etl: LEADER_NOT_AVAILABLE"):
        write(
            writer(brokers, execute="true"),
            {"topic": "t", "partition": 0, "offset": 12},
            {"topic": "t", "partition": 1, "offset": 3},
        )
    assert brokers.commits == []
    assert brokers.end_listings == 0


def test_a_partition_that_comes_twice_is_refused(brokers: FakeBrokers) -> None:
    row = {"topic": "t", "partition": 1, "offset": 3}
    with pytest.raises(BadOffsets, match="t-1 of group etl is there twice"):
        write(writer(brokers, execute="true"), row, row)


def test_a_group_with_members_is_left_alone(brokers: FakeBrokers) -> None:
    brokers.members["etl"] = ("app",)
    with pytest.raises(BadOffsets, match=r"has 1 members \(app\): stop them first"):
        write(writer(brokers, execute="true"), {"topic": "t", "partition": 0, "offset": 12})
    assert brokers.commits == []


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        (("topic", "offset"), {}, "partition: is no column"),
        (("topic", "partition", "offset", "lags"), {}, "lags: is no column of offsets"),
        (("topic", "partition", "offset"), {"group": "a,b"}, "names several groups"),
        (("topic", "partition", "offset"), {"group": ""}, "has no column group"),
    ],
)
def test_columns_that_do_not_fit_are_refused_before_anything_is_read(
    brokers: FakeBrokers, columns: Sequence[str], options: dict[str, str], words: str
) -> None:
    with pytest.raises(SettingError, match=words):
        writer(brokers, table(*columns), **options)
