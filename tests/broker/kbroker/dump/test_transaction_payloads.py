"""Records of `__transaction_state`, and names in both topics, in the words of Kafka's tool."""

import pytest

from broker.kbroker.dump.payloads import (
    UndecodableRecord,
    decode_offsets_payload,
    decode_transaction_payload,
)
from broker.kbroker.log.records import LoggedRecord
from offsets.records import CommittedOffset, OffsetKey, encode_key, encode_value

KEY = bytes.fromhex("0000000574786e2d31")
ONGOING = bytes.fromhex(
    "00000000000000000fa000030000ea6001000000010001740000000200000001000000000000018bcfe56800"
    "0000018bcfe56800"
)
# The same in the flexible encoding, which brokers from 3.5 on read.
FLEXIBLE = bytes.fromhex(
    "00010000000000000fa000030000ea6001020274030000000100000000000000018bcfe568000000018bcfe5680000"
)
TEXT = (
    "producerId:4000,producerEpoch:3,state=Ongoing,partitions=[t-1,t-0],"
    "txnLastUpdateTimestamp=1700000000000,txnTimeoutMs=60000"
)


@pytest.mark.parametrize(("value", "text"), [(ONGOING, TEXT), (FLEXIBLE, TEXT), (None, "<DELETE>")])
def test_a_transaction_has_its_partitions_in_the_order_of_the_record(
    value: bytes | None, text: str
) -> None:
    name = "transaction_metadata::transactionalId=txn-1"
    assert decode_transaction_payload(LoggedRecord(0, 0, KEY, value)) == (name, text)


@pytest.mark.fault("security-12")
def test_neither_a_group_nor_metadata_forge_a_line() -> None:
    key = encode_key(OffsetKey("g\x1b[2J\nforged", "t", 0))
    value = encode_value(CommittedOffset(1, metadata="\u202e"))
    assert decode_offsets_payload(LoggedRecord(0, 0, key, value)) == (
        r"offset_commit::group=g\x1b[2J\nforged,partition=t-0",
        r"offset=1,metadata=\u202e",
    )


def test_a_transactional_id_forges_no_line() -> None:
    name = "t\x1b[2J\nforged"
    key = bytes.fromhex("0000") + len(name).to_bytes(2, "big") + name.encode()
    text, _ = decode_transaction_payload(LoggedRecord(0, 0, key, None))
    assert text == r"transaction_metadata::transactionalId=t\x1b[2J\nforged"


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, ONGOING, "malformed key of 0 bytes"),
        (bytes.fromhex("0001"), ONGOING, "key of version 1"),
        (KEY, ONGOING[:10], "malformed value of 10 bytes"),
        (KEY, ONGOING[:16] + b"\x63" + ONGOING[17:], "not a record of a transaction"),
    ],
)
def test_what_is_no_transaction_is_named(key: bytes | None, value: bytes, reason: str) -> None:
    with pytest.raises(UndecodableRecord, match=reason):
        decode_transaction_payload(LoggedRecord(0, 0, key, value))
