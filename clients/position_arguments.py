"""Check the partitions and offsets that a program hands over: a TypeError says what is wanted.

Python's own would name what is done with them inside, and some mistakes would do nothing.
"""

from collections.abc import Mapping

from protocol.topic_partition import OffsetAndMetadata, TopicPartition


def check_partitions(*partitions: object) -> None:
    """Raise TypeError if one is no partition."""
    for partition in partitions:
        if not isinstance(partition, TopicPartition):
            hint = ""
            if isinstance(partition, list | tuple | set | frozenset):
                hint = ": give each as an argument of its own, as by *partitions"
            raise TypeError(f"{partition!r} is no TopicPartition{hint}")


def check_offsets(offsets: object) -> None:
    """Raise TypeError unless it maps partitions to offsets, ValueError if one cannot be."""
    if not isinstance(offsets, Mapping):
        raise TypeError(f"{offsets!r} is no mapping from TopicPartition to OffsetAndMetadata")
    check_partitions(*offsets)
    for partition, committed in offsets.items():
        if not isinstance(committed, OffsetAndMetadata):
            raise TypeError(f"{partition}: {committed!r} is no OffsetAndMetadata(offset)")
        if not 0 <= committed.offset < 1 << 63:
            raise ValueError(f"{partition}: offset {committed.offset} cannot be committed")
