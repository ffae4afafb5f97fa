"""Choose the partition of a message with `producer.type`: the rule of 0.8.2's Scala producer.

A key goes to the absolute value of its Java hash code, modulo the number of partitions with or
without a leader. In 0.7 the smallest hash stayed negative. 0.8.0 and 0.8.1 masked the sign, which
puts every key with a negative hash in another partition.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import attrs

from clients.named_object import named_callable
from clients.producer.java_hash_code import java_hash_code
from protocol.java_hash import abs31

KeyToPartition = Callable[[Any, int], int]


class Partitioner(Protocol):
    """The interface of `partitioner.class`. It is not called for a key that is None."""

    def partition(self, key: Any, num_partitions: int) -> int:
        """Return the key's partition, a number in [0, num_partitions)."""


def hash_partition(key: Any, num_partitions: int) -> int:
    """Choose as Kafka's DefaultPartitioner, or ByteArrayPartitioner. Raises TypeError."""
    # The absolute value, and 0 for the smallest integer, which has none (`Utils.abs`).
    return abs31(java_hash_code(key)) % num_partitions


_KAFKAS_OWN = ("kafka.producer.DefaultPartitioner", "kafka.producer.ByteArrayPartitioner")


def key_to_partition(value: Any) -> KeyToPartition:
    """Return the rule of `partitioner.class`; Kafka's own for its names and for None.

    `value` is a Partitioner, its class, `module:Class`, or a callable (key, num_partitions). Raises
    LookupError for an unknown name, TypeError for an object that cannot choose.
    """
    if value is None or value in _KAFKAS_OWN:
        return hash_partition
    return named_callable(value, "partition")


@attrs.define(eq=False)
class KeptPartitions:
    """The partition of each topic's messages without a key, until `forget`.

    As in 0.8, all such messages go to one random partition with a leader, which spares
    connections. Unlike there, a partition that loses its leader is replaced. `choose(n)` returns a
    number in [0, n).
    """

    choose: Callable[[int], int]
    _partitions: dict[str, int] = attrs.field(init=False, factory=dict)

    def of(self, topic: str, partitions: Sequence[int], led: Sequence[int]) -> int:
        """Return the topic's partition: one of `led`, or of all if none has a leader."""
        # Without any leader the messages wait, so every partition is as good.
        candidates = led or partitions
        partition_id = self._partitions.get(topic)
        if partition_id is None or partition_id not in candidates:
            partition_id = self._partitions[topic] = candidates[self.choose(len(candidates))]

        return partition_id

    def forget(self) -> None:
        """Choose again from now on: metadata was read again, or a batch failed."""
        self._partitions.clear()
