"""Commits through the coordinator's shell: batches, failures and bounds."""

import itertools

import pytest

from groups.coordinator.events import CommitOffsets
from groups.runtime.journal import MAX_WAITING_BYTES
from groups.runtime.memory_partition_log import MemoryPartitionLog
from offsets.records import CommittedOffset, OffsetKey, Record, ValueVersions
from protocol.errors import ErrorCode
from protocol.records.batch import decode_records
from tests.groups.coordinator.bench import OWN, Bench, error_of, record


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
    bench = Bench(MemoryPartitionLog(), value_versions=ValueVersions(1))
    bench.lead(0).run().commit(7)
    ((_, data),) = bench.log.partition(0).batches
    (written,) = decode_records(data)
    assert written.value is not None
    assert written.value[:2] == b"\0\1"
    assert Bench(bench.log).lead(0).run().committed() == 7
