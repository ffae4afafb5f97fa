"""Static members (KIP-345): restarts without a rebalance, and clients that are fenced."""

import pytest

from groups.coordinator.membership.events import Leaver
from groups.coordinator.membership.responses import Joined, Synced
from offsets.records import GroupKey
from protocol.errors import ErrorCode
from tests.groups.coordinator.membership.desk import (
    DELAY_MS,
    GROUP_ID,
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    Desk,
    subscribed_to,
)

LEADER, FOLLOWER = {"instance": "l"}, {"instance": "f"}
CHANGED = subscribed_to("changed")
LONG = {"session_ms": 10_000}


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def two(desk: Desk) -> list[Joined]:
    """A stable group of two static members, in generation 1."""
    return desk.form(LEADER, FOLLOWER, assignments=[b"for the leader", b"for the follower"])


# ---- restarts in a stable group


def test_follower_that_restarts_gets_its_assignment_without_a_rebalance(
    desk: Desk, two: list[Joined]
) -> None:
    request = desk.join(instance="f")
    joined = request.joined
    assert (joined.error, joined.generation_id, joined.members) == (ErrorCode.NONE, 1, ())
    assert joined.leader_id == two[0].leader_id
    assert joined.member_id not in {member.member_id for member in two}
    assert desk.sync(joined, instance="f").synced.assignment == b"for the follower"
    assert desk.state == "Stable"
    assert desk.beat(two[0]) is ErrorCode.NONE


def test_new_id_is_known_to_the_next_coordinator(desk: Desk, two: list[Joined]) -> None:
    joined = desk.join(instance="f").joined
    record = desk.record
    assert [member.member_id for member in record.members] == [two[0].member_id, joined.member_id]
    assert [member.assignment for member in record.members] == [
        b"for the leader",
        b"for the follower",
    ]


def test_response_waits_until_the_new_id_is_written(desk: Desk, two: list[Joined]) -> None:
    desk.holds = True
    request = desk.join(instance="f")
    assert request.is_parked
    desk.replicate()
    assert request.error is ErrorCode.NONE


FLEET = [{"instance": f"i{number}"} for number in range(3)]


def test_members_that_restart_together_are_written_in_two_records(desk: Desk) -> None:
    """In the first the first of them; in the next all that came while it was written."""
    desk.form(*FLEET)
    written = len(desk.log)
    desk.holds = True
    requests = [desk.join(**member) for member in FLEET]
    assert len(desk.in_flight) == 1

    desk.replicate()
    assert len(desk.log) == written + 2
    joined = [request.joined for request in requests]
    assert {one.error for one in joined} == {ErrorCode.NONE}
    ids = [member.member_id for member in desk.record.members]
    assert ids == [one.member_id for one in joined]
    assert desk.state == "Stable"


