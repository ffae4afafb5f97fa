"""A member's assignment, as the group's leader wrote it."""

import pytest

from protocol.consumer_protocol import decode_assignment
from protocol.primitives import WireError
from protocol.topic_partition import TopicPartition

ONE_TOPIC = b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x01t" + b"\x00\x00\x00\x02"
TWO_PARTITIONS = b"\x00\x00\x00\x05" + b"\x00\x00\x00\x02"
NO_USER_DATA = b"\xff\xff\xff\xff"


def test_an_assignment_names_its_partitions_in_order() -> None:
    assert decode_assignment(ONE_TOPIC + TWO_PARTITIONS + NO_USER_DATA) == (
        TopicPartition("t", 2),
        TopicPartition("t", 5),
    )


def test_what_a_later_version_appends_is_not_looked_at() -> None:
    later = b"\x00\x03" + (ONE_TOPIC + TWO_PARTITIONS)[2:] + NO_USER_DATA + b"more"
    assert len(decode_assignment(later)) == 2


def test_a_member_without_assignment_has_no_partitions() -> None:
    assert decode_assignment(b"") == ()


def test_an_assignment_cut_short_is_refused() -> None:
    with pytest.raises(WireError):
        decode_assignment(ONE_TOPIC + TWO_PARTITIONS[:5])
