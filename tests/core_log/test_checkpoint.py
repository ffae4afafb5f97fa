"""Checkpoint files: Kafka's text, and what is wrong with one."""

from __future__ import annotations

import pytest

from core_log.checkpoint import (
    CheckpointError,
    decode_epochs,
    decode_offsets,
    encode_epochs,
    encode_offsets,
)
from protocol.topic_partition import TopicPartition

OFFSETS = {TopicPartition("b", 10): 7, TopicPartition("a.b-c", 2): 0, TopicPartition("b", 9): 2**40}


def test_offsets_are_written_as_kafka_writes_them() -> None:
    assert encode_offsets(OFFSETS) == b"0\n3\na.b-c 2 0\nb 9 1099511627776\nb 10 7\n"


def test_no_offsets_is_a_file_of_two_lines() -> None:
    assert encode_offsets({}) == b"0\n0\n"


def test_offsets_are_read_back() -> None:
    assert decode_offsets(encode_offsets(OFFSETS)) == OFFSETS


def test_epochs_are_written_and_read_in_their_order() -> None:
    assert encode_epochs([(3, 0), (5, 12)]) == b"0\n2\n3 0\n5 12\n"
    assert decode_epochs(b"0\n2\n3 0\n5  12\n") == [(3, 0), (5, 12)]


@pytest.mark.parametrize("text", [None, b"", b"0\n", b"0"])
def test_missing_or_empty_file_holds_nothing(text: bytes | None) -> None:
    assert decode_offsets(text) == {}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"1\n0\n", "unknown version 1"),
        (b"x\n0\n", "'x' is not a number"),
        (b"0\n2\na 0 1\n", "2 entries announced, 1 found"),
        (b"0\n1\na 0\n", "malformed line 'a 0'"),
        (b"0\n1\na b c d\n", "malformed line"),
        (b"0\n1\na 0 one\n", "'one' is not a number"),
        (b"0\n1\n\xff 0 1\n", "not text"),
    ],
)
def test_malformed_file_says_what_is_wrong(text: bytes, reason: str) -> None:
    with pytest.raises(CheckpointError, match=reason):
        decode_offsets(text)
