"""Names of topics: legal ones, and ones that collide."""

from __future__ import annotations

import pytest

from broker.controller.topic_names import TopicNames, check_name
from protocol.errors import ApiError


class Unwalkable(dict[str, dict[str, None]]):
    """A dict that cannot be walked through."""

    def __iter__(self) -> None:  # type: ignore[override]
        raise AssertionError("all names were gone through")

    keys = values = items = __iter__  # type: ignore[assignment]


def test_names_collide_that_differ_only_in_dot_and_underscore() -> None:
    names = TopicNames(["a.b.c", "a-b"])
    assert names.find_colliding("a_b.c") == "a.b.c"
    assert names.find_colliding("a.b.c") is None
    assert names.find_colliding("a.b") is None


def test_name_that_is_taken_out_collides_with_none() -> None:
    names = TopicNames(["a.b", "a_b"])
    names.discard("a.b")
    names.discard("c")
    assert "a.b" not in names
    assert names.find_colliding("a.b") == "a_b"
    names.discard("a_b")
    assert names.find_colliding("a.b") is None


def test_check_of_a_name_does_not_go_through_the_others() -> None:
    names = TopicNames(f"some.topic-{number}" for number in range(1000))
    names._by_folded = Unwalkable(names._by_folded)
    check_name("new", names)
    with pytest.raises(ApiError):
        check_name("some_topic-7", names)
