"""Partitions that are loaded: refusals, slices, failures and counts."""

import asyncio
from collections import Counter
from itertools import count

import pytest

from groups.coordinator.coordinator import LOADING_BYTES, LOADING_SLICE, _loaded
from groups.coordinator.listing import GroupOverview
from groups.runtime.loader import SLICE_RECORDS
from groups.runtime.memory_partition_log import MemoryPartitionLog
from offsets.config import OffsetsConfig
from offsets.records import GroupKey, GroupMember, GroupMetadata, Record, encode_key
from offsets.topic import partition_for
from protocol.errors import ErrorCode
from protocol.records.batch import encode_batch
from tests.groups.coordinator.bench import (
    NOW_MS,
    NUM_PARTITIONS,
    OTHER,
    OWN,
    Bench,
    batch_of,
    error_of,
    record,
)
from tests.groups.coordinator.coordinator.many import load_of


def listed(bench: Bench) -> tuple[ErrorCode, list[GroupOverview]]:
    error, overviews = bench.coordinator.overviews()
    return error, list(overviews)


def test_groups_are_refused_until_their_partition_is_loaded() -> None:
    bench = load_of(batch_of(record(42))).lead(0)
    assert bench.refusal() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert listed(bench) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
    bench.run()
    assert bench.refusal() is ErrorCode.NONE
    assert bench.committed() == 42
    assert listed(bench) == (ErrorCode.NONE, [GroupOverview(OWN, "", "Empty")])


def test_restarted_coordinator_has_what_the_old_one_acknowledged(bench: Bench) -> None:
    for offset in range(5):
        bench.commit(offset)
    again = Bench(bench.log).lead(0).run()
    assert again.committed() == bench.committed() == 4


def test_partition_larger_than_the_load_buffer_is_read_in_pieces() -> None:
    batches = [batch_of(record(offset), record(offset, "g2")) for offset in range(20)]
    bench = load_of(*batches, config=OffsetsConfig(load_buffer_bytes=300)).lead(0).run()
    assert bench.committed() == 19


def test_what_is_loaded_is_not_told_before_it_is_replicated() -> None:
    """Shown earlier, a position could be lost with this leader."""
    bench = Bench(MemoryPartitionLog(replicas=3))
    bench.log.append(0, batch_of(record(1)), NOW_MS)
    bench.log.replicate(0)
    bench.log.append(0, batch_of(record(2)), NOW_MS)
    bench.lead(0).run(60)
    assert bench.refusal() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    bench.log.replicate(0)
    assert bench.committed() == 2


def test_batch_larger_than_the_load_buffer_is_read_whole() -> None:
    bench = load_of(batch_of(record(1)), config=OffsetsConfig(load_buffer_bytes=1)).lead(0).run()
    assert bench.committed() == 1


def test_loading_gives_way_to_others_after_every_slice() -> None:
    slices = 5
    bench = load_of(batch_of(*[record(1)] * (slices * SLICE_RECORDS)))
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while bench.refusal() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            turns += 1
            await asyncio.sleep(0)

    bench.lead(0)
    bench.loop.run_until_complete(count_turns())
    assert turns >= slices


def test_members_have_sessions_whatever_becomes_of_the_appends_of_others() -> None:
    """One that failed would leave the groups behind it with members that are long dead."""
    groups = [
        name
        for n in range(6 * LOADING_SLICE)
        if partition_for(name := f"g{n}", NUM_PARTITIONS) == 0
    ]
    bench = load_of(batch_of(*map(group_of_one, groups, count(10_000, 20)))).lead(0)

    async def refuse_a_commit() -> None:
        while bench.refusal():
            await asyncio.sleep(0)
        bench.log.fail(0, ErrorCode.NOT_ENOUGH_REPLICAS)
        await asyncio.sleep(0)
        assert error_of(bench.commit(1)) is ErrorCode.COORDINATOR_NOT_AVAILABLE

    bench.loop.run_until_complete(refuse_a_commit())
    bench.run(1)
    bench.log.fail(0, None)
    bench.run(60)
    states = Counter(group.state for group in bench.coordinator.overviews()[1])
    assert len(groups) > 2 * LOADING_SLICE
    assert states == {"Empty": len(groups)}


def group_of_one(group: str, session_ms: int) -> Record:
    """A group with a member."""
    member = GroupMember(
        member_id="m",
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=60_000,
        session_timeout_ms=session_ms,
        subscription=b"",
        assignment=b"",
    )
    metadata = GroupMetadata(
        protocol_type="consumer",
        generation_id=1,
        protocol="range",
        leader="m",
        state_timestamp_ms=NOW_MS,
        members=(member,),
    )
    return GroupKey(group), metadata


