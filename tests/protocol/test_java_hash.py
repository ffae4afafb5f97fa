"""Java's hash, and the partition of a group."""

from __future__ import annotations

import pytest

from protocol.java_hash import abs31, group_partition, java_string_hash


@pytest.mark.parametrize(
    ("text", "value", "partition"),
    [
        ("group1", -1237460590, 40),
        ("test-group", 627841412, 12),
        ("foo", 101574, 24),
        ("my_group", -475040212, 12),
        ("polygenelubricants", -2147483648, 0),
        ("", 0, 0),
    ],
)
def test_hash_and_partition_of_fifty(text: str, value: int, partition: int) -> None:
    assert java_string_hash(text) == value
    assert group_partition(text, 50) == partition


def test_a_character_beyond_the_basic_plane_counts_as_two_units() -> None:
    assert java_string_hash("\U0001f600") == 31 * 0xD83D + 0xDE00


def test_the_least_number_has_no_absolute_value() -> None:
    assert (abs31(-(1 << 31)), abs31(-5), abs31(5)) == (0, 5, 5)
