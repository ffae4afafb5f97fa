"""Whoever stops an event loop in a test is told so."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from functools import partial

import pytest

from tests.broker.replication.replicas import AtOnce
from tests.stage import turn_guard
from tests.stage.bytecodes import bytecodes_of
from tests.stage.clock import ImpatientLoop, OwnTimeLoop, VirtualTimeLoop


def compute(seconds: float) -> None:
    """Keep the processor busy, for so much of its time."""
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        pass


async def computing(seconds: float) -> None:
    compute(seconds)


LOOPS: list[Callable[[], asyncio.AbstractEventLoop] | None] = [
    None,
    VirtualTimeLoop,
    OwnTimeLoop,
    ImpatientLoop,
]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_turn_that_computes_for_long_is_a_fault(
    loop: Callable[[], asyncio.AbstractEventLoop] | None,
) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(computing(turn_guard.LONGEST_TURN_S * 1.1))
    complaint = turn_guard.complaint("tests/some_test.py::test")
    turn_guard.begin()  # for this test may
    assert complaint is not None
    assert complaint.startswith("a turn of an event loop took 0.")


def test_garbage_that_is_collected_in_a_turn_does_not_count() -> None:
    async def collecting() -> None:
        began = time.thread_time()
        while time.thread_time() - began < turn_guard.LONGEST_TURN_S * 1.1:
            gc.collect()

    asyncio.run(collecting())
    assert turn_guard.complaint("tests/some_test.py::test") is None


def test_work_that_is_slowed_by_the_counting_of_its_bytecodes_does_not_count() -> None:
    async def counting() -> None:
        assert bytecodes_of(lambda: compute(turn_guard.LONGEST_TURN_S * 1.1)) > 0

    asyncio.run(counting())
    assert bytecodes_of(lambda: asyncio.run(computing(turn_guard.LONGEST_TURN_S * 1.1))) > 0
    assert turn_guard.complaint("tests/some_test.py::test") is None


def test_work_in_place_of_a_thread_does_not_count_wherever_it_is_asked_for() -> None:
    async def asking() -> None:
        submit = partial(AtOnce().submit, compute, turn_guard.LONGEST_TURN_S * 1.1)
        submit().result()
        bytecodes_of(lambda: submit().result())

    asyncio.run(asking())
    assert turn_guard.complaint("tests/some_test.py::test") is None


def test_what_a_turn_computes_beside_slowed_work_counts() -> None:
    async def turn() -> None:
        bytecodes_of(lambda: None)
        compute(turn_guard.LONGEST_TURN_S * 1.1)

    asyncio.run(turn())
    complaint = turn_guard.complaint("tests/some_test.py::test")
    turn_guard.begin()  # for this test may
    assert complaint is not None


def test_many_turns_that_compute_a_little_are_none() -> None:
    async def turns() -> None:
        for _ in range(4):
            compute(turn_guard.LONGEST_TURN_S / 4)
            await asyncio.sleep(0)

    asyncio.run(turns())
    assert turn_guard.complaint("tests/some_test.py::test") is None


def test_every_exception_says_why() -> None:
    assert all(turn_guard.EXCEPTIONS.values())
