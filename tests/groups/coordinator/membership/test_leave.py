"""LeaveGroup, one member or several, and groups that are held for a reset."""

import pytest

from groups.coordinator.membership.events import Leaver
from groups.coordinator.membership.leave import POLL_TIMEOUT_REASON
from groups.coordinator.membership.responses import Joined
from protocol.errors import ErrorCode
from tests.groups.coordinator.membership.desk import DELAY_MS, SESSION_MS, Desk, subscribed_to

UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
HOLD_MS = 5000
RESET = "kgroup reset 17"


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def two(desk: Desk) -> list[Joined]:
    """A stable group of a dynamic leader and a static follower."""
    return desk.form({}, {"instance": "f"})


def test_member_that_leaves_makes_the_others_rebalance(desk: Desk, two: list[Joined]) -> None:
    assert desk.leave(Leaver(two[0].member_id)) == [ErrorCode.NONE]
    assert desk.beat(two[0]) is UNKNOWN
    assert desk.beat(two[1]) is ErrorCode.REBALANCE_IN_PROGRESS


def test_last_member_that_leaves_leaves_an_empty_group(desk: Desk) -> None:
    (member,) = desk.form({})
    assert desk.leave(Leaver(member.member_id)) == [ErrorCode.NONE]
    assert (desk.state, desk.shard.live) == ("Empty", {})


def test_parked_join_of_a_member_that_leaves_ends(desk: Desk, two: list[Joined]) -> None:
    request = desk.join(two[0].member_id)
    desk.leave(Leaver(two[0].member_id))
    assert request.joined == Joined(UNKNOWN)


def test_parked_sync_of_a_member_that_leaves_ends(desk: Desk) -> None:
    requests = [desk.join(version=3) for _ in range(2)]
    desk.advance(2 * DELAY_MS)
    sync = desk.sync(requests[1].joined)
    desk.leave(Leaver(requests[1].joined.member_id))
    assert sync.error is UNKNOWN


def test_leaving_an_unknown_group_is_the_errors_of_its_members(desk: Desk) -> None:
    assert desk.leave(Leaver("a"), Leaver("b")) == [UNKNOWN, UNKNOWN]


@pytest.mark.parametrize(
    ("leaver", "error"),
    [
        (Leaver("", "f"), ErrorCode.NONE),
        (Leaver("", "nobody"), UNKNOWN),
        (Leaver(""), UNKNOWN),
        (Leaver("nobody"), UNKNOWN),
        (Leaver("nobody", "f"), ErrorCode.FENCED_INSTANCE_ID),
    ],
)
def test_each_member_that_is_named_has_its_own_error(
    desk: Desk, two: list[Joined], leaver: Leaver, error: ErrorCode
) -> None:
    assert desk.leave(Leaver("unknown too"), leaver) == [UNKNOWN, error]


def test_members_are_removed_in_order(desk: Desk, two: list[Joined]) -> None:
    leaver = Leaver(two[0].member_id)
    assert desk.leave(leaver, Leaver("", "f"), leaver) == [ErrorCode.NONE, ErrorCode.NONE, UNKNOWN]
    assert (desk.state, desk.shard.live) == ("Empty", {})


def test_id_that_was_handed_out_is_given_back(desk: Desk, two: list[Joined]) -> None:
    member_id = desk.join().joined.member_id
    again = desk.join(two[0].member_id)
    desk.join(two[1].member_id, instance="f")
    assert again.is_parked
    assert desk.leave(Leaver(member_id)) == [ErrorCode.NONE]
    assert again.joined.generation_id == 2


def test_client_that_comes_and_goes_leaves_nothing_behind(desk: Desk) -> None:
    for _ in range(10_000):
        request = desk.join(version=3)
        desk.advance(DELAY_MS)
        desk.leave(Leaver(request.joined.member_id))
    desk.advance(SESSION_MS)
    assert (desk.shard.live, desk.timers) == ({}, {})


# ---- why


@pytest.mark.parametrize(
    ("leaver_options", "client_id", "cause", "is_inferred"),
    [
        ({}, "client", "member_left", False),
        ({"reason": "the consumer is being closed"}, "client", "member_left", False),
        ({"reason": POLL_TIMEOUT_REASON}, "client", "poll_interval_exceeded", False),
        ({}, "admin", "member_kicked", True),
        ({"reason": "too slow"}, "admin", "member_kicked", False),
    ],
)
def test_cause_of_the_rebalance_says_who_wanted_it(
    desk: Desk,
    two: list[Joined],
    leaver_options: dict[str, str],
    client_id: str,
    cause: str,
    is_inferred: bool,
) -> None:
    desk.leave(Leaver(two[0].member_id, **leaver_options), client_id=client_id)
    trigger = desk.group.history.trigger
    assert trigger is not None
    assert (trigger.cause.value, trigger.is_inferred) == (cause, is_inferred)
    assert trigger.member_id == two[0].member_id


