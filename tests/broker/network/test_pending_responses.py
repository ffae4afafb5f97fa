"""Handlers that respond when something is done."""

from __future__ import annotations

from typing import Any

from broker.network.pending_responses import respond_or_wait, respond_when_done
from broker.network.purgatory import Wait
from groups.runtime.runtime import Pending

TIMEOUT_MS = 1234


def test_response_that_is_there_is_given_at_once() -> None:
    response: Any = object()
    assert respond_or_wait(lambda expired: response, ["key"], TIMEOUT_MS) is response


def test_wait_has_the_keys_and_ends_with_the_response() -> None:
    tries: list[bool] = []

    def try_complete(expired: bool) -> Any:
        tries.append(expired)
        return "late" if expired else None

    wait = respond_or_wait(try_complete, iter(["a", "b"]), TIMEOUT_MS)
    assert isinstance(wait, Wait)
    assert (wait.keys, wait.timeout_ms, tries) == (("a", "b"), TIMEOUT_MS, [False])
    assert wait.try_complete(False) is None
    assert wait.try_complete(True) == "late"


def test_all_pending_requests_are_waited_for_and_rendered_in_order() -> None:
    first, second, third = Pending(1, "one"), Pending(2), Pending(3)
    render: Any = list
    wait: Any = respond_when_done([first, second, third], TIMEOUT_MS, "late", render)
    assert wait.keys == (second, third), "what is there needs no key"

    third.response = "three"
    assert wait.try_complete(False) is None
    second.response = "two"
    assert wait.try_complete(False) == ["one", "two", "three"]


def test_pending_requests_that_are_missing_at_the_end_are_late() -> None:
    render: Any = list
    wait: Any = respond_when_done([Pending(1, "one"), Pending(2)], TIMEOUT_MS, "late", render)
    assert wait.try_complete(True) == ["one", "late"]


def test_nothing_pending_is_rendered_at_once() -> None:
    render: Any = list
    assert respond_when_done([], TIMEOUT_MS, "late", render) == []
