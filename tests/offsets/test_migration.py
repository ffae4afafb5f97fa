"""The decisions of a command on its observations: refusals, steps, proof, and the way back."""

from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from offsets.migration import Command, Copy, Effect, Finish, Look, Rewrite, Run, decide
from offsets.migration_evidence import STUCK_MS
from offsets.migration_observation import MemberSeen, Observation, Obstacle
from protocol.topic_partition import TopicPartition
from zk.migration_znodes import GroupMigration, OffsetMode, OffsetStorage

KAFKA, ZOOKEEPER = OffsetStorage.KAFKA, OffsetStorage.ZOOKEEPER
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
NAMES = {"p0": P0, "p1": P1}

IN_ZOOKEEPER, DUAL_ZOOKEEPER, DUAL_KAFKA, IN_KAFKA = OffsetMode

STARTED = GroupMigration(
    target=KAFKA,
    goal=KAFKA,
    mode=DUAL_ZOOKEEPER,
    came_from=IN_ZOOKEEPER,
    epoch=1,
    started_at_ms=0,
)
VERIFIED = attrs.evolve(STARTED, proven=())
CROSSED = attrs.evolve(VERIFIED, mode=DUAL_KAFKA, came_from=DUAL_ZOOKEEPER, epoch=2)
FINALIZED = attrs.evolve(VERIFIED, mode=IN_KAFKA, came_from=DUAL_KAFKA, epoch=3)
TURNED = attrs.evolve(
    FINALIZED, goal=ZOOKEEPER, mode=DUAL_KAFKA, came_from=IN_KAFKA, epoch=4, proven=None
)
GOING_BACK = attrs.evolve(TURNED, mode=DUAL_ZOOKEEPER, came_from=DUAL_KAFKA, epoch=5, proven=())
ROLLED_BACK = attrs.evolve(GOING_BACK, mode=IN_ZOOKEEPER, came_from=DUAL_ZOOKEEPER, epoch=6)


def stores(zookeeper: Mapping[str, int], kafka: Mapping[str, int]) -> dict[str, Any]:
    return {
        "zookeeper": {NAMES[name]: offset for name, offset in zookeeper.items()},
        "kafka": {NAMES[name]: offset for name, offset in kafka.items()},
    }


EQUAL = stores({"p0": 5, "p1": 7}, {"p0": 5, "p1": 7})
ONLY_ZOOKEEPER = stores({"p0": 5, "p1": 7}, {})


@attrs.frozen(kw_only=True)
class SeenAt(Observation):
    """A look, and the time of it."""

    now_ms: int


def seen(
    migration: GroupMigration | None = None,
    *members: tuple[str, int | None],
    now_ms: int = 0,
    **others: Any,
) -> SeenAt:
    """Build an observation. `members`: names, and the epoch they acknowledge, or None."""
    return SeenAt(
        group="g",
        now_ms=now_ms,
        migration=migration,
        version=0,
        mzxid=50,
        **{
            "members": {name: MemberSeen(10, epoch, "zookeeper") for name, epoch in members},
            "owners": {P0: members[0][0]} if members else {},
            **EQUAL,
            **others,
        },
    )


def last(command: Command, *looks: SeenAt, **options: Any) -> Effect:
    """Return the decision after the last look."""
    effect: Effect | None = None
    run = Run(**{"command": command, "target": KAFKA, "wait_ms": 20_000, **options})
    for look in looks:
        run, effect = decide(run, look, look.now_ms)
    assert effect is not None
    return effect


def faults(effect: Effect) -> dict[str, str]:
    assert isinstance(effect, Finish), effect
    return {fault.what: fault.error for fault in effect.obstacles}


def ordered(effect: Effect) -> tuple[OffsetMode, OffsetStorage, int]:
    assert isinstance(effect, Rewrite), effect
    return effect.migration.mode, effect.migration.goal, effect.migration.epoch


OURS = ("g_a", 0)
NO_LEADER = Obstacle("t-0", "LEADER_NOT_AVAILABLE", "there is no leader now")
NOT_A_NUMBER = Obstacle("/x", "ZnodeError", "b'abc' is not a decimal number")

# --- plan and refusals ----------------------------------------------------------------------------


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


# --- verify ---------------------------------------------------------------------------------------


def moving(
    migration: GroupMigration, member: tuple[str, int | None], kafka_follows: bool = True
) -> list[SeenAt]:
    """Return looks at a partition that is committed again and again, for 11 seconds."""
    return [
        seen(
            migration,
            member,
            now_ms=now,
            **stores({"p0": now}, {"p0": now if kafka_follows else 0}),
        )
        for now in range(0, 11_000, 500)
    ]


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


# --- finalize -------------------------------------------------------------------------------------


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


# --- rollback -------------------------------------------------------------------------------------


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


# --- status ---------------------------------------------------------------------------------------


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
