"""Run a scene on a simulated cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import TypeVar, cast

from kgroup.testing.simulation.cluster import EVERY_RECORD_FLUSHED, Cluster
from kgroup.testing.simulation.faults import Faults
from kgroup.testing.story import Violation

R = TypeVar("R")


def simulate(
    scene: Callable[[Cluster, Faults], Awaitable[R]],
    *,
    seed: int,
    brokers: int = 3,
    topics: Mapping[str, int] | None = None,
    settings: Mapping[str, str] | None = None,
) -> R:
    """Run `scene(cluster, faults)` in virtual time on a cluster made from `seed`.

    The scene begins when all `brokers` serve and `topics`, given with their numbers of partitions,
    have leaders; each partition has a replica on every broker, three at most. What the scene
    returns is returned. The same seed and the same code make the same run, to the last word of its
    story.

    `settings` are for all brokers. Every record is flushed unless they say otherwise
    (`log.flush.interval.messages`), so that a record that was acknowledged with acks=all outlives
    every fault, power failures too.

    Raises Violation, with the story as its `story` and its note, when the scene or a client raises.
    Raises RuntimeError where an event loop runs, and SettingsError for wrong settings.
    """
    if asyncio._get_running_loop() is not None:
        raise RuntimeError("simulate() brings an event loop of its own: call it where none runs")

    cluster = Cluster(seed, brokers=brokers, settings={**EVERY_RECORD_FLUSHED, **(settings or {})})
    faults = Faults(cluster, Random(cluster.rng.random()))

    async def live() -> R:
        await cluster.begin(topics or {})
        return await scene(cluster, faults)

    try:
        return cast(R, cluster.world.run(live()))
    except Violation as violation:
        violation.story = cluster.story.transcript()
        violation.add_note(violation.story)
        raise
