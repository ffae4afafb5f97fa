"""Records of `__transaction_state`, byte for byte as Kafka's brokers write them."""

from __future__ import annotations

import random

import pytest

from groups.transactions.records import (
    TransactionRecordError,
    UnknownTransactionKey,
    decode_transaction,
    decode_transaction_key,
    encode_transaction,
    encode_transaction_key,
)
from groups.transactions.state import (
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    Transaction,
    TransactionState,
)
from protocol.topic_partition import TopicPartition

T = 1_700_000_000_000
PARTITIONS = frozenset({TopicPartition("t", 0), TopicPartition("t", 1)})

BYTES = [
    (
        Transaction(4000, 3, 60_000, ONGOING, PARTITIONS, T, T),
        "00000000000000000fa000030000ea6001000000010001740000000200000000000000010000018bcfe56800"
        "0000018bcfe56800",
    ),
    (
        Transaction(4000, 0, 60_000, EMPTY, frozenset(), T, -1),
        "00000000000000000fa000000000ea6000ffffffff0000018bcfe56800ffffffffffffffff",
    ),
    (
        Transaction(4000, 3, 60_000, COMPLETE_COMMIT, frozenset(), T + 5, T),
        "00000000000000000fa000030000ea6004000000000000018bcfe568050000018bcfe56800",
    ),
]
FLEXIBLE = (
    "00010000000000000fa000030000ea6001020274030000000000000001000000018bcfe568000000018bcfe5680000"
)


def test_a_key_is_kafkas() -> None:
    assert encode_transaction_key("txn-1").hex() == "0000000574786e2d31"
    assert decode_transaction_key(bytes.fromhex("0000000574786e2d31")) == "txn-1"


@pytest.mark.parametrize(("transaction", "text"), BYTES, ids=lambda value: str(value)[:12])
def test_a_value_is_kafkas(transaction: Transaction, text: str) -> None:
    encoded = encode_transaction(transaction)
    assert encoded is not None
    assert encoded.hex() == text
    assert decode_transaction(encoded) == transaction


def test_a_value_of_later_brokers_is_read() -> None:
    assert decode_transaction(bytes.fromhex(FLEXIBLE)) == BYTES[0][0]


def test_tags_of_later_brokers_are_skipped() -> None:
    tagged = bytes.fromhex(FLEXIBLE[:-2]) + bytes([1, 0, 8]) + (4001).to_bytes(8, "big")
    assert decode_transaction(tagged) == BYTES[0][0]


def test_a_tombstone_has_no_value() -> None:
    assert encode_transaction(None) is None
    assert decode_transaction(None) is None


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x00\x00\x05tx"])
def test_a_malformed_key_is_refused(data: bytes) -> None:
    with pytest.raises(TransactionRecordError):
        decode_transaction_key(data)


def test_a_key_of_a_later_version_is_told_apart() -> None:
    with pytest.raises(UnknownTransactionKey, match="version 1"):
        decode_transaction_key(b"\x00\x01rest")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00\x02" + bytes(40),
        b"\xff\xff" + bytes(40),
        bytes.fromhex(BYTES[0][1])[:-1],
        # A state that is none.
        bytes.fromhex(BYTES[1][1].replace("ea6000", "ea6063")),
    ],
)
def test_a_malformed_value_is_refused(data: bytes) -> None:
    with pytest.raises(TransactionRecordError):
        decode_transaction(data)


def test_any_transaction_reads_back() -> None:
    rng = random.Random(0)
    for _ in range(500):
        state = rng.choice([state for state in TransactionState if state.value < 6])
        partitions = frozenset(
            TopicPartition(rng.choice("abc"), rng.randrange(20))
            for _ in range(rng.randrange(8) if state is not EMPTY else 0)
        )
        transaction = Transaction(
            rng.randrange(2**63),
            rng.randrange(2**15),
            rng.randrange(1, 2**31),
            state,
            partitions,
            rng.randrange(2**42),
            rng.randrange(-1, 2**42),
        )
        assert decode_transaction(encode_transaction(transaction)) == transaction
