"""Groups after their partition is loaded, by the records in it."""

from collections.abc import Sequence

import pytest

from groups.coordinator.listing import GroupDetails, MemberDetails
from groups.runtime.memory_partition_log import MemoryPartitionLog
from offsets.config import OffsetsConfig
from offsets.records import (
    CommittedOffset,
    GroupKey,
    GroupMember,
    GroupMetadata,
    OffsetKey,
    Record,
)
from tests.groups.coordinator.bench import NOW_MS, OWN, Bench, batch_of

MEMBER = GroupMember(
    member_id="m",
    client_id="c",
    client_host="/h",
    rebalance_timeout_ms=60_000,
    session_timeout_ms=10_000,
    subscription=b"s",
    assignment=b"a",
)
SHOWN = MemberDetails("m", None, "c", "/h", b"s", b"a")
SMALL_READS = OffsetsConfig(load_buffer_bytes=150)
KEPT = {"t": {0: 23, 1: 455}, "u": {0: 8992}}


def offsets(kept: dict[str, dict[int, int]]) -> list[Record]:
    return [
        (OffsetKey(OWN, topic, partition), CommittedOffset(offset, -1, "", NOW_MS))
        for topic, partitions in kept.items()
        for partition, offset in partitions.items()
    ]


def group(*members: GroupMember) -> Record:
    metadata = GroupMetadata(
        protocol_type="consumer",
        generation_id=935,
        protocol="range" if members else None,
        leader="m" if members else None,
        members=members,
    )
    return GroupKey(OWN), metadata


GROUP_REMOVED: Record = (GroupKey(OWN), None)
EMPTY = GroupDetails(OWN, "Empty", "consumer")
ONLY_COMMITS = GroupDetails(OWN, "Empty")
STABLE = GroupDetails(OWN, "Stable", "consumer", "range", (SHOWN,))
DEAD = GroupDetails(OWN, "Dead")
SECOND_REMOVED: Record = (OffsetKey(OWN, "t", 1), None)


@pytest.mark.parametrize("config", [None, SMALL_READS], ids=["at once", "in many reads"])
@pytest.mark.parametrize(
    ("records", "described", "kept"),
    [
        ([], DEAD, {}),
        (offsets(KEPT), ONLY_COMMITS, KEPT),
        ([*offsets(KEPT), SECOND_REMOVED], ONLY_COMMITS, {"t": {0: 23}, "u": {0: 8992}}),
        ([SECOND_REMOVED, *offsets(KEPT)], ONLY_COMMITS, KEPT),
        ([*offsets(KEPT), group(MEMBER)], STABLE, KEPT),
        ([*offsets(KEPT), group(MEMBER), group()], EMPTY, KEPT),
        ([group(MEMBER), GROUP_REMOVED], DEAD, {}),
        ([group(MEMBER), GROUP_REMOVED, *offsets(KEPT)], ONLY_COMMITS, KEPT),
        ([*offsets(KEPT), *offsets({"t": {0: 24}})], ONLY_COMMITS, KEPT | {"t": {0: 24, 1: 455}}),
    ],
    ids=[
        "nothing",
        "offsets without a group",
        "an offset removed",
        "an offset written after its tombstone",
        "a group and its offsets",
        "an empty group and its offsets",
        "a group removed",
        "offsets written after the group was removed",
        "an offset committed twice",
    ],
)
def test_group_is_loaded_as_its_records_leave_it(
    records: Sequence[Record],
    described: GroupDetails,
    kept: dict[str, dict[int, int]],
    config: OffsetsConfig | None,
) -> None:
    bench = Bench(MemoryPartitionLog(), config)
    for entry in records:
        bench.log.append(0, batch_of(entry), NOW_MS)
    bench.lead(0).run()
    assert bench.coordinator.describe(OWN) == described
    offsets_of_group = bench.coordinator.shard(OWN).offsets.of_group(OWN)
    assert {t: {p: at.offset for p, at in of.items()} for t, of in offsets_of_group.items()} == kept
