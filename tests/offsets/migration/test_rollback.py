"""The way back to the old store."""

import pytest

from offsets.migration import Command, Copy, Look
from offsets.migration_evidence import STUCK_MS
from tests.offsets.migration.observations import (
    CROSSED,
    DUAL_KAFKA,
    DUAL_ZOOKEEPER,
    FINALIZED,
    GOING_BACK,
    IN_ZOOKEEPER,
    KAFKA,
    NOT_A_NUMBER,
    OURS,
    P0,
    P1,
    ROLLED_BACK,
    STARTED,
    TURNED,
    ZOOKEEPER,
    faults,
    last,
    moving,
    ordered,
    seen,
    stores,
)
from zk.migration_znodes import GroupMigration, OffsetMode, OffsetStorage


@pytest.mark.parametrize(
    ("migration", "order"),
    [
        (STARTED, (IN_ZOOKEEPER, ZOOKEEPER, 2)),
        (CROSSED, (DUAL_KAFKA, ZOOKEEPER, 2)),
        (FINALIZED, (DUAL_KAFKA, ZOOKEEPER, 4)),
    ],
)
def test_rollback_turns_back_from_anywhere_whoever_obeys(
    migration: GroupMigration, order: tuple[OffsetMode, OffsetStorage, int]
) -> None:
    look = seen(migration, ("g_a", migration.epoch), ("g_slow", 0), ("g_jvm", None))
    assert ordered(last(Command.ROLLBACK, look)) == order


def test_rollback_brings_the_old_store_up_to_date_before_anybody_reads_it() -> None:
    behind = stores({"p0": 5}, {"p0": 90, "p1": 7})
    looks = [seen(TURNED, ("g_a", 4), now_ms=now, **behind) for now in (0, STUCK_MS)]
    assert last(Command.ROLLBACK, looks[0]) == Look()
    assert last(Command.ROLLBACK, *looks) == Copy(ZOOKEEPER, {P0: 90, P1: 7})


def test_rollback_crosses_when_the_old_store_is_proven_and_not_before() -> None:
    looks = moving(TURNED, ("g_a", 4))
    assert last(Command.ROLLBACK, *looks[:20]) == Look()
    assert ordered(last(Command.ROLLBACK, *looks)) == (DUAL_ZOOKEEPER, ZOOKEEPER, 5)


def test_rollback_does_not_cross_while_a_member_may_write_the_new_store_alone() -> None:
    looks = [seen(TURNED, ("g_a", 3), now_ms=now) for now in range(0, 20_001, 1000)]
    assert last(Command.ROLLBACK, *looks[:-1]) == Look()
    assert faults(last(Command.ROLLBACK, *looks)) == {"g_a": "NOT_OBEYING"}


def test_an_offset_the_new_store_has_lost_does_not_keep_rollback_from_crossing() -> None:
    looks = [
        seen(TURNED, ("g_a", 4), now_ms=now, **stores({"p0": 5, "p1": 7}, {"p0": 5}))
        for now in (0, 10_000)
    ]
    assert ordered(last(Command.ROLLBACK, *looks)) == (DUAL_ZOOKEEPER, ZOOKEEPER, 5)


def test_rollback_leaves_the_new_store_when_all_have_crossed() -> None:
    assert last(Command.ROLLBACK, seen(GOING_BACK, ("g_a", 4))) == Look()
    effect = last(Command.ROLLBACK, seen(GOING_BACK, ("g_a", 5)))
    assert ordered(effect) == (IN_ZOOKEEPER, ZOOKEEPER, 6)
    assert faults(last(Command.ROLLBACK, seen(ROLLED_BACK, ("g_a", 6)))) == {}


@pytest.mark.parametrize(
    ("migration", "named"), [(ROLLED_BACK, {"/x": "ZnodeError"}), (FINALIZED, {})]
)
def test_an_offset_that_is_no_number_is_named_at_the_end_where_it_is_in_use(
    migration: GroupMigration, named: dict[str, str]
) -> None:
    command = Command.ROLLBACK if migration is ROLLED_BACK else Command.FINALIZE
    look = seen(migration, ("g_a", migration.epoch), unreadable=(NOT_A_NUMBER,))
    assert faults(last(command, look)) == named


def test_without_a_migration_there_is_nothing_to_roll_back() -> None:
    assert faults(last(Command.ROLLBACK, seen(None, OURS))) == {"g": "INVALID_STEP"}


def test_a_rolled_back_migration_may_be_started_again() -> None:
    effect = last(Command.START, seen(ROLLED_BACK, ("g_a", 6)))
    assert ordered(effect) == (DUAL_ZOOKEEPER, KAFKA, 7)
