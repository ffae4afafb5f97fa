"""What a migration's status says."""

import attrs
import pytest

from offsets.migration import Command, Finish
from tests.offsets.migration.observations import (
    CROSSED,
    FINALIZED,
    GOING_BACK,
    NOT_A_NUMBER,
    ROLLED_BACK,
    STARTED,
    TURNED,
    VERIFIED,
    SeenAt,
    faults,
    last,
    seen,
)
from zk.migration_znodes import GroupMigration


def said_of(look: SeenAt) -> str:
    effect = last(Command.STATUS, look)
    assert isinstance(effect, Finish)
    return effect.text


def test_status_names_what_cannot_be_read() -> None:
    effect = last(Command.STATUS, seen(STARTED, ("g_a", 1), unreadable=(NOT_A_NUMBER,)))
    assert faults(effect) == {"/x": "ZnodeError"}


def test_where_no_member_lives_nobody_is_said_to_obey() -> None:
    assert "proven: no member lives, nobody has to obey (epoch 1)" in said_of(seen(STARTED))
    plan = last(Command.PLAN, seen(None))
    assert isinstance(plan, Finish)
    assert "no member lives: start, verify and finalize need no waiting" in plan.text


def test_a_member_that_was_proven_is_no_longer_told_to_restart() -> None:
    proven = attrs.evolve(VERIFIED, proven=("g_jvm",))
    said = said_of(seen(proven, ("g_a", 1), ("g_jvm", None), ("g_late", None)))
    assert "proven: not ours, but written both: g_jvm\n" in said
    assert "restart if it has not: g_late\n" in said


@pytest.mark.parametrize(
    ("migration", "verb"),
    [
        (None, "plan"),
        (STARTED, "verify"),
        (VERIFIED, "finalize"),
        (CROSSED, "finalize"),
        (TURNED, "rollback"),
        (GOING_BACK, "rollback"),
    ],
)
def test_status_says_what_to_type_next(migration: GroupMigration | None, verb: str) -> None:
    assert f"\nnext: kgroup migrate {verb} g" in said_of(seen(migration))


@pytest.mark.parametrize(
    ("migration", "step"),
    [
        (STARTED, "started"),
        (VERIFIED, "verified"),
        (CROSSED, "finalizing"),
        (FINALIZED, "finalized"),
        (TURNED, "rolling-back"),
        (GOING_BACK, "rolling-back"),
        (ROLLED_BACK, "rolled-back"),
    ],
)
def test_status_says_where_it_stands_and_what_is_proven(
    migration: GroupMigration, step: str
) -> None:
    effect = last(Command.STATUS, seen(migration, ("g_a", migration.epoch), ("g_b", 0)))
    assert isinstance(effect, Finish)
    assert effect.text.startswith(f"g: {step}: members ")
    assert f"proven: 1 of 2 members obey (epoch {migration.epoch})" in effect.text
