"""An assertion: no event loop's thread waits for a disk, for all its clients would wait too.

fsync, rename, unlink and the reading of directories take microseconds on an idle disk, and seconds
on a busy one. Methods that do these below a log directory are marked `off_loop`, and refused on a
thread that runs an event loop. That is for tests and for clusters under test, which set
KGROUP_LOOP_GUARD=1. A broker in production checks a flag and refuses nothing.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from functools import wraps
from types import FrameType
from typing import ClassVar, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

VARIABLE = "KGROUP_LOOP_GUARD"
CALLERS_NAMED = 8

EXCEPTIONS: dict[str, str] = {
    "tests.broker.": "a test that calls a log itself stands for a thread",
    "tests.compaction.house.House.": "a test that calls a log itself stands for a thread",
    "tests.compaction.cleaner.": "a test that calls a log itself stands for a thread",
    "tests.compaction.test_": "a test that calls a log itself stands for a thread",
    "kgroup.testing.simulation.cluster.Cluster.": "it looks at a disk from outside",
    "kgroup.testing.simulation.node.Node.": "it looks at a disk from outside",
    "tests.simulation.invariants.": "they look at a disk from outside",
    "kgroup.testing.simulation.faults.": "they look at a disk from outside",
    "compaction.clean.": "a worker's process does it; in simulations a step of it is one turn",
    "broker.replication.directory_moves.DirectoryMoves.move": "an operator moves one replica",
    "broker.cluster.identity.": "a broker that starts, and serves nobody yet, stores its id",
    "core_log.log_manager.LogManager.get_or_create": "no thread could create the log; it says why",
    "core_log.log_manager.LogManager.sync_names": "a deletion came between two LeaderAndIsr",
}
"""Prefixes of functions that may wait for a disk, with all that they call, and the reasons."""


class OnEventLoop(AssertionError):
    """An event loop's thread would wait for a disk."""


class _Guard:
    is_on = os.environ.get(VARIABLE) == "1"
    refusals: ClassVar[list[str]] = []


def turn_on() -> None:
    """Refuse from now on, here and in the processes that this one starts."""
    _Guard.is_on = True
    os.environ[VARIABLE] = "1"


def take_refusals() -> list[str]:
    """Return the refusals since the last call. A caller may have swallowed the exceptions."""
    refusals = _Guard.refusals
    _Guard.refusals = []
    return refusals


def off_loop(method: Callable[P, R]) -> Callable[P, R]:
    """Refuse a method on an event loop's thread."""

    @wraps(method)
    def checked(*arguments: P.args, **keywords: P.kwargs) -> R:
        # The public function raises where there is no loop: this one is cheaper.
        if _Guard.is_on and asyncio._get_running_loop() is not None:
            _refuse(method.__qualname__)
        return method(*arguments, **keywords)

    return checked


def _refuse(name: str) -> None:
    # Two frames up: the caller of the refused method.
    callers = _callers(sys._getframe(2))
    if any(caller.startswith(exempt) for caller in callers for exempt in EXCEPTIONS):
        return

    refusal = f"{name} on an event loop, by {' < '.join(callers[:CALLERS_NAMED])}"
    _Guard.refusals.append(refusal)
    raise OnEventLoop(refusal)


def _callers(frame: FrameType | None) -> list[str]:
    """List the functions in this turn of the loop, the innermost first."""
    names: list[str] = []
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        # asyncio called this turn: what is further out did not ask for the disk.
        if module.startswith("asyncio."):
            break
        names.append(f"{module}.{frame.f_code.co_qualname}")
        frame = frame.f_back
    return names
