"""Decide what `kgroup top` shows: which groups, in which order, and what a key changes."""

from collections.abc import Mapping, Sequence

import attrs

from clients.groups.group_facts import GroupFacts, LogOffsets
from clients.groups.group_view import Item
from clients.groups.lag import lag_of
from protocol.topic_partition import TopicPartition

ORDERS = {"l": "lag", "r": "rate", "n": "group"}
"""Keys that sort, and the column of each."""


@attrs.frozen
class View:
    """What the user chose to see. `group` is the one that is looked into; None for the list."""

    order: str = "lag"
    cursor: int = 0
    group: str | None = None
    ended: bool = False


def press(view: View, key: str, rows: Sequence[Item]) -> View:
    """Return the view after a key: its name, or the character itself."""
    if key in ORDERS:
        return attrs.evolve(view, order=ORDERS[key], cursor=0)
    if key in ("down", "up"):
        step = 1 if key == "down" else -1
        last = max(len(rows) - 1, 0)
        return attrs.evolve(view, cursor=min(max(view.cursor + step, 0), last))
    if key in ("enter", "right") and view.group is None and rows:
        place = min(view.cursor, len(rows) - 1)
        return attrs.evolve(view, group=str(rows[place]["group"]), cursor=0)
    if key in ("left", "escape"):
        return attrs.evolve(view, group=None, cursor=0)
    if key == "q":
        return attrs.evolve(view, ended=True)
    return view


def group_row(
    facts: GroupFacts,
    logs: Mapping[TopicPartition, LogOffsets],
    before: int | None,
    elapsed_s: float,
) -> Item:
    """Return the row of a group. `before` is the sum of its offsets, `elapsed_s` ago."""
    owned = {partition for member in facts.members for partition in member.partitions}
    lag = 0
    for partition in facts.partitions:
        log = logs.get(partition, LogOffsets())
        counted = lag_of(facts.current_offset(partition), log.start, log.end)
        lag += counted.counted(assigned=partition in owned)

    offsets = offset_sum(facts)
    is_known = before is not None and elapsed_s > 0
    return {
        "group": facts.group,
        "state": facts.state,
        "members": len(facts.members),
        "partitions": len(facts.partitions),
        "lag": lag,
        "rate": round((offsets - (before or 0)) / elapsed_s, 1) if is_known else None,
    }


def offset_sum(facts: GroupFacts) -> int:
    """Return the sum of a group's committed offsets, whose change is what it consumed."""
    return sum(facts.current_offset(partition) or 0 for partition in facts.partitions)


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