def test_load_that_fails_is_not_served_and_is_tried_again_with_back_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = load_of(batch_of(record(42)))
    bench.log.fail(0, ErrorCode.KAFKA_STORAGE_ERROR)
    bench.lead(0).run()
    assert bench.refusal() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    bench.run(6.9)  # tried after 1 s, 3 s, and again at 7 s
    tries = [r.message for r in caplog.records if "is not served" in r.message]
    assert [t.split(" ms:")[0].split()[-1] for t in tries] == ["1000", "2000", "4000"]
    assert "__consumer_offsets-0" in tries[0]
    bench.log.fail(0, None)
    bench.run(0.2)
    assert bench.committed() == 42


def test_half_of_a_partition_with_a_corrupt_batch_is_never_served() -> None:
    bad = bytearray(batch_of(record(2)))
    bad[-1] ^= 1
    bench = load_of(batch_of(record(1)), bytes(bad)).lead(0).run()
    assert bench.refusal() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert listed(bench) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [])


def test_value_of_an_unknown_version_is_named_and_the_partition_not_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = [(NOW_MS, encode_key(record(0)[0]), b"\x00\x63", ())]
    bench = load_of(batch_of(record(1)), encode_batch(rows)).lead(0).run()
    assert bench.refusal() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "__consumer_offsets-0 at offset 1: offset value of unknown version 99" in caplog.text


def test_partition_that_cannot_be_loaded_leaves_the_others_served() -> None:
    bench = load_of(batch_of(record(1)))
    bench.log.append(1, batch_of(record(7, OTHER)), NOW_MS)
    bench.log.fail(0, ErrorCode.KAFKA_STORAGE_ERROR)
    bench.lead(0, 1).run()
    assert bench.refusal() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.committed(OTHER) == 7


def test_partitions_are_loaded_one_after_the_other() -> None:
    bench = load_of(batch_of(*[record(1)] * (3 * SLICE_RECORDS)))
    bench.log.append(1, batch_of(*[record(1, OTHER)] * (3 * SLICE_RECORDS)), NOW_MS)
    bench.lead(0, 1)
    while bench.refusal():
        bench.loop.run_until_complete(asyncio.sleep(0))
    assert bench.refusal(OTHER) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    bench.run()
    assert bench.committed(OTHER) == 1


def test_load_of_a_partition_lost_meanwhile_ends_without_effect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    bench = load_of(batch_of(*[record(1)] * (3 * SLICE_RECORDS)))
    bench.lead(0)
    bench.loop.run_until_complete(asyncio.sleep(0))
    bench.coordinator.on_leadership(set(), {0})
    bench.run()
    assert bench.refusal() is ErrorCode.NOT_COORDINATOR
    assert "loaded 1 offsets" not in caplog.text


def test_older_load_that_ends_late_does_not_hide_the_newer_one() -> None:
    bench = load_of(batch_of(*[record(1)] * (3 * SLICE_RECORDS)))
    bench.lead(0)
    bench.loop.run_until_complete(asyncio.sleep(0))
    bench.coordinator.on_leadership(set(), {0})
    bench.log.append(0, batch_of(record(2)), NOW_MS)
    bench.lead(0)
    assert bench.refusal() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    bench.run()
    assert bench.committed() == 2


def test_lost_partition_that_could_not_be_loaded_is_not_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = load_of(batch_of(record(1)))
    bench.log.fail(0, ErrorCode.KAFKA_STORAGE_ERROR)
    bench.lead(0).run()
    bench.coordinator.on_leadership(set(), {0})
    bench.run(3600)
    assert len([r for r in caplog.records if "is not served" in r.message]) == 1


def test_load_is_logged_with_its_counts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    load_of(batch_of(record(1), record(2), record(3, "g2"))).lead(0).run()
    expected = "__consumer_offsets-0: loaded 2 offsets of 2 groups from 3 records in 0 ms"
    assert expected in caplog.text


def test_groups_of_many_members_are_taken_up_in_turns_of_their_own() -> None:
    half = LOADING_BYTES // 2
    sizes = {"a": 100, "huge": 10 * LOADING_BYTES, "b": half, "c": half, "d": 1}
    parts = [list(event.group_ids) for event in _loaded(sizes)]
    assert parts == [["a"], ["huge"], ["b", "c"], ["d"]]


def test_groups_of_few_members_are_taken_up_some_a_turn() -> None:
    sizes = {f"g{number}": 200 for number in range(LOADING_SLICE + 1)}
    assert [len(event.group_ids) for event in _loaded(sizes)] == [LOADING_SLICE, 1]
