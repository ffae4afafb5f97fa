"""The loops of the stories: virtual time, interleaving by the seed, death and pause."""

from __future__ import annotations

import asyncio
import gc
import weakref

from kgroup.testing.simulation.world import World


def test_a_time_out_takes_virtual_time_alone() -> None:
    world = World(1)

    async def live() -> None:
        try:
            async with asyncio.timeout(3600):
                await asyncio.get_running_loop().create_future()
        except TimeoutError:
            return

    world.run(live())
    assert 3600 <= world.now < 3600.1


def test_processes_interleave_by_the_seed_alone() -> None:
    def told(seed: int) -> str:
        world, said = World(seed), list[str]()

        async def speak(name: str) -> None:
            for _ in range(20):
                await asyncio.sleep(0)
                said.append(name)

        for name in "abc":
            world.process(name).spawn(speak(name))
        world.run(asyncio.sleep(1))
        return "".join(said)

    assert told(1) == told(1)
    assert told(1) != told(2)


def test_a_killed_process_runs_no_finally_and_a_paused_one_is_late() -> None:
    world, said = World(1), list[tuple[str, float]]()

    async def wait(name: str) -> None:
        try:
            await asyncio.sleep(2)
        finally:
            said.append((name, round(world.now)))

    async def live() -> None:
        killed, paused = world.process("killed"), world.process("paused")
        killed.spawn(wait("killed"))
        paused.spawn(wait("paused"))
        await asyncio.sleep(1)
        killed.kill()
        paused.pause()
        await asyncio.sleep(5)
        paused.resume()
        await asyncio.sleep(1)
        assert said == [("paused", 6)]

    world.run(live())


def test_nothing_outlives_a_story_that_ends_in_the_middle() -> None:
    """Last words may begin tasks, which would otherwise wait in a loop of the thread for ever."""

    def live() -> weakref.ref[World]:
        world = World(1)

        async def close() -> None:
            await asyncio.sleep(world.now)

        async def close_in_the_end() -> None:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                await asyncio.gather(close(), close())

        world.process("a").spawn(close_in_the_end())
        world.run(asyncio.sleep(1))
        return weakref.ref(world)

    asyncio.set_event_loop(loop_of_the_thread := asyncio.new_event_loop())
    try:
        ended = live()
        gc.collect()
        assert ended() is None
    finally:
        loop_of_the_thread.close()
        asyncio.set_event_loop(None)