def test_of_members_that_restart_together_those_whose_record_fails_are_as_before(
    desk: Desk,
) -> None:
    desk.form(*FLEET)
    before = desk.record
    desk.holds = True
    requests = [desk.join(**member) for member in FLEET]
    desk.replicate(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert {request.error for request in requests} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert list(desk.group.members) == [member.member_id for member in before.members]

    # Each tries again.
    desk.holds = False
    assert {desk.join(**member).error for member in FLEET} == {ErrorCode.NONE}


def test_rebalance_that_begins_meanwhile_answers_those_that_wait_for_the_next_record(
    desk: Desk,
) -> None:
    desk.form(*FLEET)
    desk.holds = True
    requests = [desk.join(**member) for member in FLEET[1:]]
    desk.leave(Leaver(desk.group.leader_id or ""))
    written = len(desk.log)
    desk.replicate()
    assert len(desk.log) == written + 1
    assert [request.joined.generation_id for request in requests] == [2, 2]
    assert desk.state == "CompletingRebalance"


def test_member_that_restarts_twice_meanwhile_is_written_by_its_last_id(desk: Desk) -> None:
    desk.form(*FLEET)
    desk.holds = True
    first = desk.join(**FLEET[1])
    second, third = desk.join(**FLEET[2]), desk.join(**FLEET[2])
    assert second.error is ErrorCode.FENCED_INSTANCE_ID
    desk.replicate()
    ids = [member.member_id for member in desk.record.members]
    assert ids[1:3] == [first.joined.member_id, third.joined.member_id]


def test_leader_that_restarts_sees_another_leader_and_does_not_assign(
    desk: Desk, two: list[Joined]
) -> None:
    joined = desk.join(instance="l", version=8).joined
    assert (joined.leader_id, joined.members) == (two[0].member_id, ())
    assert joined.member_id != two[0].member_id
    assert desk.group.leader_id == joined.member_id
    assert desk.sync(joined, instance="l").synced.assignment == b"for the leader"


def test_leader_that_restarts_is_asked_to_skip_the_assignment(
    desk: Desk, two: list[Joined]
) -> None:
    joined = desk.join(instance="l", version=9).joined
    assert joined.leader_id == joined.member_id
    assert (len(joined.members), joined.skip_assignment) == (2, True)
    assert desk.sync(joined, instance="l").synced.assignment == b"for the leader"


def test_restart_that_cannot_be_written_leaves_the_former_member_in_place(
    desk: Desk, two: list[Joined]
) -> None:
    desk.holds = True
    request = desk.join(instance="f", protocols=CHANGED, session_ms=111, rebalance_ms=222)
    desk.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert request.joined == Joined(ErrorCode.COORDINATOR_NOT_AVAILABLE, generation_id=1)
    assert desk.beat(two[1], instance="f") is ErrorCode.NONE
    member = desk.group.members[two[1].member_id]
    assert (member.protocols, member.session_timeout_ms, member.rebalance_timeout_ms) == (
        RANGE,
        SESSION_MS,
        REBALANCE_MS,
    )


def test_timeouts_of_a_client_that_restarts_count(desk: Desk, two: list[Joined]) -> None:
    joined = desk.join(instance="f", session_ms=300, rebalance_ms=700).joined
    member = desk.group.members[joined.member_id]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (300, 700)


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS])
def test_member_whose_restart_takes_longer_than_its_session_has_one_behind_it(
    desk: Desk, error: ErrorCode
) -> None:
    leader, _ = desk.form({**LEADER, "session_ms": 10 * SESSION_MS}, FOLLOWER)
    desk.holds = True
    request = desk.join(instance="f")
    desk.advance(2 * SESSION_MS)
    assert request.is_parked
    desk.replicate(error)
    desk.holds = False
    desk.advance(SESSION_MS - 1)
    assert desk.beat(leader, instance="l") is ErrorCode.NONE
    desk.advance(1)
    assert desk.beat(leader, instance="l") is ErrorCode.REBALANCE_IN_PROGRESS


def test_every_restart_gives_another_id(desk: Desk, two: list[Joined]) -> None:
    ids = {desk.join(instance="f").joined.member_id for _ in range(5)}
    assert len(ids) == 5


def test_restart_that_changes_the_assignor_makes_the_group_rebalance(desk: Desk) -> None:
    both = (("range", b""), ("sticky", b""))
    desk.form({**LEADER, "protocols": both}, {**FOLLOWER, "protocols": both})
    assert desk.group.protocol_name == "range"
    request = desk.join(instance="f", protocols=(("sticky", b""),))
    assert (request.is_parked, desk.state) == (True, "PreparingRebalance")


def test_restart_with_another_subscription_and_the_same_assignor_does_not(
    desk: Desk, two: list[Joined]
) -> None:
    assert desk.join(instance="f", protocols=CHANGED).error is ErrorCode.NONE
    assert desk.state == "Stable"
    assert desk.record.members[1].subscription == CHANGED[0][1]


def test_rebalance_that_begins_while_the_new_id_is_written_gives_the_response(
    desk: Desk, two: list[Joined]
) -> None:
    desk.holds = True
    request = desk.join(instance="f")
    again = desk.join(two[0].member_id, instance="l")
    assert request.joined.generation_id == again.joined.generation_id == 2
    desk.replicate()
    assert desk.state == "CompletingRebalance"


# ---- restarts while the group rebalances


def test_restart_before_the_assignment_makes_the_group_rebalance(desk: Desk) -> None:
    leader, follower = desk.join(**LEADER), desk.join(**FOLLOWER)
    desk.advance(2 * DELAY_MS)
    sync = desk.sync(follower.joined, instance="f")
    restarted = desk.join(instance="f")
    assert sync.synced == Synced(ErrorCode.FENCED_INSTANCE_ID)
    assert (restarted.is_parked, desk.state) == (True, "PreparingRebalance")
    desk.join(leader.joined.member_id, instance="l")
    assert restarted.joined.generation_id == 2


def test_client_that_is_parked_is_fenced_by_the_one_that_takes_its_place(
    desk: Desk, two: list[Joined]
) -> None:
    desk.join(two[0].member_id, instance="l")
    former = desk.join(two[1].member_id, instance="f", protocols=CHANGED)
    assert former.joined.generation_id == 2

    former = desk.join(former.joined.member_id, instance="f")
    desk.join(two[0].member_id, instance="l", protocols=CHANGED)
    former = desk.join(two[0].member_id, instance="l")
    restarted = desk.join(instance="l")
    assert former.joined == Joined(ErrorCode.FENCED_INSTANCE_ID, two[0].member_id)
    assert restarted.is_parked


