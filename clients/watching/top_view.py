"""Decide what `kgroup top` shows: which groups, in which order, and what a key changes."""

import re
from collections.abc import Mapping, Sequence

import attrs

from clients.groups.group_facts import GroupFacts, LogOffsets
from clients.groups.group_view import Item
from clients.groups.lag import lag_of
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition

ORDERS = {"l": "lag", "r": "rate", "n": "group"}
"""Keys that sort, and the column of each."""

_KEY = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Za-z]|.", re.DOTALL)
_NAMES = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1b[H": "home",
    "\x1b[1~": "home",
    "\x1b[F": "end",
    "\x1b[4~": "end",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b": "escape",
    "\r": "enter",
    "\n": "enter",
}
"""What a terminal sends for a key, and the key's name."""


@frozen
class View:
    """The user's choice of what to see. `group` is the one looked into; None for the list."""

    order: str = "lag"
    cursor: int = 0
    group: str | None = None
    cursor_in_list: int = 0
    """Where the cursor was before the group was looked into."""
    ended: bool = False


def read_keys(typed: str) -> list[str]:
    """Return the names of keys, which may have come together; others are as they were typed."""
    # Some terminals send O in the place of the bracket.
    return [_NAMES.get(key.replace("\x1bO", "\x1b["), key) for key in _KEY.findall(typed)]


def press(view: View, key: str, rows: Sequence[Item], page: int = 1) -> View:
    """Return the view after a key of `read_keys`; `page` is the number of rows that fit."""
    last = max(len(rows) - 1, 0)
    cursor = min(view.cursor, last)
    steps = {
        "up": -1,
        "down": 1,
        "page up": -page,
        "page down": page,
        "home": -last,
        "end": last,
    }
    if key in ORDERS:
        return attrs.evolve(view, order=ORDERS[key], cursor=0)
    if key in steps:
        return attrs.evolve(view, cursor=min(max(cursor + steps[key], 0), last))
    if key in ("enter", "right") and view.group is None and rows:
        group = str(rows[cursor]["group"])
        return attrs.evolve(view, group=group, cursor=0, cursor_in_list=cursor)
    if key in ("left", "escape") and view.group is not None:
        return attrs.evolve(view, group=None, cursor=view.cursor_in_list)
    if key == "q":
        return attrs.evolve(view, ended=True)
    return view


def group_row(
    facts: GroupFacts,
    logs: Mapping[TopicPartition, LogOffsets],
    before: Mapping[TopicPartition, int] | None,
    elapsed_s: float,
) -> Item:
    """Return the row of a group. `before` are its offsets, `elapsed_s` ago."""
    subscribed = facts.subscribed_topics
    owned = {partition for member in facts.members for partition in member.partitions}
    lag = 0
    for partition in facts.partitions:
        # As in all tables, nobody will read it (fault tool-F7).
        if subscribed is not None and partition.topic not in subscribed:
            continue
        log = logs.get(partition, LogOffsets())
        counted = lag_of(facts.current_offset(partition), log)
        lag += counted.counted(assigned=partition in owned)

    consumed = 0
    for partition, offset in offsets_of(facts).items():
        # What was not committed before, or is deleted now, says nothing of what was consumed.
        consumed += offset - (before or {}).get(partition, offset)
    is_known = before is not None and elapsed_s > 0
    return {
        "group": facts.group,
        "state": facts.state,
        "members": len(facts.members),
        "partitions": len(facts.partitions),
        "lag": lag,
        "rate": round(consumed / elapsed_s, 1) if is_known else None,
    }


def offsets_of(facts: GroupFacts) -> dict[TopicPartition, int]:
    """Return a group's committed offsets, whose change is what it consumed."""
    return {
        partition: offset
        for partition in facts.partitions
        if (offset := facts.current_offset(partition)) is not None
    }


def sorted_rows(rows: Sequence[Item], order: str) -> list[Item]:
    """Sort by name, or by a number, the largest first; groups without the number come last."""
    if order == "group":
        return sorted(rows, key=lambda row: str(row["group"]))
    return sorted(rows, key=lambda row: (-(row[order] or 0), str(row["group"])))


def visible(rows: Sequence[Item], cursor: int, height: int) -> tuple[Sequence[Item], int]:
    """Return the rows that fit, the cursor's among them, and its place in them."""
    height = max(height, 1)
    start = max(cursor - height + 1, 0)
    return rows[start : start + height], cursor - start
