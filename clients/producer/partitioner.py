"""Choose the partition of a record, as Kafka's Java producer does.

Keys are hashed with murmur2, so that producers of any language put equal keys on one partition.
Records without a key go to one partition until its batch is full or gone, then to another
(KIP-480): batches fill, requests are few, and over time the load is even.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from clients.named_object import named_object
from protocol.topic_partition import TopicPartition

PartitionRule = Callable[[Any, bytes | None, int], int]
"""A user's rule: (key, encoded key, number of partitions) to partition."""

_KAFKAS_OWN = ("org.apache.kafka.clients.producer.internals.DefaultPartitioner",)
_MASK = 0xFFFFFFFF

# The constants of MurmurHash2, with the seed of Kafka's `Utils`.
_M = 0x5BD1E995
_SEED = 0x9747B28C


def murmur2(key: bytes) -> int:
    """Return Kafka's variant of MurmurHash2 (`Utils.murmur2`), as a signed 32-bit integer."""
    length = len(key)
    h = _SEED ^ length

    # Whole words of four bytes first, in little-endian order as Java reads them.
    words = length >> 2
    for k in struct.unpack_from(f"<{words}I", key):
        k = (k * _M) & _MASK
        k = ((k ^ (k >> 24)) * _M) & _MASK
        h = ((h * _M) & _MASK) ^ k

    # Up to three bytes are left.
    if tail := key[words << 2 :]:
        h = ((h ^ int.from_bytes(tail, "little")) * _M) & _MASK

    # The last mix spreads each bit over all others.
    h = ((h ^ (h >> 13)) * _M) & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h & 0x80000000 else h


def key_partition(key: bytes, num_partitions: int) -> int:
    """Return the partition of a key. Partitions without a leader count too: keys must not move."""
    # The sign bit is masked off, not negated: `abs` would place half of all keys elsewhere.
    return (murmur2(key) & 0x7FFFFFFF) % num_partitions


def partition_rule(value: Any) -> PartitionRule | None:
    """Return the rule of `partitioner.class`; None for Kafka's own.

    `value` is an object with `partition(key, num_partitions)`, its class, `module:Class`, or a
    callable (encoded key, num_partitions). Raises LookupError for an unknown name, TypeError for an
    object that cannot choose.
    """
    if value is None or value in _KAFKAS_OWN:
        return None

    rule = named_object(value)

    # A Partitioner gets the key as the application gave it, a callable its bytes.
    if hasattr(rule, "partition"):
        return lambda key, _, num_partitions: rule.partition(key, num_partitions)
    if not callable(rule):
        raise TypeError(f"{value!r} cannot be called and has no method partition")
    return lambda _, encoded, num_partitions: rule(encoded, num_partitions)


@attrs.define(eq=False)
class StickyPartitions:
    """The current partition for each topic's records without a key.

    `choose(n)` returns a number in [0, n): `random.randrange`, or a script in tests.
    """

    choose: Callable[[int], int]
    _current: dict[str, TopicPartition] = attrs.field(init=False, factory=dict)

    def current(self, topic: str) -> TopicPartition | None:
        """Return the topic's sticky partition, if it has one."""
        return self._current.get(topic)

    def move(self, topic: str, among: Sequence[int]) -> TopicPartition:
        """Choose another partition of `among` (those with a leader, or all if none has one).

        Call this when the next record would open a new batch.
        """
        # Staying would fill one partition; with a single candidate there is no other.
        previous = self._current.get(topic)
        other_partitions = [
            partition for partition in among if previous is None or partition != previous.partition
        ]
        candidates = other_partitions or among
        chosen = TopicPartition(topic, candidates[self.choose(len(candidates))])
        self._current[topic] = chosen
        return chosen
