"""The record formats against bytes computed apart from this code."""

import pytest

from offsets.records import (
    CommittedOffset,
    GroupKey,
    GroupMember,
    GroupMetadata,
    OffsetKey,
    RecordError,
    UnknownKey,
    ValueVersions,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    has_instance_ids,
    times_of,
    value_versions,
)

KEY = OffsetKey("group1", "topic1", 3)
KEY_V0 = "0000000667726f7570310006746f7069633100000003"
KEY_V1 = "0001000667726f7570310006746f7069633100000003"
GROUP_KEY_V2 = "0002000667726f757031"

COMMIT_MS = 1_400_000_000_000
DAY_MS = 86_400_000
VALUES = {
    0: "0000000000000000002a00046d65746100000145f680b000",
    1: "0001000000000000002a00046d65746100000145f680b00000000145fba70c00",
    2: "0002000000000000002a00046d65746100000145f680b000",
    3: "0003000000000000002affffffff00046d65746100000145f680b000",
}
EXPIRING = CommittedOffset(42, -1, "meta", COMMIT_MS, COMMIT_MS + DAY_MS)
LASTING = CommittedOffset(42, -1, "meta", COMMIT_MS)

GROUP_V0 = (
    "00000008636f6e73756d657200000001000572616e67650003632d31000000010003632d31000163"
    "000a2f3132372e302e302e31000027100000000000000000"
)
GROUP_V1 = (
    "00010008636f6e73756d657200000001000572616e67650003632d31000000010003632d31000163"
    "000a2f3132372e302e302e310000ea60000027100000000000000000"
)
EMPTY_GROUP_V1 = "00010008636f6e73756d657200000002ffffffff00000000"


def member(rebalance_timeout_ms: int) -> GroupMember:
    return GroupMember(
        member_id="c-1",
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=rebalance_timeout_ms,
        session_timeout_ms=10_000,
        subscription=b"",
        assignment=b"",
    )


def group(*members: GroupMember) -> GroupMetadata:
    return GroupMetadata(
        protocol_type="consumer", generation_id=1, protocol="range", leader="c-1", members=members
    )


@pytest.mark.parametrize("text", [KEY_V0, KEY_V1])
def test_offset_keys_of_both_versions_name_the_same_partition(text: str) -> None:
    assert decode_key(bytes.fromhex(text)) == KEY


def test_group_key_is_read() -> None:
    assert decode_key(bytes.fromhex(GROUP_KEY_V2)) == GroupKey("group1")


def test_keys_are_written_in_the_versions_of_kafka_0_9_and_later() -> None:
    assert encode_key(KEY).hex() == KEY_V1
    assert encode_key(GroupKey("group1")).hex() == GROUP_KEY_V2


@pytest.mark.parametrize(
    ("version", "expected"), [(0, LASTING), (1, EXPIRING), (2, LASTING), (3, LASTING)]
)
def test_offset_value_of_each_version_is_read(version: int, expected: CommittedOffset) -> None:
    assert decode_value(KEY, bytes.fromhex(VALUES[version])) == expected


def test_expiry_of_minus_one_in_version_1_means_none_was_asked_for() -> None:
    value = bytes.fromhex(VALUES[1])[:-8] + b"\xff" * 8
    assert decode_value(KEY, value) == LASTING


def test_offset_is_written_in_version_3() -> None:
    encoded = encode_value(LASTING)
    assert encoded is not None
    assert encoded.hex() == VALUES[3]


def test_offset_with_an_expiry_is_written_in_version_1() -> None:
    encoded = encode_value(EXPIRING)
    assert encoded is not None
    assert encoded.hex() == VALUES[1]


