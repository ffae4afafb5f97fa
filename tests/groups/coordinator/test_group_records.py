"""The records of groups, as they are written here and read back."""

from __future__ import annotations

import pytest

from groups.coordinator.group_records import GroupRecords
from groups.coordinator.shard import GroupShard
from offsets.records import GroupKey, GroupMember, GroupMetadata

KEY = GroupKey("g")


def metadata(*member_ids: str) -> GroupMetadata:
    members = tuple(
        GroupMember(
            member_id=member_id,
            client_id="c",
            client_host="/h",
            rebalance_timeout_ms=60_000,
            session_timeout_ms=10_000,
            subscription=b"s",
            assignment=b"a",
        )
        for member_id in member_ids
    )
    return GroupMetadata(
        protocol_type="consumer",
        generation_id=1,
        protocol="range",
        leader=member_ids[0] if member_ids else None,
        state_timestamp_ms=1,
        members=members,
    )


@pytest.mark.parametrize("before", [(), ("x",)])
@pytest.mark.parametrize("is_copied", [False, True], ids=["as it was encoded", "from the log"])
def test_record_that_was_encoded_here_is_kept_as_one_that_was_read(
    before: tuple[str, ...], is_copied: bool
) -> None:
    shard = GroupShard()
    shard.replay(shard.encode([(KEY, metadata(*before))]))
    encoded = shard.encode([(KEY, metadata("m", "n"))])
    # Other groups are written meanwhile, and this one is written again.
    others = shard.encode([(GroupKey("h"), metadata("o")), (KEY, None)])
    [(key, value)] = shard.encode([(KEY, metadata("m", "n"))]) if not is_copied else encoded
    assert value is not None

    shard.replay([(key, bytes(bytearray(value)) if is_copied else value)])
    assert shard.groups["g"] == metadata("m", "n")
    assert list(shard.groups) == ["g"]
    shard.replay(others)
    assert list(shard.groups) == ["h"]


def test_record_of_an_empty_group_that_was_encoded_here_is_kept_decoded() -> None:
    shard = GroupShard()
    shard.replay(shard.encode([(KEY, metadata())]))
    assert shard.groups["g"] == metadata()
    assert not shard.groups.has_members("g")


def test_value_that_was_encoded_here_and_replayed_once_is_read_when_it_comes_again() -> None:
    records = GroupRecords()
    value = GroupShard().encode([(KEY, metadata("m"))])[0][1]
    assert value is not None
    records.note_encoded(metadata("m"), value)
    records.replay(KEY, value)
    records.shed("g")
    records.replay(KEY, value)
    assert records["g"] == metadata("m")
    assert records.sizes_with_members() == {"g": len(value)}
