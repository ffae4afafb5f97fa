"""What a piece of work costs, and whether the cost grows faster than what is worked on.

Costs are counts, which no load on the machine changes. The work is done in a simulated cluster,
where brokers and clients are processes of one virtual world, so that the turns of each are known.
"""

from __future__ import annotations

import gc
import itertools
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

import attrs

from clients.transport.connection import Connection
from kgroup.testing.simulation.cluster import Cluster
from kgroup.testing.simulation.sim_loop import SimLoop
from kgroup.testing.simulation.zookeeper import SimSession

ROOM = 1.35
"""By so much a cost may grow faster than its size, for longer varints and for sorting."""
FREE = {"calls": 20_000, "turn": 20_000, "requests": 40, "zookeeper": 40, "kept": 2_000}
"""A cost below this is a matter of the cluster's own timers, not of the size."""
FREE_KEPT = 5
"""Blocks of memory that each thing may keep, however few a smaller number of them kept."""


@attrs.frozen
class Cost:
    """What was counted, in brokers and clients together.

    - `calls`: of Python's functions.
    - `turn`: the most calls in one turn of an event loop.
    - `requests`: that clients sent to brokers.
    - `zookeeper`: requests to ZooKeeper.
    - `kept`: blocks of memory that are kept afterwards.
    """

    calls: int = 0
    turn: int = 0
    requests: int = 0
    zookeeper: int = 0
    kept: int = 0

    def less(self, idle: Cost) -> Cost:
        """Return the cost without what an idle cluster does in the same time."""
        return attrs.evolve(
            self,
            calls=max(self.calls - idle.calls, 0),
            requests=max(self.requests - idle.requests, 0),
            zookeeper=max(self.zookeeper - idle.zookeeper, 0),
        )

    def mean(self, other: Cost) -> Cost:
        """Return what lies in the middle of two costs."""
        return Cost(
            calls=(self.calls + other.calls) // 2,
            requests=(self.requests + other.requests) // 2,
            zookeeper=(self.zookeeper + other.zookeeper) // 2,
        )

    def times(self, number: float) -> Cost:
        """Return the cost so many times."""
        return Cost(
            calls=int(self.calls * number),
            requests=int(self.requests * number),
            zookeeper=int(self.zookeeper * number),
        )

    def of_each(self, size: int) -> Cost:
        """Return what each of so many things costs; a turn is a turn."""
        return Cost(
            self.calls // size,
            self.turn,
            self.requests // size,
            self.zookeeper // size,
            self.kept // size,
        )


def complaints(costs: Mapping[int, Cost], turn_bound: int | None = None) -> list[str]:
    """Say which figures grow faster than the sizes, from each size to the next larger one.

    `turn_bound`: the most calls that one turn may make at any size; None where the turn may grow
    with the size, as that of a response which must be whole.
    """
    sizes = sorted(costs)
    said = []

    for smaller, larger in itertools.pairwise(sizes):
        growth = larger / smaller
        for figure in FREE:
            before = max(getattr(costs[smaller], figure), FREE[figure])
            if figure == "kept":
                before = max(before, FREE_KEPT * smaller)
            after = getattr(costs[larger], figure)
            if after > before * growth * ROOM:
                said.append(
                    f"{figure}: {before} for {smaller}, {after} for {larger}:"
                    f" {after / before:.1f} times as much"
                )

    if turn_bound is not None:
        said += [
            f"turn: {cost.turn} calls for {size}, at most {turn_bound} are allowed"
            for size, cost in sorted(costs.items())
            if cost.turn > turn_bound
        ]
    return said


@attrs.define(eq=False)
class Counter:
    """Counts what brokers and clients do; `nature` is the loop of the network and of ZooKeeper."""

    nature: SimLoop
    calls: int = 0
    turn: int = 0
    requests: int = 0
    zookeeper: int = 0
    kept: int = 0
    _counted: int | None = None

    def cost(self) -> Cost:
        """Return what was counted."""
        return Cost(self.calls, self.turn, self.requests, self.zookeeper, self.kept)

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        """Count a call; for `sys.setprofile`."""
        if event == "call":
            code = frame.f_code
            if code is _TURN:
                self._counted = None if frame.f_locals["self"] is self.nature else 0
            elif self._counted is not None:
                self._counted += 1
                if code is _SEND:
                    self.requests += 1
                elif code is _ASK_ZOOKEEPER:
                    self.zookeeper += 1
        elif event == "return" and frame.f_code is _TURN and self._counted is not None:
            self.calls += self._counted
            self.turn = max(self.turn, self._counted)
            self._counted = None


_TURN = SimLoop.turn.__code__
_SEND = Connection.send.__code__
_ASK_ZOOKEEPER = SimSession._with_late_watches.__code__


@contextmanager
def counting(cluster: Cluster) -> Iterator[Counter]:
    """Count what brokers and clients of the cluster do."""
    counter = Counter(cluster.world.nature.loop)
    gc.collect()
    before = sys.getallocatedblocks()
    sys.setprofile(counter.note)
    try:
        yield counter
    finally:
        sys.setprofile(None)
        gc.collect()
        counter.kept = max(sys.getallocatedblocks() - before, 0)
