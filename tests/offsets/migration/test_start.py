"""Plan and start of a migration: refusals, copies, and who has to obey."""

import pytest

from offsets.migration import Command, Copy, Finish, Look
from offsets.migration_observation import MemberSeen, Obstacle
from tests.offsets.migration.observations import (
    CROSSED,
    DUAL_KAFKA,
    DUAL_ZOOKEEPER,
    FINALIZED,
    KAFKA,
    NOT_A_NUMBER,
    OURS,
    P0,
    P1,
    ROLLED_BACK,
    STARTED,
    TURNED,
    ZOOKEEPER,
    SeenAt,
    faults,
    last,
    ordered,
    seen,
    stores,
)
from zk.migration_znodes import GroupMigration, OffsetMode, OffsetStorage

ONLY_ZOOKEEPER = stores({"p0": 5, "p1": 7}, {})
NO_LEADER = Obstacle("t-0", "LEADER_NOT_AVAILABLE", "there is no leader now")


def test_a_plan_changes_nothing_and_names_members_that_are_not_ours() -> None:
    looks = [seen(None, OURS, ("g_jvm", None), now_ms=now, **ONLY_ZOOKEEPER) for now in (0, 20_000)]
    assert last(Command.PLAN, looks[0]) == Look()  # one of ours may just be on its way
    finish = last(Command.PLAN, *looks)
    assert faults(finish) == {}
    assert isinstance(finish, Finish)
    assert "g_jvm: after start, set offsets.storage=kafka dual.commit.enabled=true" in finish.text
    assert "2 offsets in ZooKeeper, 2 of them to copy" in finish.text


@pytest.mark.parametrize("command", [Command.PLAN, Command.START])
@pytest.mark.parametrize(
    ("what", "error", "look"),
    [
        ("g", "GROUP_ID_NOT_FOUND", seen(**stores({}, {}))),
        ("g", "NON_EMPTY_GROUP", seen(None, OURS, coordinated_members=2)),
        ("t-0", "DIVERGED", seen(None, OURS, **stores({"p0": 5}, {"p0": 6}))),
        ("t-1", "DIVERGED", seen(None, OURS, **stores({"p0": 5}, {"p1": 1}))),
        ("t-0", "OFFSET_OUT_OF_RANGE", seen(None, OURS, log_ends={P0: 4, P1: 9})),
        ("/x", "ZnodeError", seen(None, OURS, unreadable=(NOT_A_NUMBER,))),
        ("t-0", "LEADER_NOT_AVAILABLE", seen(None, OURS, unknown_logs=(NO_LEADER,))),
        (
            "g_a",
            "INCONSISTENT_SETTINGS",
            seen(members={"g_a": MemberSeen(1, 0, "kafka")}, **ONLY_ZOOKEEPER),
        ),
    ],
)
def test_a_migration_that_could_lose_messages_is_refused(
    command: Command, what: str, error: str, look: SeenAt
) -> None:
    assert faults(last(command, look))[what] == error


def test_leftovers_in_the_target_may_be_overwritten_when_the_user_says_so() -> None:
    look = seen(None, OURS, **stores({"p0": 5}, {"p0": 900}))
    assert ordered(last(Command.START, look, overwrite=True))[0] is DUAL_ZOOKEEPER


def test_leftovers_of_which_the_source_knows_nothing_are_never_overwritten() -> None:
    look = seen(None, OURS, **stores({"p0": 5}, {"p0": 5, "p1": 900}))
    assert faults(last(Command.START, look, overwrite=True)) == {"t-1": "DIVERGED"}


def test_offsets_of_partitions_that_are_gone_are_left_behind() -> None:
    look = seen(None, OURS, lost=frozenset({P1}), **stores({"p0": 5, "p1": 900}, {"p0": 5}))
    finish = last(Command.PLAN, look)
    assert faults(finish) == {}
    assert isinstance(finish, Finish)
    assert "left behind, no such partition: t-1" in finish.text


