"""The positions of stock consumers: what counts as a step back."""

from __future__ import annotations

import pytest

from tests.chaos.stock_group import steps_back
from tests.interop.driven_member import Event


def message(offset: int) -> Event:
    return Event("message", offset, {"topic": "t", "partition": 0, "offset": offset, "value": "v"})


def change(name: str) -> Event:
    return Event(name, 0, {"partitions": [["t", 0]]})


def test_messages_in_order_are_no_step_back() -> None:
    assert steps_back([change("assigned"), message(3), message(4), message(9)]) == []


def test_message_that_comes_again_is_a_step_back() -> None:
    events = [change("assigned"), message(3), message(4), message(3)]
    assert steps_back(events) == ["t-0: 3 after 4"]


@pytest.mark.parametrize("name", ["revoked", "lost"])
def test_member_that_gets_a_partition_again_may_begin_at_its_commit(name: str) -> None:
    events = [change("assigned"), message(4), change(name), change("assigned"), message(3)]
    assert steps_back(events) == []
