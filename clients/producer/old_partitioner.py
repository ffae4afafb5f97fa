"""Which partition a message goes to with `producer.type`: the Scala producer's rule, as of 0.8.2.

A key goes to the magnitude of its Java hash code, modulo the topic's partitions, led or not. 0.7
let the smallest hash stay negative, and 0.8.0 to 0.8.1 masked the sign, which puts every key with
a negative hash elsewhere.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import attrs

from clients.named_object import named_callable
from clients.producer.java_hash_code import java_hash_code
from protocol.java_hash import abs31

KeyToPartition = Callable[[Any, int], int]


class Partitioner(Protocol):
    """`partitioner.class`: says where a key belongs. A key that is None never comes here."""

    def partition(self, key: Any, num_partitions: int) -> int:
        """A number in [0, num_partitions)."""


def hash_partition(key: Any, num_partitions: int) -> int:
    """Kafka's DefaultPartitioner, and for bytes its ByteArrayPartitioner. Raises TypeError."""
    return abs31(java_hash_code(key)) % num_partitions


_KAFKAS_OWN = ("kafka.producer.DefaultPartitioner", "kafka.producer.ByteArrayPartitioner")


def key_to_partition(given: Any) -> KeyToPartition:
    """The rule that `partitioner.class` gives: a Partitioner, its class or `module:Class`, or a
    callable (key, num_partitions); Kafka's for its own names and for None.

    Raises LookupError for a name that is none, TypeError for an object that chooses nothing.
    """
    if given is None or given in _KAFKAS_OWN:
        return hash_partition
    return named_callable(given, "partition")


@attrs.define(eq=False)
class KeptPartitions:
    """The partition that a topic's keyless messages go to, until `forget`.

    0.8's, to spare connections: at random among those with a leader, one for all messages. Unlike
    there, one that loses its leader is not kept. `choose(n)` gives a number in [0, n).
    """

    choose: Callable[[int], int]
    _kept: dict[str, int] = attrs.field(init=False, factory=dict)

    def of(self, topic: str, partitions: Sequence[int], led: Sequence[int]) -> int:
        """The topic's partition: of those that are `led`, or of all when none is."""
        among = led or partitions
        kept = self._kept.get(topic)
        if kept is None or kept not in among:
            kept = self._kept[topic] = among[self.choose(len(among))]
        return kept

    def forget(self) -> None:
        """Choose again: metadata was read anew, or a batch failed."""
        self._kept.clear()
