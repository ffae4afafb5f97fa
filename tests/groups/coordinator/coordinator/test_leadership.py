"""Partitions whose leadership comes and goes."""

import pytest

from protocol.errors import ApiError, ErrorCode
from tests.groups.coordinator.bench import NOW_MS, OTHER, Bench, batch_of, error_of, record


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
