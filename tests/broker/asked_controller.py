"""A controller that answers what it was told to, for the handlers that ask it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import attrs

from broker.controller.controller import Controller
from broker.network.deferred import Deferred
from broker.network.purgatory import Purgatory, Wait
from protocol.errors import ApiError, ErrorCode
from tests.broker.spawning import Spawned


@attrs.define(eq=False)
class AskedController:
    """Notes each request; an exception is raised, None never comes."""

    answer: Any = None
    is_active: bool = True
    asked: list[Any] = attrs.Factory(list)
    moving: set[str] = attrs.Factory(set)
    deleting: set[str] = attrs.Factory(set)

    async def ask(self, request: Any) -> Any:
        self.asked.append(request)
        if not self.is_active:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is None:
            await asyncio.Event().wait()
        return self.answer

    def is_reassigning(self, topic: str) -> bool:
        return topic in self.moving

    def is_deleting(self, topic: str) -> bool:
        return topic in self.deleting

    def as_controller(self) -> Controller:
        return cast(Controller, self)


def served(
    handle: Callable[[Deferred], Any], then: Callable[[Purgatory], None] = lambda waiting: None
) -> Any:
    """What a handler answers in the end. `then` is called when it has begun to wait: with the
    purgatory it waits in, or whatever it waits for next."""

    async def run() -> Any:
        purgatory, spawned = Purgatory(), Spawned()
        deferred = Deferred(
            spawned,
            purgatory.touch,
            ThreadPoolExecutor(1),
        )
        outcome = handle(deferred)
        while isinstance(outcome, Wait):
            answered = asyncio.get_running_loop().create_future()
            purgatory.park(_guarded(outcome), answered.set_result)
            for _ in range(5):
                await asyncio.sleep(0)
            if not answered.done():
                then(purgatory)
            outcome = await answered
        for task in spawned.tasks:
            task.cancel()
        if isinstance(outcome, ApiError):
            raise outcome
        return outcome

    return asyncio.run(run())


def _guarded(wait: Wait) -> Wait:
    """With what is raised for an answer, as the dispatcher has it."""

    def try_complete(expired: bool) -> Any:
        try:
            return wait.try_complete(expired)
        except ApiError as error:
            return error

    return attrs.evolve(wait, try_complete=try_complete)