def test_static_members_that_stay_away_keep_their_places(desk: Desk) -> None:
    leader, *_ = desk.form({**LEADER, **LONG}, {**FOLLOWER, **LONG}, {"instance": "o", **LONG})
    request = desk.join(leader.member_id, instance="l", **LONG)
    desk.advance(REBALANCE_MS)
    assert len(request.joined.members) == 3
    assert request.joined.leader_id == leader.member_id


def test_leader_that_stays_away_loses_the_lead_alone(desk: Desk) -> None:
    leader, follower = desk.form({**LEADER, **LONG}, {**FOLLOWER, **LONG})
    request = desk.join(follower.member_id, instance="f", protocols=CHANGED, **LONG)
    desk.advance(REBALANCE_MS)
    assert request.joined.leader_id == follower.member_id
    assert leader.member_id in {member.member_id for member in request.joined.members}


def test_group_of_which_nobody_joins_again_waits_for_their_sessions(desk: Desk) -> None:
    (leader,) = desk.form({**LEADER, "session_ms": 3 * REBALANCE_MS})
    dynamic = desk.join_twice()
    assert dynamic.is_parked
    assert desk.leave(Leaver(next(iter(desk.group.members.keys() - {leader.member_id})))) == [0]
    desk.advance(REBALANCE_MS)
    assert (desk.state, desk.group.generation_id) == ("PreparingRebalance", 1)
    desk.advance(3 * REBALANCE_MS)
    assert (desk.state, desk.record.generation_id) == ("Empty", 2)


def test_leader_that_comes_back_completes_a_join_that_was_put_off(desk: Desk) -> None:
    (leader,) = desk.form({**LEADER, **LONG})
    dynamic = desk.join_twice()
    assert dynamic.is_parked
    desk.leave(Leaver(next(iter(desk.group.members.keys() - {leader.member_id}))))
    desk.advance(2 * REBALANCE_MS)
    assert desk.join(leader.member_id, instance="l", **LONG).joined.generation_id == 2


# ---- fencing


def test_former_client_is_fenced_in_every_request(desk: Desk, two: list[Joined]) -> None:
    former = two[1]
    desk.join(instance="f")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert desk.join(former.member_id, instance="f").joined == Joined(fenced, former.member_id)
    assert desk.sync(former, instance="f").error is fenced
    assert desk.beat(former, instance="f") is fenced
    assert desk.commit(joined=former, instance="f").error is fenced
    assert desk.leave(Leaver(former.member_id, "f")) == [fenced]


def test_former_id_without_its_instance_is_unknown(desk: Desk, two: list[Joined]) -> None:
    desk.join(instance="f")
    assert desk.beat(two[1]) is ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.sync(two[1]).error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("instance", ["f", "another"])
def test_id_that_was_handed_out_is_no_static_member_s(
    desk: Desk, two: list[Joined], instance: str
) -> None:
    member_id = desk.join().joined.member_id
    refused = desk.join(member_id, instance=instance)
    assert refused.joined == Joined(ErrorCode.UNKNOWN_SERVER_ERROR, member_id)
    assert list(desk.group.members) == [member.member_id for member in two]
    assert [desk.beat(two[0], instance="l"), desk.beat(two[1], instance="f")] == [
        ErrorCode.NONE
    ] * 2
    assert desk.join(member_id).is_parked


def test_instance_that_is_not_in_the_group_is_unknown(desk: Desk, two: list[Joined]) -> None:
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    member = two[0]
    assert desk.join(member.member_id, instance="x").error is unknown
    assert desk.sync(member, instance="x").error is unknown
    assert desk.beat(member, instance="x") is unknown
    assert desk.commit(joined=member, instance="x").error is unknown


def test_instance_with_an_id_that_was_made_up_is_fenced(desk: Desk, two: list[Joined]) -> None:
    made_up = desk.join("made up", instance="f")
    assert made_up.joined == Joined(ErrorCode.FENCED_INSTANCE_ID, "made up")


def test_static_member_that_is_away_is_removed_with_its_session(
    desk: Desk, two: list[Joined]
) -> None:
    desk.advance(SESSION_MS - 1)
    desk.beat(two[0], instance="l")
    desk.advance(1)
    assert desk.beat(two[0], instance="l") is ErrorCode.REBALANCE_IN_PROGRESS
    assert set(desk.group.static_members) == {"l"}


def test_group_of_the_record_knows_its_instances(desk: Desk, two: list[Joined]) -> None:
    desk.move()
    assert desk.group.static_members == {"l": two[0].member_id, "f": two[1].member_id}
    assert desk.join(instance="f").joined.generation_id == 1
    assert GroupKey(GROUP_ID) not in desk.shard.in_flight
