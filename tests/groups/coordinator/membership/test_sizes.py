"""group.max.size (KIP-389), and metadata that would not fit into a record."""

import pytest

from groups.coordinator.membership.join import MAX_HANDED_OUT, MAX_PROTOCOLS
from protocol.errors import ErrorCode
from tests.groups.coordinator.membership.desk import DELAY_MS, Desk

M = 4
FULL = ErrorCode.GROUP_MAX_SIZE_REACHED
LONG = {"rebalance_ms": 10_000}


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_group_takes_no_more_members_than_its_size(desk: Desk) -> None:
    requests = [desk.join(version=3, **LONG) for _ in range(M + 1)]
    desk.advance(5 * DELAY_MS)
    assert [request.error for request in requests] == [ErrorCode.NONE] * M + [FULL]
    assert requests[-1].joined.member_id == ""


def test_more_ids_may_be_handed_out_and_the_last_of_them_are_refused(desk: Desk) -> None:
    ids = [desk.join(**LONG).joined.member_id for _ in range(M + 1)]
    requests = [desk.join(member_id, **LONG) for member_id in ids]
    desk.advance(5 * DELAY_MS)
    assert [request.error for request in requests] == [ErrorCode.NONE] * M + [FULL]
    assert not desk.group.handed_out


def test_ids_that_wait_for_their_clients_have_a_bound_and_expire(desk: Desk) -> None:
    desk.join()
    for number in range(MAX_HANDED_OUT - 2):
        desk.group.hand_out(f"waits-{number}")
    assert desk.join(session_ms=1000).error is ErrorCode.MEMBER_ID_REQUIRED

    # A client tries again after this error; a static member needs no id.
    assert desk.join().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert desk.join(instance="i").is_parked
    desk.advance(1000)
    assert desk.join().error is ErrorCode.MEMBER_ID_REQUIRED


def test_static_members_count_too(desk: Desk) -> None:
    requests = [desk.join(instance=f"i{number}", **LONG) for number in range(M + 1)]
    desk.advance(5 * DELAY_MS)
    assert [request.error for request in requests] == [ErrorCode.NONE] * M + [FULL]


def test_full_group_that_completes_lets_its_members_join_again(desk: Desk) -> None:
    members = [desk.join(version=3, **LONG) for _ in range(M)]
    desk.advance(5 * DELAY_MS)
    again = [desk.join(member.joined.member_id, **LONG) for member in members]
    assert [request.joined for request in again] == [member.joined for member in members]
    assert desk.join(version=3, **LONG).error is FULL


def test_full_group_that_rebalances_lets_its_members_join_again(desk: Desk) -> None:
    members = desk.form(*([LONG] * M))
    again = [desk.join(member.member_id, **LONG) for member in members]
    assert [request.joined.generation_id for request in again] == [2] * M
    assert desk.join(version=3, **LONG).error is FULL


def test_last_to_join_again_lose_their_places_where_there_are_too_many(desk: Desk) -> None:
    large = Desk()
    large.config = large.shard.config = large.config.__class__(
        max_size=M + 2, min_session_timeout_ms=10, initial_rebalance_delay_ms=DELAY_MS
    )
    members = large.form(*([LONG] * (M + 2)))
    large.config = large.shard.config = desk.config
    large.move()
    assert large.state == "PreparingRebalance"

    again = [large.join(member.member_id, **LONG) for member in members]
    assert [request.error for request in again] == [ErrorCode.NONE] * M + [FULL] * 2
    assert list(large.group.members) == [member.member_id for member in members[:M]]


# ---- metadata


def test_member_whose_metadata_are_too_large_for_the_record_is_refused(desk: Desk) -> None:
    protocols = (("range", bytes(600)), ("sticky", bytes(610)))
    options = {"version": 3, "record_max_bytes": 1000, "protocols": protocols}
    requests = [desk.join(**options) for _ in range(2)]
    desk.advance(2 * DELAY_MS)
    assert [request.error for request in requests] == [ErrorCode.NONE, FULL]


@pytest.mark.fault("groups-6")
def test_members_are_admitted_as_long_as_their_record_may_fit(desk: Desk) -> None:
    """It fits with one of their assignors, and fills more than half of the largest record."""
    protocols = (("range", bytes(900 // M)), ("sticky", bytes(1800 // M)))
    options = {"version": 3, "record_max_bytes": 1000, "protocols": protocols}
    requests = [desk.join(**options) for _ in range(M)]
    desk.advance(2 * DELAY_MS)
    assert {request.error for request in requests} == {ErrorCode.NONE}


def test_metadata_that_are_kept_have_a_bound_whatever_fits(desk: Desk) -> None:
    protocols = (("range", b""), ("sticky", bytes(2500)))
    options = {"version": 3, "record_max_bytes": 1000, "protocols": protocols}
    requests = [desk.join(**options) for _ in range(2)]
    desk.advance(2 * DELAY_MS)
    assert [request.error for request in requests] == [ErrorCode.NONE, FULL]


def test_protocols_of_a_member_have_a_bound(desk: Desk) -> None:
    """All of them are kept, and only the largest counts for the record."""
    protocols = tuple((f"p{number}", b"") for number in range(MAX_PROTOCOLS + 1))
    assert desk.join(version=3, protocols=protocols).error is FULL
    assert desk.join(version=3, protocols=protocols[1:]).is_parked


def test_room_for_metadata_is_there_again_when_a_member_has_gone(desk: Desk) -> None:
    options = {"version": 3, "record_max_bytes": 1000, "protocols": (("range", bytes(600)),)}
    first = desk.join(**options)
    desk.advance(DELAY_MS)
    assert desk.join(**options).error is FULL
    desk.advance(10_000)
    assert first.joined.member_id not in desk.shard.live
    assert desk.join(**options).is_parked


def test_member_that_joins_again_does_not_count_twice(desk: Desk) -> None:
    options = {"record_max_bytes": 1000, "protocols": (("range", bytes(900)),)}
    (member,) = desk.form(options)
    again = desk.join(member.member_id, **options)
    assert again.error is ErrorCode.NONE


def test_member_that_grows_too_large_loses_its_place_and_the_others_rebalance(desk: Desk) -> None:
    leader, follower = desk.form({}, {})
    large = (("range", bytes(1001)),)
    assert desk.join(follower.member_id, protocols=large, record_max_bytes=1000).error is FULL
    assert desk.beat(leader) is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(desk.group.members) == [leader.member_id]


def test_static_member_that_restarts_does_not_count_twice(desk: Desk) -> None:
    options = {"record_max_bytes": 1000, "protocols": (("range", bytes(900)),)}
    desk.form({"instance": "i", **options})
    assert desk.join(instance="i", **options).error is ErrorCode.NONE
    assert desk.join(instance="other", **options).error is FULL
