"""The one way to wait: what it returns, what it forgives, and what it says at its deadline."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.stage.waiting import block_until, until, until_equal

pytestmark = pytest.mark.virtual_time


async def test_it_returns_the_first_true_answer_of_a_function_or_a_coroutine_function() -> None:
    answers = [0, 0, 7, 8]

    async def ask() -> int:
        return answers.pop(0)

    assert await until(ask, "an answer") == 7
    assert await until(lambda: answers, "any left") == [8]


async def test_at_the_deadline_it_says_what_it_waited_for_and_the_last_answer() -> None:
    with pytest.raises(AssertionError, match=r"peace: not within 5 s; the last answer was \[\]"):
        await until(list, "peace", 5)
    assert 5 <= asyncio.get_running_loop().time() < 6


async def test_an_error_ends_it_unless_it_may_be_retried_on() -> None:
    errors: list[Exception] = [OSError("away"), ValueError("no number")]

    def ask() -> bool:
        raise errors.pop(0)

    with pytest.raises(ValueError, match="no number"):
        await until(ask, "an answer", retry_on=(OSError,))


async def test_it_waits_for_one_answer_and_shows_another() -> None:
    numbers = iter([1, 2, 3])

    async def ask() -> int:
        return next(numbers, 3)

    await until_equal(ask, 2)
    with pytest.raises(AssertionError, match=r"equal to 4: not within 60 s.*: \[3\]"):
        await until_equal(ask, 4)


def test_a_thread_is_waited_for() -> None:
    over = threading.Event()
    thread = threading.Timer(0.05, over.set)
    thread.start()
    block_until(over.is_set, "the other thread")
    with pytest.raises(AssertionError, match="nothing: not within 0 s"):
        block_until(lambda: None, "nothing", 0.0)
    thread.join()
