"""What a command does when it is interrupted, in the test's own process."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence

import pytest

from clients.command_line.interrupts import NOTHING_DONE, Interrupted, heeding_interrupts
from clients.command_line.output import INTERRUPTED, Failure
from clients.errors import ClientError


@pytest.mark.fault("scale-C3")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted_and_handlers_are_as_before(number: signal.Signals) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]

    async def command() -> list[str]:
        done = []
        with heeding_interrupts() as interrupts:
            for name in interrupts.until_asked(["a", "b", "c"]):
                done.append(name)
                if name == "b":
                    os.kill(os.getpid(), number)
                    await interrupts.pause(60)
            assert interrupts.not_done == [Failure("c", INTERRUPTED, NOTHING_DONE)]
        return done

    assert asyncio.run(command()) == ["a", "b"]
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.fault("scale-C3")
def test_portions_behind_an_interrupt_are_not_begun() -> None:
    asked: list[Sequence[int]] = []

    async def command() -> dict[int, Exception | None]:
        with heeding_interrupts() as interrupts:

            async def ask(portion: Sequence[int]) -> dict[int, Exception | None]:
                asked.append(portion)
                if len(asked) == 2:
                    interrupts.ask()
                return dict.fromkeys(portion)

            return await interrupts.in_portions(range(7), ask, 2)

    verdicts = asyncio.run(command())
    assert [list(portion) for portion in asked] == [[0, 1], [2, 3]]
    assert [type(verdict) for verdict in verdicts.values()] == [type(None)] * 4 + [Interrupted] * 3
    assert type(verdicts[6]).__name__ == INTERRUPTED


def test_a_failure_behind_the_first_portion_is_that_of_its_things_alone() -> None:
    async def command(failing: int) -> dict[int, Exception | None]:
        async def ask(portion: Sequence[int]) -> dict[int, Exception | None]:
            if failing in portion:
                raise ClientError("no response")
            return dict.fromkeys(portion)

        with heeding_interrupts() as interrupts:
            return await interrupts.in_portions(range(4), ask, 2)

    verdicts = asyncio.run(command(2))
    assert [str(verdict) for verdict in verdicts.values()] == ["None"] * 2 + ["no response"] * 2
    with pytest.raises(ClientError):
        asyncio.run(command(0))
