"""Responses that a task works out: sent when they are ready, timed out if not, never lost."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import get_ident
from typing import Any

import attrs
import pytest

from broker.network.deferred import (
    ELEMENTS_A_TURN,
    LONG_ANSWERS,
    LONGEST_ANSWERS,
    LONGEST_WAITING,
    QUICK_TURNS,
    Deferred,
    add_in_turns,
)
from broker.network.dispatch import NO_RESPONSE, Close
from broker.network.fair_line import NOBODY, FairLine, Owner
from broker.network.long_answers import LongAnswer
from broker.network.purgatory import Purgatory, Wait
from protocol.api_key import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.list_groups import ListGroupsResponse, ListGroupsResponseGroup
from protocol.primitives import WireError
from tests.broker.served import ask, echoed, serving
from tests.broker.spawning import Spawned
from tests.stage.waiting import until

LATE_MS = 50


def deferred(purgatory: Purgatory, threads: Any = None) -> Deferred:
    return Deferred(Spawned(), purgatory.touch, threads)


async def outcome(purgatory: Purgatory, wait: Wait) -> Any:
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    purgatory.park(wait, done.set_result)
    return await done


@pytest.mark.virtual_time
async def test_what_the_work_returns_is_the_answer() -> None:
    purgatory = Purgatory()

    async def work() -> str:
        await asyncio.sleep(0.01)
        return "found"

    wait = deferred(purgatory).respond(work(), LATE_MS, lambda: "late")

    assert wait.try_complete(False) is None
    assert await outcome(purgatory, wait) == "found"
    assert purgatory.parked == 0


@pytest.mark.virtual_time
async def test_work_that_takes_too_long_is_answered_as_late_and_goes_on() -> None:
    purgatory = Purgatory()
    ended = []

    async def work() -> None:
        await asyncio.sleep(1)
        ended.append("work")

    wait = deferred(purgatory).respond(work(), LATE_MS, lambda: "late")

    assert await outcome(purgatory, wait) == "late"
    await asyncio.sleep(1)
    assert ended == ["work"]


@pytest.mark.virtual_time
async def test_what_the_work_raises_is_raised_where_the_answer_is_asked_for() -> None:
    purgatory = Purgatory()

    async def work() -> None:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "t-0")

    wait = deferred(purgatory).respond(work(), LATE_MS, lambda: "late")
    await asyncio.sleep(0)

    with pytest.raises(ApiError, match="t-0"):
        wait.try_complete(False)


async def test_work_for_a_thread_is_done_in_one() -> None:
    purgatory = Purgatory()
    with ThreadPoolExecutor(1) as threads:
        wait = deferred(purgatory, threads).respond_from_thread(
            get_ident, 20_000, lambda: None, lambda ident: ident, NOBODY
        )
        assert await outcome(purgatory, wait) not in (None, get_ident())


# ---- answers that are made in turns


@attrs.define(eq=False)
class LongWork:
    """Work that takes some turns, and notes when it begins and ends."""

    name: str
    notes: list[str]
    turns: int = 3

    def go_on(self) -> Any:
        self.turns -= 1
        self.notes.append(self.name)
        return None if self.turns else self.name


@pytest.mark.fault("strangers-6")
async def test_long_answers_of_a_client_are_made_one_after_the_other_and_few_at_once() -> None:
    purgatory = Purgatory()
    made = deferred(purgatory)
    notes: list[str] = []
    clients = "bcdefghijk"[: LONG_ANSWERS + 1]
    names = ["a1", "a2", *(f"{client}1" for client in clients)]
    waits = {
        name: made.respond_in_turns(
            LongWork(name, notes).go_on,
            20_000,
            lambda: "late",
            Owner(name[0], int(name[1])),
        )
        for name in names
    }
    assert notes == names, "one turn at once: most answers need no other"
    done = [outcome(purgatory, wait) for wait in waits.values()]
    assert await asyncio.gather(*done) == names
    ends = [notes.index(name, len(names)) for name in names]
    a1, a2, *others = ends
    first, last = others[: LONG_ANSWERS - 1], others[LONG_ANSWERS - 1 :]
    assert a1 < min(first) < max(first) < a2
    assert max(first) < min(last)
    assert made.answers.waiting == 0


@pytest.mark.fault("strangers-8")
async def test_who_asks_for_little_does_not_wait_for_many_who_ask_for_very_much() -> None:
    purgatory = Purgatory()
    made = deferred(purgatory)
    notes: list[str] = []

    def ask(name: str, turns: int) -> asyncio.Future[Any]:
        work = LongWork(name, notes, turns)
        owner = Owner(name, 1)
        wait = made.respond_in_turns(work.go_on, 600_000, lambda: "late", owner)
        return asyncio.ensure_future(outcome(purgatory, wait))

    number = LONG_ANSWERS + LONGEST_WAITING + LONGEST_ANSWERS
    longest = [ask(f"a{n}", 20 * QUICK_TURNS) for n in range(number)]
    little = ask("little", 3)
    assert await little == "little"
    assert not [each for each in longest if each.done() and not isinstance(each.result(), Close)]
    ends = await asyncio.gather(*longest)
    # Those that have begun have a bound, too.
    refused = [end for end in ends if isinstance(end, Close)]
    assert 0 < len(refused) < number
    assert {end for end in ends if not isinstance(end, Close)} == {
        f"a{n}" for n, end in enumerate(ends) if not isinstance(end, Close)
    }


@pytest.mark.fault("strangers-6")
@pytest.mark.virtual_time
async def test_a_long_answer_whose_client_is_gone_is_given_up() -> None:
    purgatory = Purgatory()
    made = deferred(purgatory)
    notes: list[str] = []
    made.answers.may_enter = lambda client: False
    wait = made.respond_in_turns(LongWork("a", notes).go_on, LATE_MS, lambda: "late", Owner("a", 1))
    assert isinstance(wait, Wait)
    await asyncio.sleep(0)
    assert made.answers.waiting == 1
    assert await outcome(purgatory, wait) == "late"
    await asyncio.sleep(0)
    assert made.answers.waiting == 0
    assert notes == ["a"]


# ---- through dispatcher and connection


async def test_wait_that_ends_with_another_wait_ends_with_its_answer() -> None:
    def handle(request: Any, context: Any) -> Any:
        if not request.key.startswith("wait"):
            return echoed(request.key)
        second = Wait(("second",), 20_000, lambda expired: echoed(request.key + "!"))
        return Wait(("first",), 20_000, lambda expired: second)

    async with serving({ApiKey.FIND_COORDINATOR: handle}) as server:
        client = await server.client()
        await client.send(ask(1, "wait"), ask(2, "next"))
        await until(lambda: server.purgatory.parked, "a request that waits")
        server.purgatory.touch("first")
        assert server.purgatory.parked == 1
        server.purgatory.touch("first")
        assert server.purgatory.parked == 1
        server.purgatory.touch("second")
        assert [await client.answer(), await client.answer()] == [(1, "wait!"), (2, "next")]
        assert server.purgatory.parked == 0


async def test_error_of_work_that_was_deferred_is_answered_in_the_words_of_the_api() -> None:
    purgatories: list[Purgatory] = []

    def handle(request: Any, context: Any) -> Any:
        async def work() -> None:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "")

        made = Deferred(asyncio.ensure_future, lambda key: purgatories[0].touch(key), None)
        return made.respond(work(), 20_000, lambda: NO_RESPONSE)

    async with serving({ApiKey.FIND_COORDINATOR: handle}) as server:
        purgatories.append(server.purgatory)
        client = await server.client()
        await client.send(ask(1, "g"))
        assert int.from_bytes((await client.receive())[4:6], "big") == ErrorCode.INVALID_GROUP_ID


async def test_client_who_is_gone_before_the_second_wait_ends_is_forgotten() -> None:
    def handle(request: Any, context: Any) -> Any:
        second = Wait(("second",), 20_000, lambda expired: None)
        return Wait(("first",), 20_000, lambda expired: second)

    async with serving({ApiKey.FIND_COORDINATOR: handle}) as server:
        client = await server.client()
        await client.send(ask(1))
        await until(lambda: server.purgatory.parked, "a request that waits")
        server.purgatory.touch("first")
        client.reset()
        await until(lambda: not server.purgatory.parked, "an empty purgatory")


async def test_work_that_returns_nothing_is_no_answer_and_the_next_request_is_served() -> None:
    purgatories: list[Purgatory] = []

    def handle(request: Any, context: Any) -> Any:
        if request.key:
            return echoed(request.key)
        made = Deferred(asyncio.ensure_future, lambda key: purgatories[0].touch(key), None)
        return made.respond(asyncio.sleep(0, NO_RESPONSE), 20_000, lambda: echoed("late"))

    async with serving({ApiKey.FIND_COORDINATOR: handle}) as server:
        purgatories.append(server.purgatory)
        client = await server.client()
        await client.send(ask(1, ""), ask(2, "next"))
        assert await client.answer() == (2, "next")


async def test_work_that_is_given_up_in_a_thread_ends_when_the_thread_does() -> None:
    """A thread cannot be stopped: what it holds counts, and it has its place, until then."""
    may_end = threading.Event()
    purgatory = Purgatory()
    with ThreadPoolExecutor(1) as threads:
        made = deferred(purgatory, threads)
        made.line = FairLine(1, 1)

        async def work() -> Any:
            return await made.in_thread(may_end.wait)

        wait = made.respond(work(), 20_000, lambda: NO_RESPONSE, only_asks=True)
        await until(lambda: threads._threads, "it is in a thread")
        parked = purgatory.park(wait, lambda outcome: None)
        assert parked is not None
        assert wait.work is not None
        purgatory.cancel(parked)
        following = asyncio.ensure_future(made.in_thread(lambda: "next"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not wait.work.is_done
        assert made.line.waiting == 1

        may_end.set()
        assert await following == "next"
        assert wait.work.is_done


@pytest.mark.fault("strangers-79")
async def test_an_error_in_a_thread_of_work_that_is_given_up_is_nobodys(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A request that cannot be read, of a connection that is gone."""
    may_end = threading.Event()
    purgatory = Purgatory()

    def fail() -> None:
        may_end.wait()
        raise WireError("cut")

    with ThreadPoolExecutor(1) as threads:
        made = deferred(purgatory, threads)

        async def work() -> Any:
            return await made.in_thread(fail)

        wait = made.respond(work(), 20_000, lambda: NO_RESPONSE, only_asks=True)
        await until(lambda: threads._threads, "it is in a thread")
        parked = purgatory.park(wait, lambda outcome: None)
        assert parked is not None
        assert wait.work is not None
        purgatory.cancel(parked)
        may_end.set()
        work_of = wait.work
        await until(lambda: work_of.is_done, "it is done")
    gc.collect()
    assert caplog.messages == []


