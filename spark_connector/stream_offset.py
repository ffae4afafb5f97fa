"""A query's place in its topics, as Spark stores it: `{"topic": {"0": 23, "1": 345}}`.

Spark compares two places as JSON text. The same content in another order would be new data to it,
and an idle query would run empty batches for ever; so `to_json` always has the same order.
"""

import json
from collections.abc import Mapping
from typing import Any

from protocol.topic_partition import TopicPartition

Offsets = Mapping[TopicPartition, int]
"""Partition -> offset of the next record to read."""


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return the place as Spark stores it, with topics by name and partitions by number."""
    place: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        place.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return place


def from_json(place: Any) -> dict[TopicPartition, int]:
    """Read a place. Raises ValueError, which says what is wrong with it."""
    if not isinstance(place, Mapping):
        raise ValueError(f"{place!r} is no object of topics")
    offsets = {}
    for topic, partitions in place.items():
        if not isinstance(partitions, Mapping):
            raise ValueError(f"{topic} has {partitions!r}, no object of partitions")
        for partition, offset in partitions.items():
            # `isinstance` would take True for an offset.
            if not str(partition).isdecimal() or type(offset) is not int:
                raise ValueError(f"{topic} has {partition!r}: {offset!r}")
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


def from_json_text(text: str | None) -> dict[TopicPartition, int]:
    """Read a place in a query's progress; {} if there is none, or it is another source's."""
    try:
        return from_json(json.loads(text or "null"))
    except ValueError:
        return {}


def find_behind(offsets: Offsets, reference: Offsets) -> dict[TopicPartition, int]:
    """Return those of `offsets` that are less than in `reference`.

    Partitions that only one of the two has do not count.
    """
    return {
        partition: offset
        for partition, offset in offsets.items()
        if partition in reference and offset < reference[partition]
    }


def at_least(offsets: Offsets, floor: Offsets) -> dict[TopicPartition, int]:
    """Return `offsets`, each raised to the one in `floor` if that is larger."""
    return {
        partition: max(offset, floor.get(partition, offset))
        for partition, offset in offsets.items()
    }


def at_most(offsets: Offsets, ceiling: Offsets) -> dict[TopicPartition, int]:
    """Return the lesser offset of each partition that both have."""
    return {p: min(offsets[p], ceiling[p]) for p in offsets.keys() & ceiling.keys()}
