"""The steps to the new store alone."""

import attrs
import pytest

from offsets.migration import Command, Copy, Look, Rewrite
from offsets.migration_observation import MemberSeen
from tests.offsets.migration.observations import (
    CROSSED,
    DUAL_KAFKA,
    FINALIZED,
    GOING_BACK,
    IN_KAFKA,
    KAFKA,
    P0,
    STARTED,
    TURNED,
    VERIFIED,
    faults,
    last,
    moving,
    ordered,
    seen,
    stores,
)
from zk.migration_znodes import GroupMigration


def test_finalize_needs_the_proof_of_verify() -> None:
    effect = last(Command.FINALIZE, seen(STARTED, ("g_a", 1)))
    assert faults(effect) == {"both stores": "NOT_VERIFIED"}


def test_finalize_crosses_and_then_leaves_the_old_store_each_when_all_obey() -> None:
    assert ordered(last(Command.FINALIZE, seen(VERIFIED, ("g_a", 1)))) == (DUAL_KAFKA, KAFKA, 2)
    assert last(Command.FINALIZE, seen(CROSSED, ("g_a", 1))) == Look()
    assert ordered(last(Command.FINALIZE, seen(CROSSED, ("g_a", 2)))) == (IN_KAFKA, KAFKA, 3)
    assert last(Command.FINALIZE, seen(FINALIZED, ("g_a", 2))) == Look()
    assert faults(last(Command.FINALIZE, seen(FINALIZED, ("g_a", 3)))) == {}


def test_a_member_that_came_after_verify_and_says_nothing_keeps_finalize_from_crossing() -> None:
    looks = [seen(VERIFIED, ("g_a", 1), ("g_jvm", None), now_ms=now) for now in (0, 20_000)]
    assert last(Command.FINALIZE, looks[0]) == Look()
    assert faults(last(Command.FINALIZE, *looks)) == {"g_jvm": "NOT_VERIFIED"}


def test_a_member_proven_by_verify_does_not() -> None:
    proven = attrs.evolve(VERIFIED, proven=("g_jvm",))
    effect = last(Command.FINALIZE, seen(proven, ("g_a", 1), ("g_jvm", None)))
    assert ordered(effect) == (DUAL_KAFKA, KAFKA, 2)


def test_a_member_restarted_since_under_the_same_name_has_to_be_proven_again() -> None:
    proven = attrs.evolve(VERIFIED, proven=("g_jvm",))
    restarted = {"g_a": MemberSeen(10, 1), "g_jvm": MemberSeen(60)}
    looks = [seen(proven, now_ms=now, members=restarted) for now in (0, 20_000)]
    assert faults(last(Command.FINALIZE, *looks)) == {"g_jvm": "NOT_VERIFIED"}
    committing = [
        attrs.evolve(look, members=restarted, owners={P0: "g_jvm"})
        for look in moving(proven, ("g_jvm", None))
    ]
    assert last(Command.VERIFY, *committing) == Rewrite(proven, 0)  # as of now


def test_stores_that_have_come_apart_since_verify_keep_finalize_from_crossing() -> None:
    apart = stores({"p0": 5}, {"p0": 4})
    looks = [seen(VERIFIED, ("g_a", 1), now_ms=now, **apart) for now in (0, 20_000)]
    assert faults(last(Command.FINALIZE, *looks)) == {"t-0": "DIVERGED"}


def test_a_copy_that_came_behind_a_newer_commit_is_made_good_and_nobody_crosses_before() -> None:
    copied_over = stores({"p0": 8}, {"p0": 5})  # both had 8, and the copy was of 5
    looks = [seen(STARTED, ("g_a", 1), now_ms=now, **copied_over) for now in (0, 20_000)]
    assert last(Command.START, looks[0], looks[0]) == Copy(KAFKA, {P0: 8})
    assert faults(last(Command.VERIFY, *looks))["t-0"] == "DIVERGED"
    verified = [attrs.evolve(look, migration=VERIFIED) for look in looks]
    assert faults(last(Command.FINALIZE, *verified)) == {"t-0": "DIVERGED"}


def test_a_commit_on_its_way_is_waited_for_before_crossing() -> None:
    on_its_way = stores({"p0": 5}, {"p0": 6})
    looks = [
        seen(VERIFIED, ("g_a", 1), now_ms=0, **on_its_way),
        seen(VERIFIED, ("g_a", 1), now_ms=250, **stores({"p0": 6}, {"p0": 6})),
    ]
    assert last(Command.FINALIZE, looks[0]) == Look()
    assert ordered(last(Command.FINALIZE, *looks))[0] is DUAL_KAFKA


@pytest.mark.parametrize("migration", [CROSSED, GOING_BACK])
def test_beyond_the_middle_a_member_that_says_nothing_is_no_hindrance(
    migration: GroupMigration,
) -> None:
    command = Command.FINALIZE if migration is CROSSED else Command.ROLLBACK
    effect = last(command, seen(migration, ("g_a", migration.epoch), ("g_jvm", None)))
    assert ordered(effect)[2] == migration.epoch + 1


def test_finalize_does_not_finish_what_is_being_rolled_back() -> None:
    assert faults(last(Command.FINALIZE, seen(TURNED, ("g_a", 4)))) == {"g": "INVALID_STEP"}


def test_a_member_of_ours_that_does_not_follow_is_named_and_nothing_goes_on() -> None:
    looks = [seen(CROSSED, ("g_a", 1), now_ms=now) for now in (0, 20_000)]
    assert faults(last(Command.FINALIZE, *looks)) == {"g_a": "NOT_OBEYING"}
