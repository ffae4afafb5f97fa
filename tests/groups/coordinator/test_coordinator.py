"""The coordinator's shell over an offsets log in memory, in virtual time."""

import asyncio
import itertools
import struct

import pytest

from groups.coordinator.coordinator import DELETION_SLICE
from groups.coordinator.events import CommitOffsets
from groups.coordinator.listing import EMPTY, GroupOverview
from groups.runtime.journal import MAX_WAITING_BYTES
from groups.runtime.loader import SLICE_RECORDS
from groups.runtime.memory_partition_log import MemoryPartitionLog
from groups.runtime.runtime import SWEEP_PAUSE_S
from offsets.config import OffsetsConfig
from offsets.records import CommittedOffset, OffsetKey, Record, encode_key
from offsets.topic import partition_for
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch import decode_records, encode_batch
from protocol.topic_partition import TopicPartition
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


@pytest.fixture
def replicated() -> Bench:
    """Several replicas: an append is replicated when the test says so."""
    return Bench(MemoryPartitionLog(replicas=3)).lead(0).run()


# ---- committing


def test_commit_that_waits_for_nobody_is_answered_at_once(bench: Bench) -> None:
    assert error_of(bench.commit(42)) is ErrorCode.NONE
    assert bench.committed() == 42


def test_commit_is_neither_answered_nor_seen_before_it_is_replicated(replicated: Bench) -> None:
    pending = replicated.commit(42)
    assert error_of(pending) is None
    assert replicated.committed() is None
    replicated.log.replicate(0)
    assert error_of(pending) is ErrorCode.NONE
    assert replicated.committed() == 42


def test_commits_that_come_while_the_log_takes_nothing_are_written_together_when_it_does(
    bench: Bench,
) -> None:
    bench.log.hold(0)
    pending = [bench.commit(offset) for offset in range(3)]
    assert [error_of(request) for request in pending] == [None] * 3
    bench.log.release(0)
    assert [error_of(request) for request in pending] == [ErrorCode.NONE] * 3
    assert (bench.batches(), bench.committed()) == ([3], 2)


def test_who_is_no_coordinator_any_more_refuses_what_the_log_has_not_taken(bench: Bench) -> None:
    bench.log.hold(0)
    pending = bench.commit(42)
    bench.coordinator.on_leadership([], [0])
    assert error_of(pending) is ErrorCode.NOT_COORDINATOR
    bench.log.release(0)
    assert bench.batches() == []


def test_commits_that_arrive_while_one_is_in_flight_share_the_next_batch(
    replicated: Bench,
) -> None:
    pending = [replicated.commit(offset) for offset in range(10)]
    assert replicated.batches() == [1]
    replicated.log.replicate(0)
    assert [error_of(p) for p in pending] == [ErrorCode.NONE] + [None] * 9
    assert replicated.batches() == [1, 9]
    replicated.log.replicate(0)
    assert [error_of(p) for p in pending] == [ErrorCode.NONE] * 10
    assert replicated.committed() == 9


