"""Assignments and subscriptions, which members send inside the group protocol."""

import pytest

from protocol.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    decode_topics,
    encode_assignment,
    encode_subscription,
)
from protocol.primitives import WireError
from protocol.topic_partition import TopicPartition

ONE_TOPIC = b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x01t" + b"\x00\x00\x00\x02"
TWO_PARTITIONS = b"\x00\x00\x00\x05" + b"\x00\x00\x00\x02"
NO_USER_DATA = b"\xff\xff\xff\xff"

OWNED = (TopicPartition("topic1", 0), TopicPartition("topic1", 2))
# Written by Java's ConsumerProtocol: topic1, user data of an int32 4, owns partitions 0 and 2.
SUBSCRIPTION_V1 = bytes.fromhex(
    "0001000000010006746f706963310000000400000004000000010006746f70696331000000020000000000000002"
)


def with_version(version: int, data: bytes) -> bytes:
    return version.to_bytes(2, "big", signed=True) + data[2:]


# ---- subscriptions


def test_subscription_of_version_1_has_the_owned_partitions() -> None:
    subscription = Subscription(("topic1",), b"\0\0\0\x04", OWNED)
    assert encode_subscription(subscription, 1) == SUBSCRIPTION_V1
    assert decode_subscription(SUBSCRIPTION_V1) == subscription


def test_subscription_of_version_2_has_the_generation() -> None:
    subscription = Subscription(("topic1",), b"\0\0\0\x04", OWNED, 4)
    data = with_version(2, SUBSCRIPTION_V1) + b"\0\0\0\x04"
    assert encode_subscription(subscription, 2) == data
    assert decode_subscription(data) == subscription


def test_subscription_of_version_3_has_the_rack() -> None:
    subscription = Subscription(("topic1",), b"\0\0\0\x04", OWNED, 4, "r1")
    data = with_version(3, SUBSCRIPTION_V1) + b"\0\0\0\x04" + b"\0\x02r1"
    assert encode_subscription(subscription) == data
    assert decode_subscription(data) == subscription


def test_subscription_of_version_0_has_topics_and_user_data_alone() -> None:
    data = encode_subscription(Subscription(("b", "a"), None, OWNED, 4, "r1"), 0)
    assert data == b"\0\0" + b"\0\0\0\x02" + b"\0\x01a" + b"\0\x01b" + NO_USER_DATA
    assert decode_subscription(data) == Subscription(("a", "b"))


def test_subscription_of_a_later_version_is_read_as_the_last_known() -> None:
    subscription = Subscription(("topic1",), b"", OWNED, 4, None)
    data = with_version(9, encode_subscription(subscription)) + b"more"
    assert decode_subscription(data) == subscription


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff" + SUBSCRIPTION_V1[2:]])
def test_subscription_without_a_version_is_refused(data: bytes) -> None:
    with pytest.raises(WireError, match="version"):
        decode_subscription(data)


def test_subscription_that_is_cut_is_refused() -> None:
    for end in range(len(SUBSCRIPTION_V1)):
        with pytest.raises(WireError):
            decode_subscription(SUBSCRIPTION_V1[:end])


@pytest.mark.parametrize("behind", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x01x", b"", b"more"])
def test_topics_of_a_subscription_are_read_whatever_follows_them(behind: bytes) -> None:
    topics = b"\x00\x01" + b"\x00\x00\x00\x02" + b"\x00\x01t" + b"\x00\x03u-v"
    assert list(decode_topics(topics + behind)) == ["t", "u-v"]


def test_topics_that_are_cut_are_refused() -> None:
    with pytest.raises(WireError):
        decode_topics(b"\x00\x00\x00\x00\x00\x02\x00\x01t")


# ---- assignments


def test_an_assignment_names_its_partitions() -> None:
    assignment = decode_assignment(ONE_TOPIC + TWO_PARTITIONS + NO_USER_DATA)
    assert assignment == Assignment((TopicPartition("t", 5), TopicPartition("t", 2)))


@pytest.mark.parametrize("version", range(4))
def test_an_assignment_reads_back_as_it_was_written(version: int) -> None:
    assignment = Assignment(OWNED, b"mine")
    data = encode_assignment(assignment, version)
    assert data[:2] == version.to_bytes(2, "big")
    assert decode_assignment(data) == assignment


def test_what_a_later_version_appends_is_not_read() -> None:
    later = b"\x00\x04" + (ONE_TOPIC + TWO_PARTITIONS)[2:] + NO_USER_DATA + b"more"
    assert len(decode_assignment(later).partitions) == 2


def test_a_member_without_assignment_has_no_partitions() -> None:
    assert decode_assignment(b"") == Assignment()


def test_an_assignment_that_is_cut_is_refused() -> None:
    with pytest.raises(WireError):
        decode_assignment(ONE_TOPIC + TWO_PARTITIONS[:5])
