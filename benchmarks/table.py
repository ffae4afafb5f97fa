"""Figures become rows of tables, which are printed and kept in RESULTS.md.

A row has a question, a bound, and the figures of each round on our side and the other one. It shows
their medians, with the least and the most, and the ratio of the medians, which most bounds are for.
The other side is a peer, or ourselves in another way: rows of each kind have a table of their own.
"""

from collections.abc import Sequence
from enum import Enum
from statistics import median

import attrs

from protocol.version import COMPILED


@attrs.frozen
class Wanted:
    """A bound on the ratio ours/peer, or, with a unit, on our figure itself."""

    sign: str
    bound: float
    unit: str = ""
    changed: str = ""
    """If the bound was another one: which, when it was changed, and why."""

    def __str__(self) -> str:
        return f"{self.sign} {self.bound:.3g} {self.unit}".rstrip()

    def is_met(self, figure: float) -> bool:
        """True if a figure is within the bound."""
        return figure >= self.bound if self.sign == "≥" else figure <= self.bound


def at_least(bound: float, *, compiled: float | None = None, changed: str = "") -> Wanted:
    """Bound the ratio from below: more is better. The compiled form may have a bound of its own."""
    if COMPILED and compiled is not None:
        return Wanted("≥", compiled)
    return Wanted("≥", bound, changed=changed)


def at_most(bound: float, unit: str = "", *, changed: str = "") -> Wanted:
    """Bound the ratio, or with a unit our figure, from above: less is better."""
    return Wanted("≤", bound, unit, changed)


class Beside(Enum):
    """The other side of a row; the value is the title of its column."""

    PEER = "peer"
    OURSELVES = "the second"
    LINEAR = "if linear"
    BEFORE = "before"


@attrs.frozen
class Row:
    """The answer to one question: our figures of all rounds and, if there is one, the other side's.

    `beside` says what the other side is.
    """

    question: str
    unit: str
    wanted: Wanted | None
    figures: Sequence[tuple[float, ...]]
    cores: Sequence[tuple[float, ...]] = ()
    """Processor cores that our broker and the other one used meanwhile."""
    beside: Beside = Beside.PEER

    @property
    def ours(self) -> tuple[float, ...]:
        """Our figures, one for each round."""
        return self.figures[0]

    @property
    def other(self) -> tuple[float, ...]:
        """The other side's figures; empty without one."""
        return self.figures[1] if len(self.figures) > 1 else ()

    @property
    def ratio(self) -> float | None:
        """Our median over the other side's; None without one."""
        if not self.other or not median(self.other):
            return None
        return median(self.ours) / median(self.other)

    @property
    def is_short(self) -> bool:
        """True if the figures miss their bound; False without a bound or without figures."""
        if self.wanted is None:
            return False

        # A bound with a unit is for our own figure, others are for the ratio.
        figure = median(self.ours) if self.wanted.unit else self.ratio
        return figure is not None and not self.wanted.is_met(figure)

    def cells(self) -> tuple[str, ...]:
        """Return the texts of the table's cells."""
        return (
            self.question,
            self.unit,
            format_spread(self.ours),
            format_spread(self.other),
            "" if self.ratio is None else f"{self.ratio:.2f}",
            "" if self.wanted is None else str(self.wanted),
            "short" if self.is_short else "",
            " · ".join(f"{median(figures):.2f}" for figures in self.cores),
        )


def format_spread(figures: Sequence[float]) -> str:
    """Format the median, with least and most of several figures: `12.3 (11.9–12.5)`."""
    if not figures:
        return "–"
    middle = format_number(median(figures))
    if len(figures) == 1:
        return middle
    return f"{middle} ({format_number(min(figures))}–{format_number(max(figures))})"


def format_number(figure: float) -> str:
    """Format a number with three digits, or all before the point: 0.123, 12.3, 12,345."""
    if abs(figure) >= 100:
        return f"{figure:,.0f}"
    return f"{figure:.3g}"


def render(rows: Sequence[Row], days: Sequence[str] = ()) -> str:
    """Render a table for each kind of rows, for a terminal that is Markdown too.

    `days` are those on which the rows were measured, where they are to be shown: "" is none.
    """
    tables = []
    for beside in Beside:
        chosen = [number for number, row in enumerate(rows) if row.beside is beside]
        if chosen:
            shown = [days[number] for number in chosen] if days else ()
            tables.append(_render_table([rows[number] for number in chosen], beside, shown))
    return "\n".join(tables)


def _render_table(rows: Sequence[Row], beside: Beside, days: Sequence[str]) -> str:
    title = beside.value
    columns = ["question", "unit", "ours", title, f"ours/{title}", "wanted", "", "broker cores"]
    lines = [columns, *(list(row.cells()) for row in rows)]
    if any(days):
        for line, day in zip(lines, ["day", *days], strict=True):
            line.append(day)

    # Columns in which there is nothing are left out.
    full = [column for column in zip(*lines, strict=True) if any(column[1:])]
    return align(list(zip(*full, strict=True)))


def align(lines: Sequence[Sequence[str]]) -> str:
    """Lay out a table of Markdown; its first line is the heading."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]

    # Markdown's line between heading and rows.
    aligned.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(aligned) + "\n"
