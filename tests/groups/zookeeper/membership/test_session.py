"""What a member decides as its session is suspended, expires and begins."""

from groups.zookeeper import effects as do
from groups.zookeeper import events as on
from groups.zookeeper.membership_state import Phase
from tests.groups.zookeeper.membership.script import ALL, ME, OTHER, SESSION, Script, one


def test_a_closed_session_ends_the_member_and_its_streams() -> None:
    script = Script()
    script.settle_alone()
    abandon, lost, fail, report = script.tell(on.SessionClosed())
    assert (abandon, lost) == (do.Abandon(), do.NotifyLost(ALL))
    assert isinstance(fail, do.FailDelivery)
    assert report == do.Report(fail.reason, do.FailureKind.SESSION_CLOSED)
    assert (script.member.phase, script.member.delivering) == (Phase.CLOSED, {})
    assert script.tell(on.SessionEstablished(SESSION + 1)) == []


def test_expiry_drops_everything_at_once_and_commits_nothing() -> None:
    script = Script()
    script.settle_alone()
    assert script.tell(on.SessionLost()) == [do.Abandon(), do.NotifyLost(ALL)]
    assert script.member.delivering == {}
    assert script.tell(on.GroupChanged()) == []
    effects = script.tell(on.SessionEstablished(SESSION + 1))
    assert effects[-1] == do.Register(SESSION + 1)
    assert script.tell(on.Registered(SESSION)) == []
    assert script.tell(on.Registered(SESSION + 1)) == [do.ReadGroup(script.round)]


def test_change_during_a_round_ends_with_the_session() -> None:
    script = Script()
    script.register()
    script.tell(on.GroupChanged())
    assert script.member.has_changed
    script.tell(on.SessionLost())
    assert script.register() == [do.ReadGroup(script.round)]


def test_timers_of_a_session_that_has_ended_do_nothing_in_the_next() -> None:
    script = Script()
    script.settle_alone()
    audit = on.Retry(script.round)
    script.tell(on.SessionEstablished(SESSION + 1))
    assert script.tell(audit) == []


def test_a_claim_of_a_session_that_has_ended_counts_for_nothing() -> None:
    script = Script()
    script.register()
    script.read_group(ME)
    script.read_owners({})
    claiming_round = script.round
    script.tell(on.SessionLost())
    assert script.tell(on.Claimed(claiming_round)) == []
    assert script.member.held == frozenset()


def test_a_new_session_without_word_of_expiry_means_expiry() -> None:
    script = Script()
    script.settle_alone()
    effects = script.tell(on.SessionEstablished(SESSION + 1))
    lost = do.NotifyLost(ALL)
    assert effects == [do.Abandon(), lost, do.ResumeDelivery(), do.Register(SESSION + 1)]


def test_delivery_pauses_two_thirds_into_a_silence_and_resumes_with_the_session() -> None:
    script = Script()
    script.settle_alone()
    silence = on.Suspended(since_ms=1000, session_timeout_ms=6000)
    assert script.tell(silence) == [do.SetTimer(on.LeaseEnded(1000), 5000)]
    assert script.tell(on.LeaseEnded(1000)) == [do.PauseDelivery()]
    effects = script.tell(on.SessionEstablished(SESSION))
    assert effects == [do.ResumeDelivery(), script.debounce()]


def test_a_short_silence_pauses_nothing() -> None:
    script = Script()
    script.settle_alone()
    script.tell(on.Suspended(since_ms=1000, session_timeout_ms=6000))
    script.tell(on.SessionEstablished(SESSION))
    assert script.tell(on.LeaseEnded(1000)) == []


def test_a_consumer_id_in_use_ends_a_member_that_has_not_joined() -> None:
    script = Script()
    script.tell(on.SessionEstablished(SESSION))
    effects = script.tell(on.RegistrationFailed(SESSION, "in use by 0x1", in_use=True))
    assert effects == [do.Report("in use by 0x1", do.FailureKind.ID_IN_USE)]
    assert script.tell(on.SessionEstablished(SESSION + 1)) == []


def test_a_member_that_had_joined_tries_to_register_again() -> None:
    script = Script()
    script.settle_alone()
    script.tell(on.SessionEstablished(SESSION + 1))
    effects = script.tell(on.RegistrationFailed(SESSION + 1, "in use", in_use=True))
    assert one(effects, do.SetTimer).event == on.Retry(script.round)
    assert script.tell(on.Retry(script.round)) == [do.Register(SESSION + 1)]


def test_a_member_whose_registration_was_deleted_registers_again_and_goes_on_delivering() -> None:
    script = Script()
    script.settle_alone()
    script.change(on.GroupChanged())
    assert script.read_group(OTHER) == [do.Register(SESSION)]
    assert script.member.delivering.keys() == ALL
