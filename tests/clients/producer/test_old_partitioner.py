"""Java's hash codes and the Scala producer's rule, by vectors; keyless messages, by script."""

import math
from typing import Any

import pytest

from clients.producer.java_hash_code import java_hash_code
from clients.producer.old_partitioner import KeptPartitions, hash_partition, key_to_partition

# (key, hash, of 7 partitions, of 10), as Java and 0.8.2 compute them.
VECTORS: list[tuple[Any, int, int, int]] = [
    ("", 0, 0, 0),
    ("key", 106079, 1, 9),
    ("test-key", -1147945308, 6, 8),
    ("message1", -462094070, 4, 0),
    ("polygenelubricants", -2147483648, 0, 0),
    ("\U0001f600", 1772899, 2, 9),
    (b"", 1, 1, 1),
    (b"\x00", 31, 3, 1),
    (b"\xff", 30, 2, 0),
    (b"test-key", 1339567525, 2, 5),
    ("é".encode(), -1017, 2, 7),
    (bytes(range(256)), -764092287, 0, 7),
    (-7, -7, 0, 7),
    (2**31 - 1, 2147483647, 1, 7),
    (-(2**31), -2147483648, 0, 0),
    (2**31, -2147483648, 0, 0),
    (123456789012345, -2045923535, 5, 5),
    (True, 1231, 6, 1),
    (False, 1237, 5, 7),
]

# (key, hash) where only the hash is of interest.
HASHES: list[tuple[Any, int]] = [
    (-(2**31) - 1, -2147483648),
    (2**63 - 1, -2147483648),
    (-(2**63), -2147483648),
    (1.5, 1073217536),
    (-0.1, 639631363),
    (0.0, 0),
    (-0.0, -2147483648),
    (1e300, -164130400),
    (math.nan, 2146959360),
    (math.inf, 2146435072),
]


@pytest.mark.parametrize(("key", "hashed"), [(v[0], v[1]) for v in VECTORS] + HASHES)
def test_key_hashes_as_its_java_object(key: Any, hashed: int) -> None:
    assert java_hash_code(key) == hashed


@pytest.mark.parametrize(("key", "_", "of_7", "of_10"), VECTORS)
def test_key_goes_to_the_partition_of_0_8_2(key: Any, _: int, of_7: int, of_10: int) -> None:
    assert (hash_partition(key, 7), hash_partition(key, 10)) == (of_7, of_10)


def test_key_that_has_no_java_twin_is_refused_by_its_type() -> None:
    with pytest.raises(TypeError, match="a tuple has no Java hash code"):
        java_hash_code((1, 2))


def test_integer_beyond_a_long_is_refused() -> None:
    with pytest.raises(OverflowError, match="64 bits"):
        java_hash_code(2**63)


class Last:
    def partition(self, key: Any, num_partitions: int) -> int:
        return num_partitions - 1


@pytest.mark.parametrize("given", [Last(), Last, Last().partition])
def test_partitioner_is_given_as_object_class_or_callable(given: Any) -> None:
    assert key_to_partition(given)("k", 5) == 4


@pytest.mark.parametrize("name", [None, "kafka.producer.ByteArrayPartitioner"])
def test_kafkas_own_partitioner_is_ours(name: str | None) -> None:
    assert key_to_partition(name) is hash_partition


def kept(*choices: int) -> KeptPartitions:
    script = iter(choices)
    return KeptPartitions(lambda n: next(script) % n)


def test_keyless_messages_keep_a_led_partition_until_it_is_forgotten() -> None:
    partitions = kept(1, 0)
    assert [partitions.of("t", range(4), [1, 3]) for _ in range(3)] == [3, 3, 3]
    partitions.forget()
    assert partitions.of("t", range(4), [1, 3]) == 1


def test_kept_partition_that_lost_its_leader_is_left() -> None:
    partitions = kept(1, 0)
    partitions.of("t", range(4), [1, 3])
    assert partitions.of("t", range(4), [0, 1]) == 0


def test_topic_without_any_leader_still_gets_a_partition() -> None:
    assert kept(2).of("t", range(4), []) == 2


def test_topics_keep_partitions_of_their_own() -> None:
    partitions = kept(0, 1)
    assert (partitions.of("t", range(2), [0, 1]), partitions.of("u", range(2), [0, 1])) == (0, 1)
