"""What `kgroup top` shows, and what keys change."""

import attrs
import pytest

from clients.groups.group_facts import CoordinatorFacts, GroupFacts, LogOffsets
from clients.watching.top_view import View, group_row, press, sorted_rows, visible
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

ROWS = [
    {"group": "a", "lag": 5, "rate": None},
    {"group": "b", "lag": 7, "rate": 1.5},
    {"group": "c", "lag": 0, "rate": 9.0},
]


@pytest.mark.parametrize(("order", "names"), [("lag", "bac"), ("rate", "cba"), ("group", "abc")])
def test_groups_are_sorted_by_each_column(order: str, names: str) -> None:
    assert "".join(str(row["group"]) for row in sorted_rows(ROWS, order)) == names


def test_keys_choose_a_group_and_come_back() -> None:
    view = View()
    for key in ("up", "down", "down", "down"):
        view = press(view, key, ROWS)
    assert view.cursor == 2
    inside = press(view, "enter", ROWS)
    assert inside.group == "c"
    assert press(inside, "left", ROWS) == View()
    assert press(inside, "q", ROWS) == attrs.evolve(inside, ended=True)
    assert press(view, "x", ROWS) == view


def test_only_rows_that_fit_are_shown_and_the_cursor_is_among_them() -> None:
    rows = [{"group": str(number)} for number in range(1000)]
    assert visible(rows, 0, 10) == (rows[:10], 0)
    assert visible(rows, 500, 10) == (rows[491:501], 9)


def test_the_rate_is_what_was_committed_since_the_last_look() -> None:
    partition = TopicPartition("t", 0)
    facts = GroupFacts(
        "g", coordinator=CoordinatorFacts("Empty", offsets={partition: OffsetAndMetadata(30)})
    )
    logs = {partition: LogOffsets(0, 100)}
    assert group_row(facts, logs, None, 0.0)["rate"] is None
    row = group_row(facts, logs, 10, 2.0)
    assert (row["rate"], row["lag"]) == (10.0, 70)