async def test_work_of_a_client_that_is_gone_goes_on_where_it_may_change_something() -> None:
    may_end, ended = asyncio.Event(), []
    purgatory = Purgatory()

    async def work() -> Any:
        await may_end.wait()
        ended.append("work")
        return NO_RESPONSE

    wait = deferred(purgatory).respond(work(), 20_000, lambda: NO_RESPONSE)
    parked = purgatory.park(wait, lambda outcome: None)
    assert parked is not None
    assert wait.work is not None
    done: list[bool] = []
    wait.work.call_when_done(lambda: done.append(True))
    purgatory.cancel(parked)
    await asyncio.sleep(0)
    assert not done
    may_end.set()
    await until(lambda: done, "it is done")
    assert ended == ["work"]


class Request:
    """Something that can be looked at until it is free."""


@pytest.mark.fault("security-0")
@pytest.mark.parametrize("is_awaited", [True, False])
async def test_work_that_is_refused_keeps_nothing_of_its_request(is_awaited: bool) -> None:
    """Not even until cycles are collected, and not if its client has gone either."""
    purgatory = Purgatory()
    spawned = Spawned()

    async def work(request: Request) -> Any:
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, str(request))

    request = Request()
    seen = weakref.ref(request)
    gc.disable()
    try:
        wait = Deferred(spawned, purgatory.touch, None).respond(  # type: ignore[arg-type]
            work(request),
            LATE_MS,
            lambda: "late",  # type: ignore[arg-type, return-value]
        )
        del request
        await spawned.ended()
        if is_awaited:
            with pytest.raises(ApiError):
                wait.try_complete(False)
        del wait
        await asyncio.sleep(0)
        assert seen() is None
    finally:
        gc.enable()


async def test_elements_of_a_long_answer_are_made_some_a_turn() -> None:
    made = 0
    most_seen_at_once = 0

    def make() -> Iterator[ListGroupsResponseGroup]:
        nonlocal made
        for number in range(2 * ELEMENTS_A_TURN + 1):
            made += 1
            yield ListGroupsResponseGroup(group_id=f"g{number}", protocol_type="consumer")

    async def look() -> None:
        nonlocal most_seen_at_once
        seen = 0
        while True:
            most_seen_at_once = max(most_seen_at_once, made - seen)
            seen = made
            await asyncio.sleep(0)

    answer = LongAnswer(ListGroupsResponse, 4)
    looking = asyncio.create_task(look())
    await add_in_turns(answer, make())
    looking.cancel()
    assert most_seen_at_once == ELEMENTS_A_TURN
    assert len(answer.array()) == 2 * ELEMENTS_A_TURN + 1
