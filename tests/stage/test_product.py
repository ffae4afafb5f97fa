"""Which tests run without a word, and which are asked for."""

from typing import Any

import attrs
import pytest

from tests.stage.product import MARK, wanted


@attrs.frozen
class Item:
    """A test, as far as it matters here."""

    name: str
    marks: tuple[str, ...] = ()

    def get_closest_marker(self, name: str) -> str | None:
        """Return the mark of this name."""
        return name if name in self.marks else None


ITEMS: list[Any] = [Item("a"), Item("b", (MARK,)), Item("c", (MARK,)), Item("d")]


def names(part: str | None) -> str:
    return "".join(item.name for item in wanted(ITEMS, part))


def test_combinations_wait_until_they_are_asked_for() -> None:
    assert names(None) == "ad"
    assert names("1/1") == "abcd"


def test_parts_have_each_combination_once() -> None:
    assert [names("1/3"), names("2/3"), names("3/3")] == ["ad", "b", "c"]


@pytest.mark.parametrize("part", ["0/2", "3/2", "1", "x/2", "1/"])
def test_part_that_is_none_is_refused(part: str) -> None:
    with pytest.raises(pytest.UsageError, match="a part is N/M"):
        wanted(ITEMS, part)
