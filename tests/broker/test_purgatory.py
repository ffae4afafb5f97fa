"""A waiting request is answered once: when it can be, or when its time is up."""

from __future__ import annotations

import asyncio
from typing import Any

from broker.purgatory import Purgatory, Wait


def waiting(answers: list[Any], *keys: str, timeout_ms: int = 60_000) -> Wait:
    """A wait whose tries take what is left in `answers`; expiry gives "late"."""

    def try_complete(expired: bool) -> Any:
        return "late" if expired else answers.pop(0)

    return Wait(keys, timeout_ms, try_complete)


async def test_a_touch_of_any_of_its_keys_tries_it() -> None:
    purgatory, done = Purgatory(), []
    purgatory.park(waiting([None, "now"], "a", "b"), done.append)
    purgatory.touch("a")
    assert done == []
    purgatory.touch("b")
    assert done == ["now"]


async def test_keys_touched_together_try_it_once() -> None:
    purgatory, done = Purgatory(), []
    purgatory.park(waiting([None, "now"], "a", "b"), done.append)
    purgatory.touch("a", "b")
    assert done == []
    purgatory.touch("b", "c")
    assert done == ["now"]


async def test_it_is_answered_once_and_then_forgotten() -> None:
    purgatory, done = Purgatory(), []
    purgatory.park(waiting(["now"], "a", "a"), done.append)
    purgatory.touch("a")
    purgatory.touch("a")
    assert (done, purgatory.parked) == (["now"], 0)


async def test_without_time_it_is_answered_at_once() -> None:
    done: list[Any] = []
    assert Purgatory().park(waiting([], "a", timeout_ms=0), done.append) is None
    assert done == ["late"]


async def test_at_its_time_it_gets_what_there_is() -> None:
    purgatory = Purgatory()
    answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    purgatory.park(waiting([None], "a", timeout_ms=1), answered.set_result)
    assert await answered == "late"
    assert purgatory.parked == 0


async def test_one_that_is_dropped_is_never_answered() -> None:
    purgatory, done = Purgatory(), []
    parked = purgatory.park(waiting(["now"], "a"), done.append)
    assert parked is not None
    purgatory.drop(parked)
    purgatory.touch("a")
    assert done == []


async def test_an_answer_that_touches_the_same_key_again_does_no_harm() -> None:
    purgatory, done = Purgatory(), []

    def first(response: Any) -> None:
        done.append(response)
        purgatory.touch("a")

    purgatory.park(waiting(["one"], "a"), first)
    purgatory.park(waiting(["two", "two"], "a"), done.append)
    purgatory.touch("a")
    assert done == ["one", "two"]
