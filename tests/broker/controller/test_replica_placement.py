"""Replica placement against Kafka's own vectors, and the properties of every placement."""

from collections import Counter

import pytest

from broker.controller.replica_placement import alternate_racks, place_replicas
from protocol.errors import ApiError, ErrorCode

FIVE = dict.fromkeys(range(5))
THREE_RACKS = {broker: f"r{broker // 3}" for broker in range(9)}


def test_five_brokers_three_replicas_follow_kafkas_vector() -> None:
    assert place_replicas(FIVE, 10, 3, start_index=0, shift=0) == {
        0: (0, 1, 2),
        1: (1, 2, 3),
        2: (2, 3, 4),
        3: (3, 4, 0),
        4: (4, 0, 1),
        5: (0, 2, 3),
        6: (1, 3, 4),
        7: (2, 4, 0),
        8: (3, 0, 1),
        9: (4, 1, 2),
    }


def test_start_index_and_shift_turn_the_placement() -> None:
    assert place_replicas(FIVE, 2, 2, start_index=3, shift=1) == {0: (3, 0), 1: (4, 1)}


def test_partitions_added_later_go_on_where_the_first_ended() -> None:
    whole = place_replicas(FIVE, 4, 2, start_index=0, shift=0)
    added = place_replicas(FIVE, 2, 2, start_index=0, shift=0, start_partition=2)
    assert added == {2: whole[2], 3: whole[3]}


def test_one_broker_keeps_all() -> None:
    assert place_replicas({7: None}, 3, 1, start_index=0, shift=0) == {0: (7,), 1: (7,), 2: (7,)}


@pytest.mark.parametrize("racks", [FIVE, {**FIVE, 0: "b", 1: "a", 2: "a", 3: "c", 4: "b"}])
def test_places_come_again_when_leaders_have_met_all_distances(
    racks: dict[int, str | None],
) -> None:
    placement = place_replicas(racks, 60, 3, start_index=2, shift=1)
    # Five leaders, each at four distances.
    assert [placement[index] for index in range(20)] == [
        placement[index] for index in range(40, 60)
    ]
    assert len(set(placement.values())) > 5


def test_racks_alternate() -> None:
    assert alternate_racks(THREE_RACKS) == [0, 3, 6, 1, 4, 7, 2, 5, 8]


def test_uneven_racks_alternate_until_they_are_exhausted() -> None:
    assert alternate_racks({0: "a", 1: "a", 2: "a", 3: "b"}) == [0, 3, 1, 2]


@pytest.mark.parametrize("start", range(9))
def test_replicas_stand_on_different_racks_and_are_evenly_spread(start: int) -> None:
    placement = place_replicas(THREE_RACKS, 9, 3, start_index=start, shift=start)
    for replicas in placement.values():
        assert len({THREE_RACKS[replica] for replica in replicas}) == 3
    assert set(Counter(replicas[0] for replicas in placement.values()).values()) == {1}
    assert set(Counter(r for replicas in placement.values() for r in replicas).values()) == {3}


@pytest.mark.parametrize("shift", range(6))
def test_more_replicas_than_racks_use_every_rack_and_no_broker_twice(shift: int) -> None:
    racks = {0: "a", 1: "a", 2: "a", 3: "b", 4: "b"}
    for replicas in place_replicas(racks, 12, 4, start_index=0, shift=shift).values():
        assert len(set(replicas)) == 4
        assert {racks[replica] for replica in replicas} == {"a", "b"}


def test_racks_are_ignored_unless_all_brokers_have_one() -> None:
    partly = {0: "a", 1: None, 2: "b"}
    without = dict.fromkeys(range(3))
    assert place_replicas(partly, 3, 2, start_index=0, shift=0) == place_replicas(
        without, 3, 2, start_index=0, shift=0
    )


@pytest.mark.parametrize(
    ("partitions", "factor", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-1, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 6, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_impossible_numbers_are_refused(partitions: int, factor: int, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as refused:
        place_replicas(FIVE, partitions, factor, start_index=0, shift=0)
    assert refused.value.code is code


def test_no_live_broker_is_a_matter_of_the_replication_factor() -> None:
    with pytest.raises(ApiError) as refused:
        place_replicas({}, 1, 1, start_index=0, shift=0)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