@pytest.mark.parametrize(
    ("protocol", "version"),
    [
        *(("0.8.2", 1), ("0.10.2-IV0", 1), ("1.1", 1), ("2.0-IV1", 1)),
        *(("2.1-IV0", 2), ("2.1-IV1", 3), ("2.1", 3), ("2.3-IV1", 3), ("2.8", 3)),
    ],
)
def test_offset_has_the_version_that_brokers_of_a_protocol_read(
    protocol: str, version: int
) -> None:
    assert value_versions(protocol).offset == version


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("note", ["", "note"])
def test_offset_written_for_older_brokers_comes_back(version: int, note: str) -> None:
    value = CommittedOffset(5, -1, note, 7)
    encoded = encode_value(value, ValueVersions(version))
    assert encoded is not None
    assert encoded[:2] == version.to_bytes(2, "big")
    assert decode_value(KEY, encoded) == value


def test_offset_of_version_2_is_as_kafka_writes_it() -> None:
    encoded = encode_value(LASTING, ValueVersions(2))
    assert encoded is not None
    assert encoded.hex() == VALUES[2]


def test_offset_with_an_expiry_is_written_in_version_1_among_any_brokers() -> None:
    assert (
        encode_value(EXPIRING, ValueVersions(2))
        == encode_value(EXPIRING, ValueVersions(1))
        == bytes.fromhex(VALUES[1])
    )


@pytest.mark.parametrize(
    ("protocol", "version"),
    [
        *(("0.8.2", 0), ("0.9.0", 0), ("0.10.0-IV1", 0), ("0.10.0", 0)),
        *(("0.10.1", 1), ("0.10.2-IV0", 1), ("2.0-IV1", 1), ("2.1-IV0", 2), ("2.2", 2)),
        *(("2.3-IV0", 3), ("2.3", 3), ("2.8", 3)),
    ],
)
def test_group_has_the_version_that_brokers_of_a_protocol_read(protocol: str, version: int) -> None:
    assert value_versions(protocol).group == version


@pytest.mark.parametrize(
    ("protocol", "expected"), [("2.2-IV1", False), ("2.3-IV0", True), ("2.3", True), ("3.0", True)]
)
def test_instance_ids_are_kept_by_brokers_from_2_3_on(protocol: str, expected: bool) -> None:
    assert has_instance_ids(protocol) == expected


T = 1_700_000_000_000
STATIC_MEMBER = GroupMember(
    member_id="c-1",
    group_instance_id="i1",
    client_id="c",
    client_host="/127.0.0.1",
    rebalance_timeout_ms=60_000,
    session_timeout_ms=10_000,
    subscription=b"",
    assignment=b"",
)
STATIC_GROUP = GroupMetadata(
    protocol_type="consumer",
    generation_id=1,
    protocol="range",
    leader="c-1",
    state_timestamp_ms=T,
    members=(STATIC_MEMBER,),
)
STATIC_GROUP_V3 = (
    "00030008636f6e73756d657200000001000572616e67650003632d310000018bcfe56800"
    "000000010003632d3100026931000163000a2f3132372e302e302e310000ea6000002710"
    "0000000000000000"
)
STATIC_GROUP_V4 = (
    "000409636f6e73756d6572000000010672616e676504632d310000018bcfe56800"
    "0204632d3103693102630b2f3132372e302e302e310000ea600000271001010000"
)


def test_group_is_written_in_version_3_as_kafka_writes_it() -> None:
    encoded = encode_value(STATIC_GROUP)
    assert encoded is not None
    assert encoded.hex() == STATIC_GROUP_V3


@pytest.mark.parametrize("value", [STATIC_GROUP_V3, STATIC_GROUP_V4], ids=["v3", "v4"])
def test_group_of_newer_brokers_is_read(value: str) -> None:
    assert decode_value(GroupKey("g"), bytes.fromhex(value)) == STATIC_GROUP


def test_group_that_has_lost_its_members_is_written_as_kafka_writes_it() -> None:
    empty = GroupMetadata(
        protocol_type="consumer",
        generation_id=2,
        protocol=None,
        leader=None,
        state_timestamp_ms=T,
        members=(),
    )
    encoded = encode_value(empty)
    assert encoded is not None
    assert encoded.hex() == "00030008636f6e73756d657200000002ffffffff0000018bcfe5680000000000"