def test_an_offset_whose_messages_are_deleted_is_named_and_no_hindrance() -> None:
    finish = last(Command.PLAN, seen(None, OURS, log_starts={P0: 6, P1: 0}))
    assert faults(finish) == {}
    assert isinstance(finish, Finish)
    assert "expired: t-0: 5 is before the start of the log, 6" in finish.text
    assert "t-1" not in finish.text


def test_a_plan_says_what_to_type_next() -> None:
    finish = last(Command.PLAN, seen(None, OURS))
    assert isinstance(finish, Finish)
    assert finish.text.endswith("next: kgroup migrate start g --to kafka")


# --- start ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "mode"), [(KAFKA, DUAL_ZOOKEEPER), (ZOOKEEPER, DUAL_KAFKA)])
def test_start_orders_both_to_be_written_and_the_old_one_to_be_read(
    target: OffsetStorage, mode: OffsetMode
) -> None:
    look = seen(members={"g_a": MemberSeen(1, 0, target.other)})
    assert ordered(last(Command.START, look, target=target)) == (mode, target, 1)


def test_a_group_that_was_migrated_may_be_migrated_back() -> None:
    look = seen(FINALIZED, ("g_a", 3), **stores({"p0": 5}, {"p0": 9}))
    assert ordered(last(Command.START, look, target=ZOOKEEPER)) == (DUAL_KAFKA, ZOOKEEPER, 4)


def test_start_copies_what_the_new_store_lacks_once_it_is_seen_to_stay_so() -> None:
    behind = seen(STARTED, ("g_a", 1), **stores({"p0": 5, "p1": 7}, {"p0": 2}))
    assert last(Command.START, behind) == Look()
    assert last(Command.START, behind, behind) == Copy(KAFKA, {P0: 5, P1: 7})
    moved = seen(STARTED, ("g_a", 1), **stores({"p0": 6, "p1": 7}, {"p0": 5}))
    assert last(Command.START, behind, moved) == Copy(KAFKA, {P1: 7})


def test_start_ends_when_all_obey() -> None:
    looks = [seen(STARTED, ("g_a", epoch), now_ms=now) for epoch, now in [(0, 0), (0, 1), (1, 2)]]
    assert last(Command.START, *looks[:2]) == Look()
    assert faults(last(Command.START, *looks)) == {}


def test_start_names_members_that_were_there_before_and_do_not_obey() -> None:
    looks = [
        seen(STARTED, ("g_a", 1), ("g_jvm", None), ("g_slow", 0), now_ms=now) for now in (0, 20_000)
    ]
    assert last(Command.START, looks[0]) == Look()
    assert faults(last(Command.START, *looks)) == {"g_jvm": "NOT_OBEYING", "g_slow": "NOT_OBEYING"}


def test_a_stranger_that_came_after_start_may_have_come_with_the_right_settings() -> None:
    restarted = {"g_a": MemberSeen(10, 1), "g_jvm": MemberSeen(60)}
    looks = [seen(STARTED, now_ms=now, members=restarted) for now in (0, 20_000)]
    assert faults(last(Command.START, *looks)) == {}


@pytest.mark.parametrize(
    ("target", "migration"),
    [(ZOOKEEPER, STARTED), (ZOOKEEPER, CROSSED), (KAFKA, TURNED), (ZOOKEEPER, TURNED)],
)
@pytest.mark.parametrize("command", [Command.PLAN, Command.START])
def test_a_second_migration_of_a_group_is_refused(
    command: Command, target: OffsetStorage, migration: GroupMigration
) -> None:
    effect = last(command, seen(migration, ("g_a", 0)), target=target)
    assert faults(effect) == {"migration": "MIGRATION_UNDER_WAY"}


@pytest.mark.parametrize(("target", "migration"), [(KAFKA, FINALIZED), (ZOOKEEPER, ROLLED_BACK)])
def test_a_group_that_is_there_already_is_left_alone(
    target: OffsetStorage, migration: GroupMigration
) -> None:
    assert faults(last(Command.START, seen(migration, ("g_a", 0)), target=target)) == {}
