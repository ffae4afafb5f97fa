"""Offsets of deleted partitions, some a turn."""

import struct

import pytest

from groups.coordinator.coordinator import DELETION_SLICE
from groups.coordinator.events import CommitOffsets
from groups.runtime.runtime import SWEEP_PAUSE_S
from offsets.records import CommittedOffset, OffsetKey, Record
from offsets.topic import partition_for
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition
from tests.groups.coordinator.bench import (
    NOW_MS,
    NUM_PARTITIONS,
    OWN,
    Bench,
    batch_of,
    error_of,
    record,
)
from tests.groups.coordinator.coordinator.many import load_of


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
        assert coordinator.coordinator.shard(OWN).offsets.fetch(OWN, "u", 0) == CommittedOffset(5)


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
    while bench.coordinator.shard(OWN).offsets.count():
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
    assert bench.coordinator.shard(OWN).offsets.count() == 1

    bench.coordinator.on_deleted(deleted(0))
    assert bench.committed(again) is None


def test_offsets_that_could_not_be_dropped_are_dropped_later_some_a_turn(bench: Bench) -> None:
    commit_all(bench, MANY)
    bench.log.fail(0, ErrorCode.NOT_ENOUGH_REPLICAS)
    bench.coordinator.on_deleted(deleted(*range(100)))
    bench.run(60)
    assert bench.coordinator.shard(OWN).offsets.count() == len(MANY) * 100
    bench.log.fail(0, None)
    bench.loop.run_until_complete(bench.coordinator.expire_offsets())
    assert bench.coordinator.shard(OWN).offsets.count() == 0


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
