"""What members write about their last assignment, and what is read from others."""

from random import Random

import pytest

from groups.assignors.claims import (
    Claim,
    encode_cooperative_data,
    encode_sticky_data,
    read_cooperative_claim,
    read_sticky_claim,
)
from protocol.consumer_protocol import Subscription
from tests.groups.assignors.scenes import partitions

OWNED = partitions("topic1-0 topic1-2")
STICKY_V1 = bytes.fromhex("000000010006746f7069633100000002000000000000000200000004")
STICKY_V0 = STICKY_V1[:-4]


def test_sticky_data_have_partitions_by_topic_and_the_generation() -> None:
    assert encode_sticky_data(Claim(OWNED, 4)) == STICKY_V1


def test_sticky_has_no_user_data_before_the_first_assignment() -> None:
    assert encode_sticky_data(None) is None


def test_sticky_data_are_read_as_they_were_written() -> None:
    claim = Claim(partitions("a-0 a-3 b-1"), 7)
    assert read_sticky_claim(Subscription((), encode_sticky_data(claim))) == claim


def test_sticky_data_without_a_generation_are_of_an_unknown_one() -> None:
    assert read_sticky_claim(Subscription((), STICKY_V0)) == Claim(OWNED, -1)


@pytest.mark.parametrize("user_data", [None, b""])
def test_sticky_member_without_user_data_claims_nothing(user_data: bytes | None) -> None:
    subscription = Subscription(("topic1",), user_data, OWNED, generation_id=4)
    assert read_sticky_claim(subscription) == Claim()


@pytest.mark.parametrize("length", range(1, len(STICKY_V0)))
def test_sticky_data_that_end_early_claim_nothing(length: int) -> None:
    assert read_sticky_claim(Subscription((), STICKY_V0[:length])) == Claim()


def test_sticky_trusts_the_user_data_and_not_the_subscription() -> None:
    subscription = Subscription((), STICKY_V1, partitions("other-1"), generation_id=9)
    assert read_sticky_claim(subscription) == Claim(OWNED, 4)


def test_cooperative_data_are_the_generation() -> None:
    assert encode_cooperative_data(Claim(OWNED, 4)).hex() == "00000004"


def test_cooperative_data_before_the_first_assignment_are_minus_one() -> None:
    assert encode_cooperative_data(None).hex() == "ffffffff"


def test_generation_comes_from_cooperative_data_of_an_old_subscription() -> None:
    subscription = Subscription((), bytes.fromhex("00000004"), OWNED)
    assert read_cooperative_claim(subscription) == Claim(OWNED, 4)


def test_generation_of_the_subscription_wins_over_cooperative_data() -> None:
    subscription = Subscription((), bytes.fromhex("00000004"), OWNED, generation_id=6)
    assert read_cooperative_claim(subscription) == Claim(OWNED, 6)


@pytest.mark.parametrize("user_data", [None, b"", b"\x00\x00\x04"])
def test_undecodable_cooperative_data_leave_the_generation_unknown(user_data: bytes | None) -> None:
    assert read_cooperative_claim(Subscription((), user_data, OWNED)) == Claim(OWNED, -1)


def test_generation_is_found_in_sticky_data_of_a_cooperative_member() -> None:
    assert read_cooperative_claim(Subscription((), STICKY_V1, OWNED)) == Claim(OWNED, 4)


def test_random_user_data_never_fail() -> None:
    rng = Random(3)
    for _ in range(3000):
        user_data = rng.randbytes(rng.randint(0, 30))
        if rng.random() < 0.5:
            # Two broken bytes in good ones.
            broken = bytearray(STICKY_V1)
            for _ in range(2):
                broken[rng.randrange(len(broken))] = rng.randrange(256)
            user_data = bytes(broken)
        subscription = Subscription((), user_data, OWNED)
        assert read_sticky_claim(subscription).generation_id >= -(2**31)
        assert read_cooperative_claim(subscription).partitions == OWNED
