"""Migrations whose commands and members are killed at every write, with commits going on.

The claim of `offsets.migration` is checked by `MigratingGroup` after every step; here is what is
killed when, and what must have come of it in the end.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Literal

import pytest

from offsets.migration import Command, Finish, Run
from protocol.topic_partition import TopicPartition
from tests.clients.migrating_group import (
    COMMIT_INTERVAL_S,
    PARTITIONS,
    Death,
    Killed,
    MigratingGroup,
)
from tests.virtual_time import VirtualTimeLoop
from zk.migration_znodes import OffsetMode, OffsetStorage

KAFKA, ZOOKEEPER = OffsetStorage.KAFKA, OffsetStorage.ZOOKEEPER
MAX_WRITES = 12

When = Literal["before", "after"]
Victim = Literal["command", "member"]


def run_of(command: Command, target: OffsetStorage) -> Run:
    return Run(command=command, target=target, commits=2, seconds=2, wait_ms=30_000, overwrite=True)


def play(
    target: OffsetStorage, scene: Callable[[MigratingGroup], Coroutine[Any, Any, None]]
) -> None:
    async def whole() -> None:
        world = MigratingGroup(target.other, seed=7)
        leave_leftovers(world, target)
        await world.begin()
        await scene(world)
        assert world.steps > 100, "nothing was checked"
        await world.end()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(whole())


def leave_leftovers(world: MigratingGroup, target: OffsetStorage) -> None:
    """The target has been used in an earlier life: far ahead of where the group is now."""
    if target is KAFKA:
        world.kafka.offsets |= {PARTITIONS[0]: 10_000, PARTITIONS[1]: 0}


def death_of(world: MigratingGroup, victim: Victim, at: int, when: When) -> Death:
    def strike() -> None:
        if victim == "command":
            raise Killed
        world.kill_one()

    return Death(at, when, strike)


async def succeeds(world: MigratingGroup, run: Run, death: Death | None = None) -> None:
    finish = await world.command(run, death)
    assert finish.faults == (), finish


async def settles(world: MigratingGroup, mode: OffsetMode) -> None:
    """All members are in the mode, and the store it reads has all that was acknowledged."""
    await asyncio.sleep(10)
    assert world.modes() == {mode}
    for consumer in world.consumers.values():
        assert consumer.positions
    world.step()


def in_step(world: MigratingGroup) -> bool:
    return all(world.stored(KAFKA, p) == world.stored(ZOOKEEPER, p) for p in PARTITIONS)


@pytest.mark.parametrize("target", [KAFKA, ZOOKEEPER])
@pytest.mark.parametrize("victim", ["command", "member"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("killed", [Command.START, Command.VERIFY, Command.FINALIZE])
def test_a_migration_survives_a_death_at_any_write(
    killed: Command, when: When, victim: Victim, target: OffsetStorage
) -> None:
    deaths = 0

    async def scene(world: MigratingGroup) -> None:
        nonlocal deaths
        for command in (Command.START, Command.VERIFY, Command.FINALIZE):
            death = death_of(world, victim, at, when) if command is killed else None
            await succeeds(world, run_of(command, target), death)
            deaths += death is not None and death.has_struck
        await settles(world, OffsetMode(target.value))

    for at in range(1, MAX_WRITES):
        before = deaths
        play(target, scene)
        if deaths == before:
            break
    assert 3 <= deaths < MAX_WRITES - 1


async def crossed(world: MigratingGroup, target: OffsetStorage) -> None:
    """Finalize, and have it killed when members have been told to read the new store."""
    session = world.zk.session()
    await session.start()
    finalize = asyncio.create_task(world.command(run_of(Command.FINALIZE, target)))
    while OffsetMode(f"dual-{target}") not in world.modes():
        await asyncio.sleep(0.001)
    finalize.cancel()
    world.zk.expire(
        next(s for s in world.zk._sessions if f"{s.session_id}" in command_holders(world))
    )


def command_holders(world: MigratingGroup) -> set[str]:
    node = world.zk.tree.get("/kgroup/migrations/g/command")
    return {str(node.ephemeral_owner)} if node else set()


@pytest.mark.parametrize("target", [KAFKA, ZOOKEEPER])
@pytest.mark.parametrize("victim", ["command", "member"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("reached", ["started", "crossed", "finalized"])
def test_a_rollback_survives_a_death_at_any_write(
    reached: str, when: When, victim: Victim, target: OffsetStorage
) -> None:
    deaths = 0

    async def scene(world: MigratingGroup) -> None:
        nonlocal deaths
        await succeeds(world, run_of(Command.START, target))
        if reached != "started":
            await succeeds(world, run_of(Command.VERIFY, target))
        if reached == "crossed":
            await crossed(world, target)
        elif reached == "finalized":
            await succeeds(world, run_of(Command.FINALIZE, target))
            await asyncio.sleep(5)
            assert not in_step(world)
        death = death_of(world, victim, at, when)
        await succeeds(world, run_of(Command.ROLLBACK, target), death)
        deaths += death.has_struck
        await settles(world, OffsetMode(target.other.value))

    for at in range(1, MAX_WRITES):
        before = deaths
        play(target, scene)
        if deaths == before:
            break
    assert 3 <= deaths < MAX_WRITES - 1
