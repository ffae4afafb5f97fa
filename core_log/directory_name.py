"""The names of partition directories: `topic-partition`, with a suffix for other kinds.

flights-3                                            a partition
flights-3.0d3c…(32 hex digits)-delete                a deleted one
flights-3.0d3c…-future                               one that is being moved here
flights.0d3c…(32 hex digits).stray-3                 one of an earlier topic, set aside

The last is a partition of another topic for every release of Kafka: it is loaded and left alone,
and no name is needed that only later releases know.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from enum import Enum

from protocol.topic_partition import TopicPartition

MAX_NAME_BYTES = 255
MAX_TOPIC_CHARACTERS = 249
SET_ASIDE_TOPIC = re.compile(r".+\.[0-9a-f]{32}\.stray")


class Kind(Enum):
    """The kinds of partition directories, by the suffixes of their names."""

    CURRENT = ""
    DELETED = "-delete"
    FUTURE = "-future"
    SET_ASIDE = ".stray"


class DirectoryNameError(ValueError):
    """A directory among those of partitions cannot be a partition's."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name!r} is not named topic-partition (topic-partition.id-delete, "
            "topic-partition.id-future); move it out of the log directory"
        )


def deleted_name(topic_partition: TopicPartition, unique_id: str) -> str:
    """Name the directory of a deleted log. The topic is shortened to fit (KAFKA-4893)."""
    suffix = f"-{topic_partition.partition}.{unique_id}{Kind.DELETED.value}"
    return topic_partition.topic[: MAX_NAME_BYTES - len(suffix)] + suffix


def future_name(topic_partition: TopicPartition, unique_id: str) -> str:
    """Name the directory of a future log. The name may be above MAX_NAME_BYTES."""
    return f"{topic_partition}.{unique_id}{Kind.FUTURE.value}"


def set_aside_name(topic_partition: TopicPartition, unique_id: str) -> str:
    """Name the directory of a log of an earlier topic. The topic is shortened to a legal one."""
    suffix = f".{unique_id}{Kind.SET_ASIDE.value}"
    topic = topic_partition.topic[: MAX_TOPIC_CHARACTERS - len(suffix)]
    return f"{topic}{suffix}-{topic_partition.partition}"


def parse(name: str) -> tuple[TopicPartition, Kind]:
    """Read a directory's name. Raises DirectoryNameError.

    A log that is set aside has the topic of its directory's name, as it has for Kafka.
    """
    suffixes = (Kind.DELETED, Kind.FUTURE)
    kind = next((kind for kind in suffixes if name.endswith(kind.value)), Kind.CURRENT)
    # Behind the last dot of the other kinds is their id. Topics may have dots and dashes.
    stem, dot, _ = name.rpartition(".") if kind is not Kind.CURRENT else (name, ".", "")
    topic, dash, partition = stem.rpartition("-")
    if not (dot and topic and dash and partition.isascii() and partition.isdigit()):
        raise DirectoryNameError(name)
    if kind is Kind.CURRENT and SET_ASIDE_TOPIC.fullmatch(topic):
        kind = Kind.SET_ASIDE
    return TopicPartition(topic, int(partition)), kind


def find_logs(names: Iterable[str]) -> Iterator[tuple[str, TopicPartition, Kind]]:
    """Yield the names of logs with what they say; others may be there, such as `lost+found`."""
    for name in names:
        with contextlib.suppress(DirectoryNameError):
            yield name, *parse(name)
