"""Partition directories' names."""

from __future__ import annotations

import pytest

from core_log.directory_name import DirectoryNameError, Kind, deleted_name, parse
from protocol.topic_partition import TopicPartition

ID = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("name", "topic", "partition", "kind"),
    [
        ("test_topic-143", "test_topic", 143, Kind.CURRENT),
        ("a-b.c-0", "a-b.c", 0, Kind.CURRENT),
        (f"foo.bar-testtopic-42.{ID}-delete", "foo.bar-testtopic", 42, Kind.DELETED),
        (f"t-1.{ID}-future", "t", 1, Kind.FUTURE),
    ],
)
def test_name_says_partition_and_kind(name: str, topic: str, partition: int, kind: Kind) -> None:
    assert parse(name) == (TopicPartition(topic, partition), kind)


@pytest.mark.parametrize(
    "name",
    ["", "-0", "topic", "topic-", "topic-1a", "topic-٣", "non_kafka_dir-delete", "t-1-delete"],
)
def test_other_names_are_refused_with_the_name(name: str) -> None:
    with pytest.raises(DirectoryNameError, match="is not named topic-partition"):
        parse(name)


def test_deleted_name_is_parsed_back() -> None:
    name = deleted_name(TopicPartition("a.b", 7), ID)
    assert name == f"a.b-7.{ID}-delete"
    assert parse(name) == (TopicPartition("a.b", 7), Kind.DELETED)


def test_deleted_name_of_the_longest_topic_fits_a_file_system() -> None:
    name = deleted_name(TopicPartition("t" * 249, 12), ID)
    assert len(name) == 255
    assert parse(name)[1] is Kind.DELETED