# ---- resets of groups with members


def everyone(desk: Desk, reason: str = RESET) -> list[Leaver]:
    return [Leaver(member_id, reason=reason) for member_id in desk.group.members]


def test_reset_removes_all_members_and_lets_nobody_join(desk: Desk, two: list[Joined]) -> None:
    assert desk.leave(*everyone(desk), connection=7) == [ErrorCode.NONE] * 2
    assert desk.state == "Empty"
    refused = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert desk.join(two[0].member_id).joined == Joined(refused, two[0].member_id)
    assert desk.join().error is refused
    assert desk.beat(two[0]) is UNKNOWN
    assert desk.commit(joined=two[0]).error is UNKNOWN


def test_commit_of_the_one_who_resets_lets_members_join(desk: Desk, two: list[Joined]) -> None:
    desk.leave(*everyone(desk), connection=7)
    desk.holds = True
    commit = desk.commit(5, connection=7)
    assert desk.join().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    desk.replicate()
    assert commit.error is ErrorCode.NONE
    assert desk.join().error is ErrorCode.MEMBER_ID_REQUIRED


def test_commit_without_offsets_of_the_one_who_resets_lets_members_join(
    desk: Desk, two: list[Joined]
) -> None:
    desk.leave(*everyone(desk), connection=7)
    assert desk.commit(None, connection=8).error is ErrorCode.NONE
    assert desk.join().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert desk.commit(None, connection=7).error is ErrorCode.NONE
    assert desk.join().error is ErrorCode.MEMBER_ID_REQUIRED


def test_commit_of_somebody_else_does_not(desk: Desk, two: list[Joined]) -> None:
    desk.leave(*everyone(desk), connection=7)
    desk.commit(5, connection=8)
    assert desk.join().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_commit_that_fails_does_not(desk: Desk, two: list[Joined]) -> None:
    desk.leave(*everyone(desk), connection=7)
    desk.holds = True
    desk.commit(5, connection=7)
    desk.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert desk.join().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_commit_of_an_earlier_reset_does_not(desk: Desk, two: list[Joined]) -> None:
    desk.leave(*everyone(desk), connection=7)
    desk.holds = True
    desk.commit(5, connection=7)
    desk.advance(HOLD_MS)
    desk.join(version=3)
    desk.leave(*everyone(desk), connection=8)
    desk.replicate()
    assert desk.join().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_hold_ends_by_itself(desk: Desk, two: list[Joined]) -> None:
    desk.leave(*everyone(desk), connection=7)
    desk.advance(HOLD_MS - 1)
    assert desk.join().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    desk.advance(1)
    assert desk.shard.live == {}
    assert desk.join().error is ErrorCode.MEMBER_ID_REQUIRED


def test_reset_takes_members_that_are_joining(desk: Desk, two: list[Joined]) -> None:
    desk.join()
    parked = desk.join(two[0].member_id)
    desk.leave(*everyone(desk), connection=7)
    assert (parked.error, desk.state) == (UNKNOWN, "Empty")


def test_reset_takes_members_that_wait_for_the_first_generation(desk: Desk) -> None:
    parked = desk.join(version=3)
    desk.leave(*everyone(desk), connection=7)
    assert (parked.error, desk.state) == (UNKNOWN, "Empty")
    desk.advance(DELAY_MS)
    assert desk.state == "Empty"


def test_reset_that_leaves_a_member_holds_nothing(desk: Desk, two: list[Joined]) -> None:
    parked = desk.join(two[1].member_id, instance="f", protocols=subscribed_to("changed"))
    errors = desk.leave(
        Leaver(two[0].member_id, reason=RESET), Leaver(two[1].member_id, "wrong", reason=RESET)
    )
    assert errors == [ErrorCode.NONE, UNKNOWN]
    assert [member.member_id for member in parked.joined.members] == [two[1].member_id]
    assert desk.join().error is ErrorCode.MEMBER_ID_REQUIRED


def test_reset_may_name_instances_alone(desk: Desk, two: list[Joined]) -> None:
    desk.leave(Leaver("", "f", RESET), Leaver(two[0].member_id, reason=RESET), connection=7)
    assert desk.join().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_reset_of_a_group_without_members_holds_nothing(desk: Desk) -> None:
    desk.join()
    desk.leave(Leaver("gone", reason=RESET))
    assert desk.join().error is ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.parametrize("number", [1, 2])
def test_other_removals_hold_nothing(desk: Desk, two: list[Joined], number: int) -> None:
    reason = RESET if number == 1 else "maintenance"
    desk.leave(*everyone(desk, reason)[:number])
    assert desk.join().error is ErrorCode.MEMBER_ID_REQUIRED
