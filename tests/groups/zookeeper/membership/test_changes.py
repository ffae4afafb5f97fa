"""What a member decides when something changes, before, in and after a round."""

from groups.zookeeper import effects as do
from groups.zookeeper import events as on
from groups.zookeeper.membership_state import Phase
from tests.groups.zookeeper.membership.script import ALL, ME, P0, P1, P2, P3, Script, kinds, one


def test_a_change_during_the_reading_begins_a_new_round() -> None:
    script = Script()
    script.register()
    script.tell(on.GroupChanged())
    old_round = script.round
    assert script.read_group(ME) == [script.debounce()]
    assert script.tell(on.ReadDue(script.round)) == [do.ReadGroup(old_round + 1)]


def test_a_change_during_the_claim_begins_a_round_when_this_one_has_ended() -> None:
    script = Script()
    script.register()
    script.read_group(ME)
    script.read_owners({})
    assert script.tell(on.GroupChanged()) == []
    script.tell(on.Claimed(script.round))
    effects = script.tell(on.OffsetsFetched(script.round, dict.fromkeys(ALL, 0)))
    assert effects[-1] == script.debounce()
    assert do.Report not in kinds(effects)


def test_results_of_an_older_round_are_ignored() -> None:
    script = Script()
    script.register()
    script.read_group(ME)
    script.read_owners({})
    before = script.member
    assert script.tell(on.Claimed(script.round - 1)) == []
    assert script.tell(on.ClaimFailed(script.round - 1)) == []
    assert script.tell(on.OffsetsFetched(script.round - 1, {P0: 7})) == []
    assert script.tell(on.ReadDue(script.round - 1)) == []
    assert script.tell(on.OwnersRead(script.round, {})) == []
    assert script.tell(on.RoundFailed(script.round - 1, "late")) == []
    assert script.tell(on.Retry(script.round - 1)) == []
    assert script.member == before


def test_a_burst_of_changes_is_read_once() -> None:
    script = Script()
    script.settle_alone()
    assert script.tell(on.GroupChanged()) == [script.debounce()]
    for event in (on.GroupChanged(), on.TopicsChanged(), on.BrokersChanged()):
        assert script.tell(event) == []
    assert script.tell(on.ReadDue(script.round)) == [do.ReadGroup(script.round)]
    script.read_group(ME)
    script.read_owners(dict.fromkeys(ALL, f"{ME}-0"))
    assert script.member.phase is Phase.SETTLED


def test_a_settled_member_looks_now_and_then_whether_its_nodes_still_stand() -> None:
    script = Script()
    script.settle_alone()
    assert script.tell(on.Retry(script.round)) == [do.ReadGroup(script.round)]
    script.read_group(ME)
    effects = script.read_owners(dict.fromkeys([P0, P1, P2], f"{ME}-0"))
    assert one(effects, do.ClaimOwners).create.keys() == {P3}


def test_brokers_that_come_and_go_make_a_member_look_and_release_nothing() -> None:
    script = Script()
    script.settle_alone()
    done: list[do.Effect] = []
    for _ in range(5):
        done += script.change(on.BrokersChanged())
        done += script.read_group(ME)
        done += script.read_owners(dict.fromkeys(ALL, f"{ME}-0"))
    counts = {kind: kinds(done).count(kind) for kind in kinds(done)}
    assert counts == {do.ReadGroup: 5, do.ReadOwners: 5, do.SetTimer: 5, do.Report: 5}
