"""What a command sees of a migration, and what it decides."""

from collections.abc import Mapping
from typing import Any

import attrs

from offsets.migration import Command, Effect, Finish, Rewrite, Run, decide
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
NOT_A_NUMBER = Obstacle("/x", "ZnodeError", "b'abc' is not a decimal number")


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
