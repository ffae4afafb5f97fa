"""Migrations whose commands and members are killed at every write, with commits going on.

`MigratingGroup` checks the claim of `offsets.migration` after every step. These tests choose what
is killed, and when, and check the end.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal

import pytest

from offsets.migration import Command, Run
from tests.clients.migrating_group import (
    PARTITIONS,
    Death,
    Killed,
    MigratingGroup,
)
from tests.stage.clock import run_in_virtual_time
from zk.migration_znodes import OffsetMode, OffsetStorage

KAFKA, ZOOKEEPER = OffsetStorage.KAFKA, OffsetStorage.ZOOKEEPER
MAX_WRITES = 12

Victim = Literal["command", "member", "zookeeper", "coordinator"]
When = Literal["before", "after"]
LOSSES: list[tuple[Victim, When]] = [
    ("command", "before"),
    ("command", "after"),
    ("member", "before"),
    ("member", "after"),
    ("zookeeper", "after"),
    ("coordinator", "after"),
]


def of_every_death(phases: Sequence[Any]) -> list[Any]:
    """Return each death in each phase, on the way to Kafka; on the way back a few in each run.

    These have each death once, and each phase.
    """
    return [
        pytest.param(
            phase,
            when,
            victim,
            target,
            marks=() if target is KAFKA or death % len(phases) == number else pytest.mark.product,
        )
        for target in (KAFKA, ZOOKEEPER)
        for death, (victim, when) in enumerate(LOSSES)
        for number, phase in enumerate(phases)
    ]


def run_of(command: Command, target: OffsetStorage) -> Run:
    return Run(command=command, target=target, commits=2, seconds=2, wait_ms=30_000, overwrite=True)


def play(
    target: OffsetStorage, seed: int, scene: Callable[[MigratingGroup], Coroutine[Any, Any, None]]
) -> None:
    async def whole() -> None:
        world = MigratingGroup(target.other, seed)
        leave_leftovers(world, target)
        await world.begin()
        await scene(world)
        assert world.steps > 100, "nothing was checked"
        await world.end()

    run_in_virtual_time(whole())


def leave_leftovers(world: MigratingGroup, target: OffsetStorage) -> None:
    """Put old offsets into the target, far ahead of the group."""
    if target is KAFKA:
        world.kafka.offsets |= {PARTITIONS[0]: 10_000, PARTITIONS[1]: 0}


def death_of(world: MigratingGroup, victim: Victim, at: int, when: When) -> Death:
    def kill_command() -> None:
        raise Killed

    strikes: dict[Victim, Callable[[], None]] = {
        "command": kill_command,
        "member": world.kill_one,
        "zookeeper": lambda: world.cut_off_from_zookeeper(world.session_of_command),
        "coordinator": world.lose_coordinator,
    }
    return Death(at, when, strikes[victim])


async def succeeds(world: MigratingGroup, run: Run, death: Death | None = None) -> None:
    finish = await world.command(run, death)
    assert finish is not None
    assert finish.obstacles == (), finish


async def settles(world: MigratingGroup, mode: OffsetMode) -> None:
    """Check that all members are in the mode, and that its store has all processed offsets."""
    await asyncio.sleep(10)
    assert world.modes() == {mode}
    for consumer in world.consumers.values():
        assert consumer.positions
    async with world.rests():
        for partition, processed in world.processed.items():
            assert world.read_stored(mode.reads, partition) == processed
    world.step()


async def verifies(world: MigratingGroup, target: OffsetStorage, death: Death | None) -> None:
    """Verify; then both stores hold the same as soon as no commit is in flight."""
    await succeeds(world, run_of(Command.VERIFY, target), death)
    async with world.rests():
        assert in_step(world)


def in_step(world: MigratingGroup) -> bool:
    return all(world.read_stored(KAFKA, p) == world.read_stored(ZOOKEEPER, p) for p in PARTITIONS)


@pytest.mark.parametrize(
    ("killed", "when", "victim", "target"),
    of_every_death([Command.START, Command.VERIFY, Command.FINALIZE]),
)
def test_a_migration_survives_a_death_at_any_write(
    killed: Command, when: When, victim: Victim, target: OffsetStorage
) -> None:
    deaths = 0

    async def scene(world: MigratingGroup) -> None:
        nonlocal deaths
        for command in (Command.START, Command.VERIFY, Command.FINALIZE):
            death = death_of(world, victim, at, when) if command is killed else None
            if command is Command.VERIFY:
                await verifies(world, target, death)
            else:
                await succeeds(world, run_of(command, target), death)
            deaths += death is not None and death.has_struck
        await settles(world, OffsetMode(target.value))

    for at in range(1, MAX_WRITES):
        before = deaths
        play(target, at, scene)
        if deaths == before:
            break
    assert 3 <= deaths < MAX_WRITES - 1


async def crosses(world: MigratingGroup, target: OffsetStorage) -> None:
    """Kill finalize when members have just been ordered to read the new store."""
    death = death_of(world, "command", 2, "after")
    assert await world.command(run_of(Command.FINALIZE, target), death, again=False) is None
    assert OffsetMode(f"dual-{target}") in world.modes()


@pytest.mark.parametrize(
    ("reached", "when", "victim", "target"), of_every_death(["started", "crossed", "finalized"])
)
def test_a_rollback_survives_a_death_at_any_write(
    reached: str, when: When, victim: Victim, target: OffsetStorage
) -> None:
    deaths = 0

    async def scene(world: MigratingGroup) -> None:
        nonlocal deaths
        await succeeds(world, run_of(Command.START, target))
        if reached != "started":
            await verifies(world, target, None)
        if reached == "crossed":
            await crosses(world, target)
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
        play(target, at, scene)
        if deaths == before:
            break
    assert 3 <= deaths < MAX_WRITES - 1
