"""The proof that both stores have the same offsets."""

import attrs
import pytest

from offsets.migration import Command, Finish, Look, Rewrite
from offsets.migration_observation import Obstacle
from tests.offsets.migration.observations import (
    FINALIZED,
    NOT_A_NUMBER,
    ROLLED_BACK,
    STARTED,
    TURNED,
    VERIFIED,
    faults,
    last,
    moving,
    seen,
    stores,
)
from zk.migration_znodes import GroupMigration


def test_verify_writes_down_its_proof_when_there_is_enough_of_it() -> None:
    looks = moving(STARTED, ("g_a", 1))
    assert last(Command.VERIFY, *looks[:20]) == Look()
    effect = last(Command.VERIFY, *looks[:21])
    assert effect == Rewrite(VERIFIED, 0)
    done = attrs.evolve(looks[21], migration=VERIFIED)
    assert faults(last(Command.VERIFY, *looks[:21], done)) == {}


def test_stores_that_stay_equal_while_nothing_moves_are_verified() -> None:
    looks = [seen(STARTED, ("g_a", 1), now_ms=now) for now in (0, 10_000)]
    assert last(Command.VERIFY, *looks) == Rewrite(VERIFIED, 0)


def test_a_group_that_has_committed_nothing_yet_is_watched_all_the_same() -> None:
    looks = [seen(STARTED, ("g_a", 1), now_ms=now, **stores({}, {})) for now in (0, 9_000, 10_000)]
    assert last(Command.VERIFY, *looks[:2]) == Look()
    assert last(Command.VERIFY, *looks) == Rewrite(VERIFIED, 0)


def test_verify_fails_with_the_partitions_that_differ() -> None:
    apart = stores({"p0": 5, "p1": 7}, {"p0": 5, "p1": 6})
    looks = [seen(STARTED, ("g_a", 1), now_ms=now, **apart) for now in range(0, 20_001, 1000)]
    effect = last(Command.VERIFY, *looks)
    assert isinstance(effect, Finish)
    assert effect.obstacles == (
        Obstacle("t-1", "DIVERGED", "different: 7 in ZooKeeper, 6 in Kafka"),
    )
    assert effect.text.startswith("not verified\ng: started: ")


@pytest.mark.parametrize("command", [Command.VERIFY, Command.FINALIZE, Command.ROLLBACK])
def test_an_offset_that_is_no_number_is_named_and_nobody_crosses(command: Command) -> None:
    migration = {Command.FINALIZE: VERIFIED, Command.ROLLBACK: TURNED}.get(command, STARTED)
    unreadable = {"unreadable": (NOT_A_NUMBER,), **stores({"p0": 5}, {"p0": 5})}
    looks = [
        seen(migration, ("g_a", migration.epoch), now_ms=now, **unreadable)
        for now in range(0, 20_001, 1000)
    ]
    assert last(command, *looks[:-1]) == Look()
    effect = last(command, *looks)
    assert isinstance(effect, Finish)
    assert effect.obstacles == (NOT_A_NUMBER,)


@pytest.mark.parametrize("command", [Command.VERIFY, Command.FINALIZE, Command.ROLLBACK])
def test_nobody_crosses_while_members_have_joined_through_the_coordinator(
    command: Command,
) -> None:
    migration = {Command.FINALIZE: VERIFIED, Command.ROLLBACK: TURNED}.get(command, STARTED)
    looks = [
        seen(migration, ("g_a", migration.epoch), now_ms=now, coordinated_members=1)
        for now in range(0, 20_001, 1000)
    ]
    assert faults(last(command, *looks)) == {"g": "NON_EMPTY_GROUP"}


def test_a_proof_that_no_longer_holds_is_taken_back() -> None:
    apart = stores({"p0": 5, "p1": 7}, {"p0": 5, "p1": 6})
    looks = [seen(VERIFIED, ("g_a", 1), now_ms=now, **apart) for now in range(0, 20_001, 1000)]
    assert last(Command.VERIFY, *looks) == Rewrite(STARTED, 0)


def test_a_member_that_says_nothing_is_proven_by_its_commits() -> None:
    effect = last(Command.VERIFY, *moving(STARTED, ("g_jvm", None)))
    assert effect == Rewrite(attrs.evolve(STARTED, proven=("g_jvm",)), 0)


@pytest.mark.parametrize("commits_to_both", [True, False])
def test_a_member_that_says_nothing_and_is_not_seen_to_write_both_is_named(
    commits_to_both: bool,
) -> None:
    if commits_to_both:  # of nothing that moves
        looks = [seen(STARTED, ("g_jvm", None), now_ms=now) for now in range(0, 20_001, 1000)]
    else:
        looks = moving(STARTED, ("g_jvm", None), kafka_follows=False)
    effect = last(Command.VERIFY, *looks, wait_ms=10_500)
    assert faults(effect)["g_jvm"] == "NOT_OBEYING"


def test_a_member_the_user_vouches_for_needs_no_commits() -> None:
    looks = [seen(STARTED, ("g_jvm", None), now_ms=now) for now in (0, 10_000)]
    effect = last(Command.VERIFY, *looks, trusted=frozenset({"g_jvm"}))
    assert effect == Rewrite(attrs.evolve(STARTED, proven=("g_jvm",)), 0)


def test_a_group_without_members_is_verified_at_one_look() -> None:
    assert last(Command.VERIFY, seen(STARTED)) == Rewrite(VERIFIED, 0)


@pytest.mark.parametrize("migration", [None, FINALIZED, ROLLED_BACK])
def test_where_one_store_is_written_there_is_nothing_to_verify(
    migration: GroupMigration | None,
) -> None:
    assert faults(last(Command.VERIFY, seen(migration))) == {"g": "INVALID_STEP"}
