"""JoinGroup: new members and members that join again, by the state of the group."""

from typing import Any

import pytest

from groups.coordinator.membership.history import Cause, Trigger
from groups.coordinator.membership.responses import Joined, JoinedMember
from protocol.consumer_protocol import Subscription, encode_subscription
from protocol.errors import ErrorCode
from tests.groups.coordinator.membership.desk import DELAY_MS, SESSION_MS, Desk, subscribed_to


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def two(desk: Desk) -> list[Joined]:
    """A stable group of two members."""
    return desk.form({}, {})


# ---- new members


def test_member_of_an_old_client_joins_at_once_and_leads(desk: Desk) -> None:
    request = desk.join(version=3, protocols=(("range", b"meta"),))
    assert request.is_parked
    desk.advance(DELAY_MS)
    joined = request.joined
    assert joined == Joined(
        ErrorCode.NONE,
        joined.member_id,
        1,
        "consumer",
        "range",
        joined.member_id,
        (JoinedMember(joined.member_id, None, b"meta"),),
    )
    assert desk.state == "CompletingRebalance"


def test_new_member_is_given_an_id_and_joins_with_it(desk: Desk) -> None:
    first = desk.join()
    assert first.joined == Joined(ErrorCode.MEMBER_ID_REQUIRED, first.joined.member_id)
    assert first.joined.member_id.startswith("client-")
    assert desk.state == "Empty"

    second = desk.join(first.joined.member_id)
    desk.advance(DELAY_MS)
    assert (second.error, second.joined.generation_id) == (ErrorCode.NONE, 1)
    assert second.joined.member_id == first.joined.member_id


def test_static_member_needs_no_id(desk: Desk) -> None:
    request = desk.join(instance="i")
    desk.advance(DELAY_MS)
    assert (request.error, request.joined.generation_id) == (ErrorCode.NONE, 1)
    assert request.joined.member_id.startswith("i-")


def test_followers_are_not_shown_the_members(desk: Desk) -> None:
    leader, follower = desk.form({}, {})
    assert len(leader.members) == 2
    assert follower.members == ()
    assert follower.leader_id == leader.member_id


@pytest.mark.parametrize("session_ms", [9, 600_001])
def test_session_timeout_out_of_bounds_begins_no_group(desk: Desk, session_ms: int) -> None:
    request = desk.join(session_ms=session_ms)
    assert request.error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert desk.state == "Dead"


def test_member_of_an_unknown_group_is_unknown(desk: Desk) -> None:
    request = desk.join("m")
    assert request.joined == Joined(ErrorCode.UNKNOWN_MEMBER_ID, "m")
    assert desk.state == "Dead"


@pytest.mark.parametrize("options", [{"protocol_type": ""}, {"protocols": ()}])
def test_first_member_without_a_protocol_begins_no_group(
    desk: Desk, options: dict[str, Any]
) -> None:
    assert desk.join(version=3, **options).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert desk.state == "Dead"


