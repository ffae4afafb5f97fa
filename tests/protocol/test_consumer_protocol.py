"""Assignments and subscriptions, which members send inside the group protocol."""

import pytest

from protocol.consumer_protocol import decode_assignment, decode_subscription
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


@pytest.mark.parametrize("behind", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x01x", b"", b"more"])
def test_topics_of_a_subscription_are_read_whatever_follows_them(behind: bytes) -> None:
    topics = b"\x00\x01" + b"\x00\x00\x00\x02" + b"\x00\x01t" + b"\x00\x03u-v"
    assert list(decode_subscription(topics + behind)) == ["t", "u-v"]


def test_subscription_that_is_cut_is_an_error() -> None:
    with pytest.raises(WireError):
        decode_subscription(b"\x00\x00\x00\x00\x00\x02\x00\x01t")
