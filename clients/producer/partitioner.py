"""Which partition a record goes to, as Kafka's Java producer decides.

A key is hashed with murmur2, so that producers of any language put equal keys on one partition.
Records without a key stick to one partition until its batch is full or gone, then move to another
(KIP-480): batches fill, requests are few, and over time the load is even.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from clients.named_object import named_object
from protocol.topic_partition import TopicPartition

PartitionRule = Callable[[Any, bytes | None, int], int]
"""A user's own choice: (key, encoded key, number of partitions) to a partition."""

_KAFKAS_OWN = ("org.apache.kafka.clients.producer.internals.DefaultPartitioner",)
_MASK = 0xFFFFFFFF
_M = 0x5BD1E995
_SEED = 0x9747B28C


def murmur2(key: bytes) -> int:
    """Kafka's variant of MurmurHash2 (`Utils.murmur2`), as a signed 32-bit integer."""
    length = len(key)
    h = _SEED ^ length
    words = length >> 2
    for k in struct.unpack_from(f"<{words}I", key):
        k = (k * _M) & _MASK
        k = ((k ^ (k >> 24)) * _M) & _MASK
        h = ((h * _M) & _MASK) ^ k
    if tail := key[words << 2 :]:
        h = ((h ^ int.from_bytes(tail, "little")) * _M) & _MASK
    h = ((h ^ (h >> 13)) * _M) & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h & 0x80000000 else h


def key_partition(key: bytes, num_partitions: int) -> int:
    """Partition of a key. All partitions count, with a leader or without: keys must not move."""
    # The sign bit is masked off, not negated: `abs` would place half of all keys elsewhere.
    return (murmur2(key) & 0x7FFFFFFF) % num_partitions


def partition_rule(given: Any) -> PartitionRule | None:
    """What `partitioner.class` gives: an object with `partition(key, num_partitions)`, its class or
    `module:Class`; or a callable (encoded key, num_partitions). None for Kafka's own rule.

    Raises LookupError for a name that is none, TypeError for an object that chooses nothing.
    """
    if given is None or given in _KAFKAS_OWN:
        return None
    found = named_object(given)
    if hasattr(found, "partition"):
        return lambda key, _, num_partitions: found.partition(key, num_partitions)
    if not callable(found):
        raise TypeError(f"{given!r} cannot be called and has no method partition")
    return lambda _, encoded, num_partitions: found(encoded, num_partitions)


@attrs.define(eq=False)
class StickyPartitions:
    """The partition each topic's keyless records go to at the moment.

    `choose(n)` gives a number in [0, n): `random.randrange`, or a script in tests.
    """

    choose: Callable[[int], int]
    _current: dict[str, TopicPartition] = attrs.field(init=False, factory=dict)

    def current(self, topic: str) -> TopicPartition | None:
        """The topic's sticky partition, if there is one already."""
        return self._current.get(topic)

    def move(self, topic: str, among: Sequence[int]) -> TopicPartition:
        """Stick to another partition of `among` (those with a leader, all if there are none).

        Called when the next record would open a new batch.
        """
        previous = self._current.get(topic)
        others = [p for p in among if previous is None or p != previous.partition] or among
        chosen = TopicPartition(topic, others[self.choose(len(others))])
        self._current[topic] = chosen
        return chosen
