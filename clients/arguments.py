"""Check the names, partitions and offsets that a program hands over.

A TypeError says what is wanted. Python's own would name what is done with them inside, and some
mistakes would do nothing.
"""

from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import TypeVar

from clients.errors import BrokerError
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.text import explain_unsendable
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

T = TypeVar("T")
V = TypeVar("V")


def check_partitions(*partitions: object) -> None:
    """Raise TypeError if one is no partition."""
    for partition in partitions:
        if not isinstance(partition, TopicPartition):
            hint = ""
            if isinstance(partition, list | tuple | set | frozenset):
                hint = ": give each as an argument of its own, as by *partitions"
            raise TypeError(f"{partition!r} is no TopicPartition{hint}")
        to_partition_number(partition.partition)


def to_partition_number(partition: int) -> int:
    """Return the number of a partition as an int.

    Raises TypeError for what is none, as 1.0, and ValueError for one that no request can hold.

    1.0 is equal to 1, and so is a TopicPartition with it: it would be found wherever 1 is, until
    a request is encoded.
    """
    # The producer of all threads would end by it (fault strangers-150).
    if not hasattr(partition, "__index__"):
        raise TypeError(f"partition {partition!r} must be an int")
    if partition >= 1 << 31:
        raise ValueError(f"partition {partition} is beyond 32 bits")
    return int(partition)


def list_of(kind: type[T], values: Iterable[T]) -> list[T]:
    """Return values as a list. Raises TypeError for one alone, and for what is of another kind."""
    if isinstance(values, kind):
        raise TypeError(f"{values!r} is one {kind.__name__}: give a list of them")
    if not isinstance(values, Iterable):
        raise TypeError(f"{values!r} is no list of {kind.__name__}")
    found = list(values)
    _check_each(kind, found)
    return found


def mapping_from(kind: type[T], values: Mapping[T, V]) -> Mapping[T, V]:
    """Return the mapping. Raises TypeError if it is none, or a key is of another kind."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{values!r} is no mapping from {kind.__name__}")
    _check_each(kind, values)
    return values


def _check_each(kind: type, values: Iterable[object]) -> None:
    for value in values:
        if not isinstance(value, kind):
            raise TypeError(f"{value!r} is no {kind.__name__}")


def list_partitions(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return partitions as a list. Raises TypeError for one alone, and for what is none."""
    found = list_of(TopicPartition, partitions)
    _check_numbers(found)
    return found


def mapping_from_partitions(values: Mapping[TopicPartition, V]) -> Mapping[TopicPartition, V]:
    """Return the mapping. Raises TypeError if it is none, or a key is no partition."""
    _check_numbers(mapping_from(TopicPartition, values))
    return values


def _check_numbers(partitions: Iterable[TopicPartition]) -> None:
    for partition in partitions:
        to_partition_number(partition.partition)


def list_names(names: Iterable[str], kind: str) -> list[str]:
    """Return names of a kind, such as "topic", as a list.

    Raises TypeError for one name alone, whose letters would be taken for names, and ValueError for
    a name that no request can hold.
    """
    # Those of one letter would have been deleted (fault strangers-165).
    if isinstance(names, str | bytes):
        raise TypeError(f"{names!r} is one {kind}: give a list, as [{names!r}]")
    found = list(names)
    for name in found:
        if not isinstance(name, str):
            raise TypeError(f"{kind} {name!r} must be a str")
        reason = explain_unsendable(name)
        if reason is not None:
            raise ValueError(f"{kind} {name[:99]!r} {reason}")
    return found


def plain_int(number: T) -> T | int:
    """Return a whole number, as one of numpy, as an int; anything else as it is."""
    is_whole = isinstance(number, Integral) and not isinstance(number, bool)
    return int(number) if is_whole else number  # type: ignore[call-overload]  # it is Integral


def check_broker(broker: int) -> None:
    """Raise TypeError for what is no id of a broker."""
    if isinstance(broker, bool) or not isinstance(broker, Integral):
        raise TypeError(f"broker {broker!r} must be an int")


def check_timeout(timeout_ms: float | None) -> None:
    """Raise TypeError or ValueError for what is no time to wait; None is for ever."""
    if timeout_ms is None:
        return
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, Real):
        raise TypeError(f"timeout_ms {timeout_ms!r} must be a number")
    if not timeout_ms >= 0:
        raise ValueError(f"timeout_ms {timeout_ms} must not be negative")


def check_topic(topic: str) -> None:
    """Raise BrokerError INVALID_TOPIC_EXCEPTION for a name that no broker can be asked about.

    Raises TypeError for what is no name.
    """
    if not isinstance(topic, str):
        raise TypeError(f"topic {topic!r} must be a str")
    reason = explain_unsendable(topic)
    if reason is not None:
        raise BrokerError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {topic[:99]!r} {reason}", ApiKey.METADATA
        )


def check_offsets(offsets: object) -> None:
    """Raise TypeError unless it maps partitions to offsets, ValueError if one cannot be."""
    if not isinstance(offsets, Mapping):
        raise TypeError(f"{offsets!r} is no mapping from TopicPartition to OffsetAndMetadata")
    check_partitions(*offsets)
    for partition, committed in offsets.items():
        if not isinstance(committed, OffsetAndMetadata):
            raise TypeError(f"{partition}: {committed!r} is no OffsetAndMetadata(offset)")
        if not hasattr(committed.offset, "__index__"):
            raise TypeError(f"{partition}: offset {committed.offset!r} must be an int")
        if not 0 <= committed.offset < 1 << 63:
            raise ValueError(f"{partition}: offset {committed.offset} cannot be committed")
        # Null is no metadata, to brokers.
        metadata = "" if committed.metadata is None else committed.metadata
        if not isinstance(metadata, str):
            raise TypeError(f"{partition}: metadata {metadata!r} must be a str")
        reason = explain_unsendable(metadata)
        if reason is not None:
            raise ValueError(f"{partition}: metadata {reason}")
