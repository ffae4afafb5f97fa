"""An assertion: nobody waits for a disk on an event loop's thread, and with him all it serves.

fsync, rename, unlink and the reading of directories take microseconds on an idle disk, and seconds
on a busy one. What does these below a log directory is marked `off_loop`, and refused on a thread
that runs an event loop. That is for tests and for clusters under test, which set
KGROUP_LOOP_GUARD=1: a broker in production looks at a flag, and refuses nothing.
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
    "tests.compaction.test_": "a test that calls a log itself stands for a thread",
    "tests.simulation.cluster.Cluster.": "who looks at a disk from outside",
    "tests.simulation.cluster.Node.": "who looks at a disk from outside",
    "tests.simulation.invariants.": "who looks at a disk from outside",
    "tests.simulation.faults.": "who looks at a disk from outside",
    "compaction.clean.": "a worker's own process does it; in simulations a step of it is one turn",
    "broker.replication.directory_moves.DirectoryMoves.move": "an operator has one future log made",
    "broker.cluster.identity.": "a broker that starts, and serves nobody yet, stores its id",
    "core_log.log_manager.LogManager.get_or_create": "a log that no thread could make, to say why",
    "core_log.log_manager.LogManager.sync_names": "where a deletion came between two LeaderAndIsr",
}
"""The functions that may with all that they call, by how their names begin, and why."""


class OnEventLoop(AssertionError):
    """A disk is waited for on an event loop's thread."""


class _Guard:
    is_on = os.environ.get(VARIABLE) == "1"
    refused: ClassVar[list[str]] = []


def turn_on() -> None:
    """Refuse from now on, here and in the processes that are started."""
    _Guard.is_on = True
    os.environ[VARIABLE] = "1"


def take_refusals() -> list[str]:
    """What was refused since this was last asked: who catches exceptions may have hidden it."""
    refused, _Guard.refused = _Guard.refused, []
    return refused


def off_loop(method: Callable[P, R]) -> Callable[P, R]:
    """Make a method one that is refused on an event loop's thread."""

    @wraps(method)
    def checked(*arguments: P.args, **keywords: P.kwargs) -> R:
        if _Guard.is_on and asyncio._get_running_loop() is not None:
            _refuse(method.__qualname__)
        return method(*arguments, **keywords)

    return checked


def _refuse(what: str) -> None:
    callers = _callers(sys._getframe(2))
    if any(caller.startswith(exempt) for caller in callers for exempt in EXCEPTIONS):
        return
    told = f"{what} on an event loop, by {' < '.join(callers[:CALLERS_NAMED])}"
    _Guard.refused.append(told)
    raise OnEventLoop(told)


def _callers(frame: FrameType | None) -> list[str]:
    """The functions under way in this turn of the loop, the last one first."""
    names: list[str] = []
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("asyncio."):
            break
        names.append(f"{module}.{frame.f_code.co_qualname}")
        frame = frame.f_back
    return names
