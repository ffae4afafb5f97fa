"""What `kgroup top` shows, and what keys change."""

import attrs
import pytest

from clients.groups.group_facts import CoordinatorFacts, GroupFacts, LogOffsets
from clients.watching.top_view import View, group_row, press, read_keys, sorted_rows, visible
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
    back = press(inside, "left", ROWS)
    assert (back.group, back.cursor) == (None, 2)
    assert press(back, "escape", ROWS) == back
    assert press(inside, "q", ROWS) == attrs.evolve(inside, ended=True)
    assert press(view, "x", ROWS) == view


def test_keys_that_come_together_are_told_apart() -> None:
    arrows = "\x1b[B" * 3
    assert read_keys(arrows + "l\x1bOA\x1b\r") == [*["down"] * 3, "l", "up", "escape", "enter"]
    # A key without a meaning here is no escape and no letter.
    view = View(group="c")
    for key in read_keys("\x1b[15~\x1b[1;5C"):
        view = press(view, key, ROWS)
    assert view == View(group="c")


def test_pages_and_ends_of_the_list_are_reached_by_one_key() -> None:
    rows = [{"group": str(number)} for number in range(1000)]
    cursors = []
    view = View()
    for key in read_keys("\x1b[6~\x1b[6~\x1b[5~\x1b[F\x1b[6~\x1b[H"):
        view = press(view, key, rows, page=20)
        cursors.append(view.cursor)
    assert cursors == [20, 40, 20, 999, 999, 0]


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
    row = group_row(facts, logs, {partition: 10}, 2.0)
    assert (row["rate"], row["lag"]) == (10.0, 70)

    # An offset that was deleted since was not consumed backwards, nor a new one from 0 on.
    gone = TopicPartition("gone", 0)
    assert group_row(facts, logs, {partition: 10, gone: 10**6}, 2.0)["rate"] == 10.0
    assert group_row(facts, logs, {gone: 10**6}, 2.0)["rate"] == 0.0
