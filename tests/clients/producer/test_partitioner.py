"""Kafka's murmur2 and the sticky rule, by vectors and by script."""

import pytest

from clients.producer.partitioner import StickyPartitions, key_partition, murmur2
from protocol.topic_partition import TopicPartition

# The first six are those of Kafka's own UtilsTest.
VECTORS = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
    (b"", 275646681),
    (b"\x00", 375494588),
    (b"ab", 316155434),
    (b"\xff\xfe\xfd", 998637092),
    (b"\x00\x00\x00\x2a", 1606757304),
    ("ключ".encode(), 2122343024),
    (b"\x80" * 5, -1525148316),
    (bytes(range(256)), -1948347274),
]


@pytest.mark.parametrize(("key", "hashed"), VECTORS)
def test_key_hashes_as_in_java(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed


def test_negative_hash_is_masked_and_not_negated() -> None:
    assert murmur2(b"key") == -1079937367
    assert [key_partition(b"key", n) for n in (2, 3, 7, 10, 50)] == [1, 1, 4, 1, 31]


def test_empty_key_is_a_key() -> None:
    assert key_partition(b"", 50) == 31


def sticky(*choices: int) -> StickyPartitions:
    script = iter(choices)
    return StickyPartitions(lambda n: next(script) % n)


def test_nothing_sticks_before_the_first_record() -> None:
    assert sticky().current("t") is None


def test_moving_never_chooses_the_same_partition_where_there_is_another() -> None:
    partitions = sticky(0, 0, 0, 1)
    moves = [partitions.move("t", [0, 1, 2]).partition for _ in range(4)]
    assert moves == [0, 1, 0, 2]
    assert partitions.current("t") == TopicPartition("t", 2)


def test_only_partition_is_stuck_to() -> None:
    partitions = sticky(0, 0)
    partitions.move("t", [0])
    assert partitions.move("t", [0]) == TopicPartition("t", 0)


def test_topics_stick_independently() -> None:
    partitions = sticky(0, 1)
    partitions.move("t", [0, 1])
    partitions.move("u", [0, 1])
    assert partitions.current("t") == TopicPartition("t", 0)
    assert partitions.current("u") == TopicPartition("u", 1)
