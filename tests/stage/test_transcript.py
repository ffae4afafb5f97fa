"""Golden transcripts: how a file of scenarios is replayed, compared and written anew."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest

from protocol.topic_partition import TopicPartition
from tests.stage.transcript import Shorthands, Writer, compare, retell


@attrs.frozen
class Added:
    """An effect: the sum has grown by `number`."""

    number: int
    partitions: frozenset[TopicPartition] = frozenset()


class Adder:
    """A machine that adds."""

    shorthands: ClassVar[Shorthands] = {}

    def __init__(self) -> None:
        self.sum = 0

    def names(self) -> Mapping[str, Any]:
        return {"add": lambda number: number, "begin_at": self.begin_at}

    def begin_at(self, number: int) -> None:
        self.sum = number

    def take(self, event: int) -> list[Added]:
        self.sum += event
        return [Added(event)] if event else []

    def summary(self) -> str:
        return f"sum {self.sum}"


SCENARIOS = """\
# Two additions.

== from nothing
add(1)
    Added(number=1)
    => sum 1
add(0)
    nothing

== from something
begin_at(5)
    => sum 5
add(2)
    Added(number=2)
    => sum 7
"""


def test_scenarios_that_come_out_as_before_are_told_alike() -> None:
    assert retell(SCENARIOS, Adder) == SCENARIOS


def test_outcomes_are_filled_in_where_there_are_none() -> None:
    bare = "".join(line for line in SCENARIOS.splitlines(True) if not line.startswith(" "))
    assert retell(bare, Adder) == SCENARIOS


def test_another_outcome_is_shown_as_a_diff_and_written_on_request(tmp_path: Path) -> None:
    path = tmp_path / "sums.txt"
    path.write_text(SCENARIOS.replace("=> sum 7", "=> sum 8"))
    with pytest.raises(AssertionError, match=r"(?s)-    => sum 8\n\+    => sum 7"):
        compare(path, Adder)

    compare(path, Adder, is_update=True)
    assert path.read_text() == SCENARIOS


def test_what_does_not_fit_on_a_line_has_a_line_for_each_item() -> None:
    partitions = frozenset(TopicPartition("orders", number) for number in (2, 10))
    assert (
        Writer().write(Added(1, partitions)) == "Added(number=1, partitions={orders-2, orders-10})"
    )
    assert Writer().write(Added(1, partitions), width=30).splitlines() == [
        "Added(",
        "    number=1,",
        "    partitions={",
        "        orders-2,",
        "        orders-10,",
        "    },",
        ")",
    ]


def test_shorthands_stand_for_values_of_their_type() -> None:
    writer = Writer({Added: lambda added: f"+{added.number}"})
    assert writer.write([Added(3), Added(4)]) == "[+3, +4]"
