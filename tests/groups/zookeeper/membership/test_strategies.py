"""Neighbours whose registration is malformed, or whose strategy conflicts."""

from groups.zookeeper import effects as do
from groups.zookeeper import events as on
from groups.zookeeper.assignment import CLUSTERED
from groups.zookeeper.membership_state import Phase
from tests.groups.zookeeper.membership.script import ALL, ME, OTHER, Script, kinds


def test_a_malformed_neighbour_stops_the_rebalance_and_is_reported_once() -> None:
    script = Script()
    script.settle_alone()
    script.change(on.GroupChanged())
    problem = on.GroupProblem("remove /consumers/g/ids/g_x")
    timer, report = script.tell(on.GroupUnreadable(script.round, problem))
    assert report == do.Report(problem.text, do.FailureKind.UNREADABLE)
    assert timer.event == on.Retry(script.round)
    assert script.member.delivering.keys() == ALL
    script.tell(on.Retry(script.round))
    (timer,) = script.tell(on.GroupUnreadable(script.round, problem))
    assert timer.event == on.Retry(script.round)
    assert script.change(on.GroupChanged()) == [do.ReadGroup(script.round)]


def test_when_the_malformed_neighbour_is_gone_the_group_settles_and_a_new_one_is_reported() -> None:
    script = Script()
    script.register()
    problem = on.GroupProblem("remove /consumers/g/ids/g_x")
    script.tell(on.GroupUnreadable(script.round, problem))
    script.change(on.GroupChanged())
    script.read_group(ME)
    script.read_owners({})
    script.tell(on.Claimed(script.round))
    effects = script.tell(on.OffsetsFetched(script.round, dict.fromkeys(ALL, 5)))
    assert effects[-1] == do.Report()
    script.change(on.GroupChanged())
    effects = script.tell(on.GroupUnreadable(script.round, problem))
    assert do.Report(problem.text, do.FailureKind.UNREADABLE) in effects


def test_a_member_whose_strategy_is_not_the_groups_leaves_at_once() -> None:
    script = Script()
    script.register()
    leave, report = script.read_group(ME, OTHER, clustered=[OTHER])
    assert leave == do.LeaveGroup(frozenset())
    assert report.failure is do.FailureKind.STRATEGY
    assert "the member g_b: " in report.error
    assert "strategy=clustered, we have range" in report.error
    assert script.member.phase is Phase.CLOSED


def test_a_clustered_member_leaves_a_group_with_a_member_that_could_be_on_the_jvm() -> None:
    script = Script(partition_assignment_strategy=CLUSTERED)
    script.register()
    leave, report = script.read_group(ME, OTHER, clustered=[ME])
    assert leave == do.LeaveGroup(frozenset())
    assert report.failure is do.FailureKind.STRATEGY
    assert "the member g_b: " in report.error
    assert "JVM" in report.error


def test_a_member_with_another_strategy_that_comes_later_stops_our_claims_alone() -> None:
    script = Script()
    script.settle_alone()
    script.change(on.GroupChanged())
    effects = script.read_group(ME, OTHER, clustered=[OTHER])
    assert kinds(effects) == [do.SetTimer, do.Report]
    assert script.member.phase is Phase.BACKING_OFF
    script.tell(on.Retry(script.round))
    assert script.read_group(ME) == [do.ReadOwners(script.round, ALL)]
