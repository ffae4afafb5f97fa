"""The rules of leader election, each by itself."""

import pytest

from broker.controller.leader_election import (
    first_state,
    needs_unclean_election,
    next_state,
    offline_leader,
    preferred_leader,
    reassigned_leader,
    shutdown_leader,
)
from zk.znodes import PartitionState

AR = (1, 2, 3)


def state(leader: int, *isr: int, epoch: int = 4) -> PartitionState:
    return PartitionState(leader, epoch, isr, controller_epoch=1)


def test_first_state_has_all_live_replicas_in_sync_in_their_order() -> None:
    assert first_state(AR, {3, 2}, 7) == PartitionState(2, 0, (2, 3), 7)


def test_nobody_alive_gives_no_first_state() -> None:
    assert first_state(AR, {9}, 7) is None


@pytest.mark.parametrize(
    ("current", "live", "leader", "isr"),
    [
        pytest.param(state(1, 1, 2, 3), {2, 3}, 2, (2, 3), id="leader died"),
        pytest.param(state(1, 1, 3), {2, 3}, 3, (3,), id="leader died, the next is out of sync"),
        pytest.param(state(1, 1, 2, 3), {1, 3}, 1, (1, 3), id="follower died"),
        pytest.param(state(1, 3, 1, 2), {2, 3}, 2, (3, 2), id="order of replicas, not of isr"),
        pytest.param(state(1, 1), {2, 3}, -1, (1,), id="last in sync died"),
        pytest.param(state(-1, 2), {2, 3}, 2, (2,), id="one in sync returned"),
    ],
)
def test_next_state(current: PartitionState, live: set[int], leader: int, isr: list[int]) -> None:
    assert next_state(current, AR, live, 7) == PartitionState(leader, 5, tuple(isr), 7)


@pytest.mark.parametrize(
    ("current", "live"),
    [
        pytest.param(state(1, 1, 2), {1, 2}, id="all in sync live"),
        pytest.param(state(1, 1), {1, 3}, id="follower out of sync returned"),
        pytest.param(state(-1, 1), {2, 3}, id="still nobody in sync"),
    ],
)
def test_state_that_stands(current: PartitionState, live: set[int]) -> None:
    assert next_state(current, AR, live, 7) is None


def test_unclean_leader_is_alone_in_sync() -> None:
    assert next_state(state(1, 1), AR, {2, 3}, 7, unclean=True) == PartitionState(2, 5, (2,), 7)


def test_unclean_election_takes_a_replica_in_sync_if_there_is_one() -> None:
    after = next_state(state(1, 1, 3), AR, {2, 3}, 7, unclean=True)
    assert after == PartitionState(3, 5, (3,), 7)


@pytest.mark.parametrize(
    ("current", "live", "expected"),
    [
        (state(1, 1), {2}, True),
        (state(-1, 1), {2}, True),
        (state(1, 1, 2), {2}, False),
        (state(1, 1), {1}, False),
        (state(1, 1), set[int](), False),
    ],
)
def test_only_unclean(current: PartitionState, live: set[int], expected: bool) -> None:
    assert needs_unclean_election(current, AR, live) is expected


def test_keys_of_later_versions_survive_an_election() -> None:
    current = PartitionState(1, 4, (1, 2), 1, extra={"leader_recovery_state": 0})
    after = next_state(current, AR, {2}, 7)
    assert after is not None
    assert after.extra == {"leader_recovery_state": 0}


# --- the vectors of Kafka's PartitionLeaderElectionAlgorithmsTest ----------------------------


@pytest.mark.parametrize(
    ("replicas", "isr", "live", "unclean", "leader"),
    [
        pytest.param((2, 4), [2, 4], {4}, True, 4, id="in sync and live"),
        pytest.param((2, 4), [2], {4}, False, None, id="last in sync offline, unclean off"),
        pytest.param((2, 4), [2], {4}, True, 4, id="last in sync offline, unclean on"),
        pytest.param((2, 4), [2, 4], set[int](), True, None, id="nobody lives"),
    ],
)
def test_leader_after_a_failure(
    replicas: tuple[int, ...], isr: list[int], live: set[int], unclean: bool, leader: int | None
) -> None:
    assert offline_leader(replicas, isr, live, unclean=unclean) == leader


@pytest.mark.parametrize(
    ("target", "isr", "live", "leader"),
    [
        pytest.param((2, 4), [2, 4], {4}, 4, id="in sync and live"),
        pytest.param((2, 4), [2], set[int](), None, id="in sync, not live"),
        pytest.param((2, 4), [], {2}, None, id="nobody in sync"),
    ],
)
def test_leader_of_a_reassignment(
    target: tuple[int, ...], isr: list[int], live: set[int], leader: int | None
) -> None:
    assert reassigned_leader(target, isr, live) == leader


@pytest.mark.parametrize(
    ("isr", "live", "leader"),
    [
        pytest.param([2, 4], {2, 4}, 2, id="in sync and live"),
        pytest.param([2, 4], set[int](), None, id="not live"),
        pytest.param([4], {2, 4}, None, id="not in sync"),
        pytest.param([], set[int](), None, id="neither"),
    ],
)
def test_preferred_leader(isr: list[int], live: set[int], leader: int | None) -> None:
    assert preferred_leader((2, 4), isr, live) == leader


@pytest.mark.parametrize(
    ("isr", "live", "shutting_down", "leader"),
    [
        pytest.param([2, 4], {2, 4}, {2}, 4, id="another in sync stays"),
        pytest.param([2], {2, 4}, {2}, None, id="the last in sync goes"),
        pytest.param([2, 4], {2, 4}, {2, 4}, None, id="all go"),
    ],
)
def test_leader_after_a_controlled_shutdown(
    isr: list[int], live: set[int], shutting_down: set[int], leader: int | None
) -> None:
    assert shutdown_leader((2, 4), isr, live, shutting_down) == leader