@pytest.mark.parametrize(
    "value",
    [
        "0003000000000000002a0000000500016d0000018bcfe56800",
        "0004000000000000002a00000005026d0000018bcfe5680000",
        # With a tagged field that nobody knows yet.
        "0004000000000000002a00000005026d0000018bcfe56800" + "010702aabb",
    ],
    ids=["v3", "v4", "v4 with a tag"],
)
def test_offset_of_newer_brokers_is_read(value: str) -> None:
    data = bytes.fromhex(value)
    assert decode_value(KEY, data) == CommittedOffset(42, 5, "m", T)
    assert times_of(data) == (T, None)


def test_leader_epoch_and_text_beyond_ascii_come_back() -> None:
    value = CommittedOffset(2**62, 7, "käse 🧀", 5)
    assert decode_value(KEY, encode_value(value)) == value


def test_tombstone_is_none_both_ways() -> None:
    assert encode_value(None) is None
    assert decode_value(KEY, None) is None
    assert decode_value(GroupKey("group1"), None) is None


def test_group_value_of_version_0_has_no_rebalance_timeout() -> None:
    assert decode_value(GroupKey("group1"), bytes.fromhex(GROUP_V0)) == group(member(-1))


def test_group_value_of_version_1_is_read() -> None:
    assert decode_value(GroupKey("group1"), bytes.fromhex(GROUP_V1)) == group(member(60_000))


def test_group_without_members_has_neither_protocol_nor_leader() -> None:
    assert decode_value(GroupKey("group1"), bytes.fromhex(EMPTY_GROUP_V1)) == GroupMetadata(
        protocol_type="consumer", generation_id=2, protocol=None, leader=None, members=()
    )


def test_group_is_written_in_version_3_with_its_static_members() -> None:
    static = GroupMember(
        member_id="c-1",
        group_instance_id="one",
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=60_000,
        session_timeout_ms=10_000,
        subscription=b"s",
        assignment=b"a",
    )

    group = GroupMetadata(
        protocol_type="consumer",
        generation_id=1,
        protocol="range",
        leader="c-1",
        state_timestamp_ms=9,
        members=(static,),
    )

    encoded = encode_value(group)
    assert encoded is not None
    assert encoded[:2] == b"\x00\x03"
    assert decode_value(GroupKey("group1"), encoded) == group


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (None, "without a key"),
        (b"", "malformed key"),
        (bytes.fromhex(KEY_V1)[:-1], "malformed key"),
        (bytes.fromhex("00017fff"), "a string of 32767 bytes"),
        (bytes.fromhex("0001ffff"), "a string of -1 bytes"),
    ],
)
def test_key_that_cannot_be_read_is_refused_with_the_reason(key: bytes, reason: str) -> None:
    with pytest.raises(RecordError, match=reason):
        decode_key(key)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("0005" + VALUES[3][4:], "offset value of unknown version 5; known are"),
        (VALUES[3][:-2], "malformed offset value"),
        ("0001", "malformed offset value"),
    ],
)
def test_offset_value_that_cannot_be_read_is_refused(value: str, reason: str) -> None:
    with pytest.raises(RecordError, match=reason):
        decode_value(KEY, bytes.fromhex(value))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("0005" + GROUP_V1[4:], "group value of unknown version 5; known are"),
        (GROUP_V1[:-2], "malformed group value"),
    ],
)
def test_group_value_that_cannot_be_read_is_refused(value: str, reason: str) -> None:
    with pytest.raises(RecordError, match=reason):
        decode_value(GroupKey("group1"), bytes.fromhex(value))


@pytest.mark.parametrize("version", [3, 4, 8, 100])
def test_key_of_a_later_version_is_unknown(version: int) -> None:
    with pytest.raises(UnknownKey, match=f"key of version {version}; known are"):
        decode_key(version.to_bytes(2, "big") + b"more")
