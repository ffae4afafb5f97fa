"""A parked request gets one response: when a key is touched, or at its timeout."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import attrs
import pytest

from broker.network.purgatory import TRIED_A_TURN, Purgatory, Wait


def waiting(answers: list[Any], *keys: str, timeout_ms: int = 60_000) -> Wait:
    """Build a wait whose tries take the next of `answers`; at its timeout it gives "late"."""

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


@pytest.mark.fault("strangers-57")
@pytest.mark.parametrize("moves", ["touch", "advance"])
async def test_very_many_that_wait_for_one_thing_are_tried_some_in_a_turn(moves: str) -> None:
    purgatory, done = Purgatory(), []
    for_key, for_offset = {"touch": (("a",), ()), "advance": ((), (("a", 7),))}[moves]
    parked = [
        purgatory.park(attrs.evolve(waiting(["now"], *for_key), offsets=for_offset), done.append)
        for _ in range(2 * TRIED_A_TURN + 50)
    ]
    if moves == "touch":
        purgatory.touch("a")
    else:
        purgatory.advance("a", 7)
    assert len(done) == TRIED_A_TURN

    # One whose connection goes meanwhile is not tried.
    gone = parked[-1]
    assert gone is not None
    purgatory.cancel(gone)
    counts = []
    for _ in range(3):
        await asyncio.sleep(0)
        counts.append(len(done))
    assert counts == [2 * TRIED_A_TURN, len(parked) - 1, len(parked) - 1]
    assert purgatory.parked == 0


@pytest.mark.fault("strangers-57")
async def test_what_was_not_tried_yet_is_tried_once_however_often_it_is_touched() -> None:
    purgatory, done = Purgatory(), []
    many = 3 * TRIED_A_TURN
    for _ in range(many):
        purgatory.park(waiting([None, None, "now"], "a"), done.append)
    for _ in range(10):
        purgatory.touch("a")
    # The first ones are not again in line, of those that were in it.
    assert purgatory.tries == TRIED_A_TURN

    # Who waits for something else goes before them.
    purgatory.park(waiting(["other"], "b"), done.append)
    purgatory.touch("b")
    assert done == ["other"]
    for _ in range(10):
        await asyncio.sleep(0)
    assert purgatory.tries == many + TRIED_A_TURN + 1
    assert done == ["other"]


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


async def test_one_that_is_cancelled_is_never_answered() -> None:
    purgatory, done = Purgatory(), []
    parked = purgatory.park(waiting(["now"], "a"), done.append)
    assert parked is not None
    purgatory.cancel(parked)
    purgatory.touch("a")
    assert done == []


async def test_it_hears_that_it_is_cancelled_once_and_not_after_its_answer() -> None:
    purgatory, cancelled = Purgatory(), []
    for name, answers in (("gone", ["now"]), ("answered", ["now"])):
        wait = attrs.evolve(waiting(answers, name), on_cancel=partial(cancelled.append, name))
        parked = purgatory.park(wait, [].append)
        assert parked is not None
        if name == "answered":
            purgatory.touch(name)
        purgatory.cancel(parked)
        purgatory.cancel(parked)
    assert cancelled == ["gone"]


async def test_an_answer_that_touches_the_same_key_again_does_no_harm() -> None:
    purgatory, done = Purgatory(), []

    def first(response: Any) -> None:
        done.append(response)
        purgatory.touch("a")

    purgatory.park(waiting(["one"], "a"), first)
    purgatory.park(waiting(["two", "two"], "a"), done.append)
    purgatory.touch("a")
    assert done == ["one", "two"]


# ---- offsets


def waiting_for(key: str, offset: int, *more: tuple[str, int]) -> Wait:
    """Build a wait for an offset that ends the first time it is tried; "late" at its timeout."""
    name = f"{key} {offset}"
    return Wait((), 60_000, lambda expired: "late" if expired else name, ((key, offset), *more))


async def test_who_waits_for_an_offset_is_tried_when_it_is_reached_and_not_before() -> None:
    purgatory, done = Purgatory(), []
    for offset in (5, 3, 9, 3):
        purgatory.park(waiting_for("a", offset), done.append)
    purgatory.advance("a", 2)
    purgatory.advance("b", 9)
    assert (done, purgatory.tries) == ([], 0)
    purgatory.advance("a", 5)
    assert (done, purgatory.tries, purgatory.parked) == (["a 3", "a 3", "a 5"], 3, 1)
    purgatory.advance("a", 100)
    assert (done[3:], purgatory.parked) == (["a 9"], 0)


async def test_a_touch_tries_who_waits_for_an_offset_too() -> None:
    purgatory, done = Purgatory(), []
    purgatory.park(waiting_for("a", 5), done.append)
    purgatory.touch("a")
    assert done == ["a 5"]


async def test_what_is_reached_tries_who_waits_for_anything_of_the_key() -> None:
    purgatory, done = Purgatory(), []
    purgatory.park(waiting([None, "now"], "a"), done.append)
    purgatory.advance("a", 1)
    purgatory.advance("a", 2)
    assert done == ["now"]


async def test_of_two_offsets_each_is_waited_for() -> None:
    purgatory, done = Purgatory(), list[Any]()
    answers = [None, "both"]
    wait = Wait((), 60_000, lambda expired: answers.pop(0), (("a", 5), ("b", 2)))
    purgatory.park(wait, done.append)
    purgatory.advance("a", 5)
    purgatory.advance("a", 6)
    assert (done, purgatory.tries) == ([], 1)
    purgatory.advance("b", 2)
    assert (done, purgatory.parked) == (["both"], 0)


async def test_who_is_gone_leaves_its_offsets() -> None:
    purgatory, done = Purgatory(), []
    first = purgatory.park(waiting_for("a", 5, ("b", 1)), done.append)
    purgatory.park(waiting_for("a", 5), done.append)
    assert first is not None
    purgatory.cancel(first)
    purgatory.advance("b", 1)
    purgatory.advance("a", 5)
    assert (done, purgatory.tries) == (["a 5"], 1)
    purgatory.park(waiting_for("a", 7), done.append)
    purgatory.expire_all()
    assert (done[1:], purgatory.parked) == (["late"], 0)