@pytest.mark.parametrize(
    "options", [{"protocol_type": "connect"}, {"protocols": (("sticky", b""),)}, {"protocols": ()}]
)
def test_member_with_nothing_in_common_is_refused(
    desk: Desk, two: list[Joined], options: dict[str, Any]
) -> None:
    refused = Joined(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert desk.join(version=3, **options).joined == refused
    assert desk.state == "Stable"


def test_second_join_with_another_protocol_is_refused_and_the_right_one_taken(
    desk: Desk, two: list[Joined]
) -> None:
    member_id = desk.join().joined.member_id
    wrong = desk.join(member_id, protocols=(("sticky", b""),))
    assert wrong.joined == Joined(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
    assert desk.join(member_id).is_parked


def test_any_protocol_type_is_served_unread(desk: Desk) -> None:
    request = desk.join(version=3, protocol_type="connect", protocols=(("compatible", b"\xff"),))
    desk.advance(DELAY_MS)
    assert (request.joined.protocol_type, request.joined.protocol_name) == ("connect", "compatible")


def test_group_chooses_the_assignor_that_most_members_prefer(desk: Desk) -> None:
    range_first = (("range", b"r"), ("sticky", b"s"))
    sticky_first = (("sticky", b"s"), ("range", b"r"))
    requests = [
        desk.join(version=3, protocols=p) for p in (range_first, sticky_first, sticky_first)
    ]
    desk.advance(2 * DELAY_MS)
    assert [request.joined.protocol_name for request in requests] == ["sticky"] * 3
    assert [member.metadata for member in requests[0].joined.members] == [b"s"] * 3


def test_assignor_that_one_member_lacks_is_not_chosen(desk: Desk) -> None:
    both = (("sticky", b""), ("range", b""))
    requests = [desk.join(version=3, protocols=p) for p in (both, both, (("range", b""),))]
    desk.advance(2 * DELAY_MS)
    assert requests[0].joined.protocol_name == "range"


# ---- member ids that are handed out


def test_stable_group_does_not_notice_a_client_that_never_comes_back(
    desk: Desk, two: list[Joined]
) -> None:
    desk.join()
    for _ in range(3):
        desk.advance(SESSION_MS // 2)
        assert [desk.beat(member) for member in two] == [ErrorCode.NONE] * 2
    assert not desk.group.handed_out


def test_join_waits_for_a_client_that_was_given_an_id(desk: Desk, two: list[Joined]) -> None:
    member_id = desk.join().joined.member_id
    again = [desk.join(member.member_id, protocols=(("range", b"new"),)) for member in two]
    assert all(request.is_parked for request in again)
    new = desk.join(member_id)
    assert [request.joined.generation_id for request in (*again, new)] == [2] * 3


def test_join_waits_for_it_no_longer_than_its_session(desk: Desk, two: list[Joined]) -> None:
    desk.join(session_ms=100)
    again = [
        desk.join(m.member_id, protocols=(("range", b"new"),), rebalance_ms=10_000) for m in two
    ]
    desk.advance(99)
    assert all(request.is_parked for request in again)
    desk.advance(1)
    assert [request.joined.generation_id for request in again] == [2, 2]


def test_group_of_handed_out_ids_alone_is_gone_when_they_expire(desk: Desk) -> None:
    desk.join()
    assert desk.state == "Empty"
    desk.advance(SESSION_MS)
    assert desk.state == "Dead"
    assert desk.shard.live == {}


# ---- members that join again


def test_follower_that_asks_again_gets_the_same_generation(desk: Desk, two: list[Joined]) -> None:
    _, follower = two
    assert desk.join(follower.member_id).joined == follower
    assert desk.state == "Stable"


def test_leader_that_joins_again_makes_the_group_rebalance(desk: Desk, two: list[Joined]) -> None:
    leader, follower = two
    request = desk.join(leader.member_id)
    assert request.is_parked
    assert desk.beat(follower) is ErrorCode.REBALANCE_IN_PROGRESS
    desk.join(follower.member_id)
    assert request.joined.generation_id == 2


def test_follower_with_another_subscription_makes_the_group_rebalance(
    desk: Desk, two: list[Joined]
) -> None:
    leader, follower = two
    request = desk.join(follower.member_id, protocols=subscribed_to("other"))
    again = desk.join(leader.member_id)
    assert request.joined.generation_id == 2
    assert again.joined.members[1].metadata == subscribed_to("other")[0][1]


# ---- what is noted of a member that joins again


def rejoin(desk: Desk, index: int, before: bytes, after: bytes, kind: str = "consumer") -> Trigger:
    """Have the leader (0) or a follower (1) join again with other metadata."""
    protocols = (("range", before),)
    joined = desk.form({}, {}, protocols=protocols, protocol_type=kind)
    desk.join(joined[index].member_id, protocols=(("range", after),), protocol_type=kind)
    trigger = desk.group.history.trigger
    assert trigger is not None
    return trigger


def metadata(*topics: str, generation_id: int = -1) -> bytes:
    return encode_subscription(Subscription(topics, generation_id=generation_id))


@pytest.mark.parametrize(
    ("index", "after", "cause", "is_inferred"),
    [
        (0, metadata("t", "u"), Cause.SUBSCRIPTION_CHANGED, False),
        (1, metadata("t", "u"), Cause.SUBSCRIPTION_CHANGED, False),
        (0, metadata("u", "t", generation_id=1), Cause.SUBSCRIPTION_CHANGED, False),
        (0, metadata("t", generation_id=1), Cause.LEADER_REJOINED, False),
        (1, metadata("t", generation_id=1), Cause.MEMBER_JOINED, True),
        (1, b"no subscription", Cause.SUBSCRIPTION_CHANGED, False),
    ],
)
def test_other_metadata_are_another_subscription_if_the_topics_are_others(
    desk: Desk, index: int, after: bytes, cause: Cause, is_inferred: bool
) -> None:
    trigger = rejoin(desk, index, metadata("t"), after)
    assert (trigger.cause, trigger.is_inferred) == (cause, is_inferred)


def test_metadata_of_other_kinds_of_groups_are_not_read(desk: Desk) -> None:
    trigger = rejoin(desk, 1, metadata("t"), metadata("t", generation_id=1), "connect")
    assert trigger.cause is Cause.SUBSCRIPTION_CHANGED


def test_member_that_asks_again_before_the_assignment_gets_the_same_response(desk: Desk) -> None:
    first = desk.join(version=3)
    desk.advance(DELAY_MS)
    assert desk.join(first.joined.member_id).joined == first.joined
    assert desk.state == "CompletingRebalance"


def test_member_that_changes_before_the_assignment_makes_the_group_rebalance(desk: Desk) -> None:
    leader, follower = (desk.join(version=3) for _ in range(2))
    desk.advance(2 * DELAY_MS)
    sync = desk.sync(follower.joined)
    request = desk.join(leader.joined.member_id, protocols=subscribed_to("other"))
    assert sync.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert request.is_parked
    assert desk.state == "PreparingRebalance"


def test_member_that_joins_again_while_parked_ends_its_former_request(
    desk: Desk, two: list[Joined]
) -> None:
    leader, follower = two
    former = desk.join(leader.member_id)
    desk.join(leader.member_id)
    assert former.joined == Joined(ErrorCode.REBALANCE_IN_PROGRESS, leader.member_id)
    desk.join(follower.member_id)
    assert desk.group.generation_id == 2


def test_unknown_member_of_a_group_is_refused_in_every_state(desk: Desk) -> None:
    refused = Joined(ErrorCode.UNKNOWN_MEMBER_ID, "m")
    first = desk.join(version=3)
    assert desk.join("m").joined == refused
    desk.advance(DELAY_MS)
    assert desk.join("m").joined == refused
    desk.sync(first.joined)
    assert (desk.join("m").joined, desk.state) == (refused, "Stable")


def test_timeouts_of_the_latest_join_count(desk: Desk, two: list[Joined]) -> None:
    desk.join(two[0].member_id, session_ms=300, rebalance_ms=900)
    member = desk.group.members[two[0].member_id]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (300, 900)


# ---- generations


@pytest.mark.parametrize(("before", "after"), [(2**31 - 1, 1), (-7, 1), (0, 1), (41, 42)])
def test_generation_that_follows(desk: Desk, before: int, after: int) -> None:
    desk.form({})
    desk.group.generation_id = before
    assert desk.join(desk.group.leader_id or "").joined.generation_id == after


def test_group_that_was_left_goes_on_with_the_next_generation(desk: Desk) -> None:
    (member,) = desk.form({})
    desk.advance(SESSION_MS)
    assert (desk.state, desk.shard.live) == ("Empty", {})
    (member,) = desk.form({})
    assert member.generation_id == 3