def test_append_that_fails_is_told_and_nothing_is_seen_of_it(bench: Bench) -> None:
    bench.commit(1)
    bench.log.fail(0, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert error_of(bench.commit(2)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.committed() == 1
    bench.log.fail(0, None)
    assert error_of(bench.commit(3)) is ErrorCode.NONE
    assert bench.committed() == 3


def test_failed_append_is_logged_with_its_groups_and_partition(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.log.fail(0, ErrorCode.KAFKA_STORAGE_ERROR)
    bench.commit(2)
    assert [r.levelname for r in caplog.records] == ["ERROR"]
    assert "__consumer_offsets-0: writing for group groupId failed" in caplog.text
    assert "KAFKA_STORAGE_ERROR" in caplog.text


def test_shared_batch_that_fails_fails_for_all_who_share_it(replicated: Bench) -> None:
    first = replicated.commit(1)
    others = [replicated.commit(2), replicated.commit(3)]
    replicated.log.fail(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    replicated.log.replicate(0)
    assert error_of(first) is ErrorCode.NONE
    assert [error_of(p) for p in others] == [ErrorCode.NOT_COORDINATOR] * 2
    assert replicated.committed() == 1


def test_commit_larger_than_a_batch_may_be_is_refused_alone(replicated: Bench) -> None:
    replicated.log.batch_bytes = 400
    first = replicated.commit(1)
    event = CommitOffsets(
        replicated.coordinator.next_request_id(), OWN, -1, "", None, [record(2)] * 10
    )
    large, small = replicated.coordinator.submit(event), replicated.commit(3)
    replicated.log.replicate(0)
    replicated.log.replicate(0)
    assert error_of(first) is ErrorCode.NONE
    assert error_of(large) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert error_of(small) is ErrorCode.NONE
    assert replicated.committed() == 3


def test_partition_that_is_never_replicated_stops_accepting_at_its_bound(
    replicated: Bench,
) -> None:
    replicated.log.batch_bytes = 2**31
    large: Record = (OffsetKey(OWN, "t", 0), CommittedOffset(1, -1, "m" * 30_000))
    for count in itertools.count():
        event = CommitOffsets(
            replicated.coordinator.next_request_id(), OWN, -1, "", None, [large] * 500
        )
        pending = replicated.coordinator.submit(event)
        if error_of(pending) is not None:
            break
        assert count * 500 * 30_000 < 2 * MAX_WAITING_BYTES
    assert error_of(pending) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_commit_written_while_too_few_are_in_sync_is_told_so_and_kept(replicated: Bench) -> None:
    pending = replicated.commit(1)
    replicated.log.partition(0).is_enough_in_sync = False
    replicated.log.replicate(0)
    assert error_of(pending) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert replicated.committed() == 1


def test_failed_append_fails_all_that_waits_and_what_comes_later_is_served(
    replicated: Bench,
) -> None:
    replicated.log.batch_bytes = 200
    first = replicated.commit(1)
    waiting = [replicated.commit(offset) for offset in range(2, 6)]
    replicated.log.fail(0, ErrorCode.NOT_ENOUGH_REPLICAS)
    replicated.log.replicate(0)
    assert error_of(first) is ErrorCode.NONE
    assert [error_of(p) for p in waiting] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 4
    replicated.log.fail(0, None)
    later = replicated.commit(6)
    replicated.log.replicate(0)
    assert error_of(later) is ErrorCode.NONE
    assert replicated.committed() == 6


def test_commit_that_is_replicated_after_its_asker_gave_up_is_seen_and_the_next_one_over_it(
    replicated: Bench,
) -> None:
    replicated.commit(1)
    replicated.run(3600)
    retried = replicated.commit(2)
    replicated.log.replicate(0)
    assert replicated.committed() == 1
    replicated.log.replicate(0)
    assert error_of(retried) is ErrorCode.NONE
    assert replicated.committed() == 2


def test_offsets_are_written_as_brokers_of_an_older_protocol_read_them() -> None:
    bench = Bench(MemoryPartitionLog(), value_version=1)
    bench.lead(0).run().commit(7)
    ((_, data),) = bench.log.partition(0).batches
    (written,) = decode_records(data)
    assert written.value is not None
    assert written.value[:2] == b"\0\1"
    assert Bench(bench.log).lead(0).run().committed() == 7


# ---- deletion


def deleted(*partitions: int) -> list[TopicPartition]:
    return [TopicPartition("t", partition) for partition in partitions]


def test_offsets_of_a_deleted_partition_are_dropped_by_the_log_and_others_stay(
    bench: Bench,
) -> None:
    bench.commit(1)
    other: Record = (OffsetKey(OWN, "u", 0), CommittedOffset(5))
    bench.coordinator.submit(
        CommitOffsets(bench.coordinator.next_request_id(), OWN, -1, "", None, [other])
    )
    bench.coordinator.on_deleted(deleted(0, 1))
    for coordinator in (bench, Bench(bench.log).lead(0).run()):
        assert coordinator.committed() is None
        assert coordinator.coordinator.offsets(OWN).fetch(OWN, "u", 0) == CommittedOffset(5)


def test_deletion_writes_nothing_where_nobody_committed(bench: Bench) -> None:
    bench.commit(1)
    bench.coordinator.on_deleted([*deleted(1), TopicPartition("u", 0)])
    assert bench.batches() == [1]


def test_commits_under_way_for_a_deleted_partition_are_dropped_too_and_later_ones_are_not(
    replicated: Bench,
) -> None:
    under_way = [replicated.commit(1), replicated.commit(2)]
    replicated.coordinator.on_deleted(deleted(0))
    later = replicated.commit(0)
    seen = []
    for _ in range(3):
        replicated.log.replicate(0)
        seen.append(replicated.committed())
    assert [error_of(p) for p in (*under_way, later)] == [ErrorCode.NONE] * 3
    assert seen[-1] == 0
    assert Bench(replicated.log).lead(0).run().committed() == 0


def test_partition_deleted_while_its_offsets_are_loaded_is_dropped_when_they_are() -> None:
    bench = load_of(batch_of(record(42))).lead(0)
    bench.coordinator.on_deleted(deleted(0))
    bench.run()
    assert bench.refusal() is ErrorCode.NONE
    assert bench.committed() is None


def test_a_topic_with_very_many_offsets_is_dropped_some_a_turn(bench: Bench) -> None:
    commit_all(bench, MANY)
    written = len(bench.batches())
    bench.coordinator.on_deleted(deleted(*range(100)))

    turns = [sum(bench.batches()[written:])]
    while bench.coordinator.offsets(OWN).count():
        before = sum(bench.batches())
        bench.run(SWEEP_PAUSE_S / 2)
        turns.append(sum(bench.batches()) - before)
    assert sum(turns) == len(MANY) * 100
    assert max(turns) <= DELETION_SLICE


def test_what_is_committed_anew_while_an_old_topic_is_dropped_stays(bench: Bench) -> None:
    commit_all(bench, MANY)
    bench.coordinator.on_deleted(deleted(*range(100)))
    again = MANY[-1]
    assert bench.committed(again) == 1
    bench.commit(7, again)
    bench.run(10)
    assert bench.committed(again) == 7
    assert bench.coordinator.offsets(OWN).count() == 1

    bench.coordinator.on_deleted(deleted(0))
    assert bench.committed(again) is None


def test_offsets_that_could_not_be_dropped_are_dropped_later_some_a_turn(bench: Bench) -> None:
    commit_all(bench, MANY)
    bench.log.fail(0, ErrorCode.NOT_ENOUGH_REPLICAS)
    bench.coordinator.on_deleted(deleted(*range(100)))
    bench.run(60)
    assert bench.coordinator.offsets(OWN).count() == len(MANY) * 100
    bench.log.fail(0, None)
    bench.loop.run_until_complete(bench.coordinator.expire_offsets())
    assert bench.coordinator.offsets(OWN).count() == 0


MANY = [name for n in range(200) if partition_for(name := f"g{n}", NUM_PARTITIONS) == 0][:50]
"""Groups of partition 0."""


def commit_all(bench: Bench, groups: list[str]) -> None:
    """Commit offset 1 of a hundred partitions for each group."""
    for group in groups:
        records: list[Record] = [
            (OffsetKey(group, "t", n), CommittedOffset(1, -1, "", NOW_MS)) for n in range(100)
        ]
        request_id = bench.coordinator.next_request_id()
        bench.coordinator.submit(CommitOffsets(request_id, group, -1, "", None, records))


def test_a_commit_that_cannot_be_encoded_leaves_nothing_behind(bench: Bench) -> None:
    beyond: list[Record] = [(OffsetKey(OWN, "t", 0), CommittedOffset(1 << 63))]
    event = CommitOffsets(bench.coordinator.next_request_id(), OWN, -1, "", None, beyond)
    with pytest.raises(struct.error):
        bench.coordinator.submit(event)
    assert bench.coordinator.runtime._pending == {}
    assert error_of(bench.commit(5)) is ErrorCode.NONE


def test_deletion_that_cannot_be_written_leaves_the_offsets(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.commit(1)
    bench.log.fail(0, ErrorCode.NOT_ENOUGH_REPLICAS)
    bench.coordinator.on_deleted(deleted(0))
    assert bench.committed() == 1
    assert "__consumer_offsets-0" in caplog.text
    assert "NOT_ENOUGH_REPLICAS" in caplog.text


# ---- leadership


def test_groups_have_no_coordinator_here_while_the_number_of_partitions_is_not_known(
    bench: Bench,
) -> None:
    bench.coordinator.num_partitions = lambda: 0
    assert bench.refusal() is ErrorCode.NOT_COORDINATOR


def test_partition_led_again_after_others_is_loaded_again_though_an_append_was_in_flight(
    replicated: Bench,
) -> None:
    """Records that others wrote in between count; commits in flight did not have to survive."""
    lost = replicated.commit(1)
    log = replicated.log.partition(0)
    log.batches.clear()  # who led in between had it not
    log.end_offset = 0
    replicated.log.append(0, batch_of(record(5)), NOW_MS)
    replicated.coordinator.on_leadership({0}, {0})
    assert error_of(lost) is ErrorCode.NOT_COORDINATOR
    assert replicated.refusal() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    replicated.run().log.replicate(0)
    assert replicated.committed() == 5
    assert error_of(replicated.commit(6)) is None


def test_group_of_a_partition_led_elsewhere_has_another_coordinator(bench: Bench) -> None:
    assert bench.refusal(OTHER) is ErrorCode.NOT_COORDINATOR
    with pytest.raises(ApiError, match="NOT_COORDINATOR"):
        bench.commit(1, OTHER)


def test_losing_the_partition_ends_every_commit_under_way(replicated: Bench) -> None:
    in_flight, waiting = replicated.commit(1), replicated.commit(2)
    replicated.coordinator.on_leadership(set(), {0})
    assert error_of(in_flight) is ErrorCode.NOT_COORDINATOR
    assert error_of(waiting) is ErrorCode.NOT_COORDINATOR
    assert replicated.refusal() is ErrorCode.NOT_COORDINATOR


def test_partition_that_comes_back_is_loaded_with_what_was_in_flight(replicated: Bench) -> None:
    replicated.commit(1)
    replicated.coordinator.on_leadership(set(), {0})
    replicated.log.replicate(0)
    replicated.lead(0).run()
    assert replicated.committed() == 1
    assert error_of(replicated.commit(2)) is None
    replicated.log.replicate(0)
    assert replicated.committed() == 2


def test_leading_on_in_a_new_epoch_keeps_state_and_commits_in_flight(replicated: Bench) -> None:
    pending = replicated.commit(1)
    replicated.lead(0)
    assert replicated.refusal() is ErrorCode.NONE
    replicated.log.replicate(0)
    assert error_of(pending) is ErrorCode.NONE


# ---- loading


def load_of(*batches: bytes, config: OffsetsConfig | None = None) -> Bench:
    """A coordinator that finds `batches` in partition 0, before it leads it."""
    bench = Bench(MemoryPartitionLog(), config)
    for data in batches:
        bench.log.append(0, data, NOW_MS)
    return bench


def test_groups_are_refused_until_their_partition_is_loaded() -> None:
    bench = load_of(batch_of(record(42))).lead(0)
    assert bench.refusal() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert bench.coordinator.overviews() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
    bench.run()
    assert bench.refusal() is ErrorCode.NONE
    assert bench.committed() == 42
    assert bench.coordinator.overviews() == (ErrorCode.NONE, [GroupOverview(OWN, "", EMPTY)])


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
    assert bench.coordinator.overviews() == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [])


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
