"""Requests of many parts: what it costs to try them as their parts are done one by one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from broker.network.pending_responses import Remaining, respond_when_done
from broker.network.purgatory import Wait
from groups.runtime.runtime import Pending

FEW, MANY = 100, 1_000


def looks(order: Iterable[int]) -> int:
    """Count the looks while parts are done in this order, with a try after each."""
    numbers = list(order)
    done: set[int] = set()
    looked = 0

    def is_done(part: int) -> bool:
        nonlocal looked
        looked += 1
        return part in done

    remaining = Remaining(sorted(numbers), is_done)
    for number in numbers:
        assert remaining.has_any()
        assert looked <= 3 * len(numbers)
        done.add(number)
    assert not remaining.has_any()
    return looked


@pytest.mark.fault("scale-S1")
@pytest.mark.parametrize("step", [1, -1, 7])
def test_looks_grow_with_the_parts_in_whatever_order_they_are_done(step: int) -> None:
    for number in (FEW, MANY):
        assert looks(sorted(range(number), key=lambda part: part * step % (number + 1))) <= (
            2 * number + 1
        )


def test_what_is_not_done_is_listed() -> None:
    remaining = Remaining(list(range(10)), lambda part: part % 3 != 0)
    assert remaining.has_any()
    assert remaining.list_undone() == [0, 3, 6, 9]


def test_responses_that_are_late_are_said_to_be() -> None:
    pending = [Pending(number) for number in range(3)]
    wait: Any = respond_when_done(pending, 500, "late", lambda responses: responses)
    assert isinstance(wait, Wait)
    pending[1].response = "here"
    assert wait.try_complete(False) is None
    assert wait.try_complete(True) == ["late", "here", "late"]
