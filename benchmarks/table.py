"""Figures become rows of one table, which is printed and kept in RESULTS.md.

A row has a question, a bound, and the figures of each round on our side and the peer's. It shows
their medians, with the least and the most, and the ratio of the medians, which most bounds are for.
"""

from collections.abc import Sequence
from statistics import median

import attrs

from protocol.version import COMPILED

NOTES_MARK = (
    "<!-- Below this line: by hand. `make bench` rewrites what is above and keeps this. -->"
)
_COLUMNS = ("question", "unit", "ours", "peer", "ours/peer", "wanted", "", "broker cores")


@attrs.frozen
class Wanted:
    """A bound on the ratio ours/peer, or, with a unit, on our figure itself."""

    sign: str
    bound: float
    unit: str = ""

    def __str__(self) -> str:
        return f"{self.sign} {self.bound:.3g} {self.unit}".rstrip()

    def is_met(self, figure: float) -> bool:
        """True if a figure is within the bound."""
        return figure >= self.bound if self.sign == "≥" else figure <= self.bound


def at_least(bound: float, *, compiled: float | None = None) -> Wanted:
    """Bound the ratio from below: more is better. The compiled form may have a bound of its own."""
    return Wanted("≥", compiled if COMPILED and compiled is not None else bound)


def at_most(bound: float, unit: str = "") -> Wanted:
    """Bound the ratio, or with a unit our figure, from above: less is better."""
    return Wanted("≤", bound, unit)


@attrs.frozen
class Row:
    """The answer to one question: our figures of all rounds and, with a peer, its figures."""

    question: str
    unit: str
    wanted: Wanted | None
    figures: Sequence[tuple[float, ...]]
    cores: Sequence[tuple[float, ...]] = ()
    """Processor cores that our broker and the peer's used meanwhile."""

    @property
    def ours(self) -> tuple[float, ...]:
        """Our figures, one for each round."""
        return self.figures[0]

    @property
    def peer(self) -> tuple[float, ...]:
        """The peer's figures; empty without a peer."""
        return self.figures[1] if len(self.figures) > 1 else ()

    @property
    def ratio(self) -> float | None:
        """Our median over the peer's; None without a peer."""
        if not self.peer or not median(self.peer):
            return None
        return median(self.ours) / median(self.peer)

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
            format_spread(self.peer),
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


def render(rows: Sequence[Row]) -> str:
    """Render a table for a terminal that is Markdown too."""
    cells = [_COLUMNS, *(row.cells() for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in cells]

    # Markdown's line between heading and rows.
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines) + "\n"


def format_results(rows: Sequence[Row], heading: str, old_text: str) -> str:
    """Format RESULTS.md: heading, table, rows that are short, and the notes of the old text."""
    short_rows = "".join(f"- {row.question}, {row.unit}\n" for row in rows if row.is_short)
    if short_rows:
        verdict = f"Short of what was wanted (the notes say why):\n\n{short_rows}"
    else:
        verdict = "Nothing is short of what was wanted.\n"

    # Notes are written by hand, and outlive the figures.
    _, mark, old_notes = old_text.partition(NOTES_MARK)
    notes = old_notes if mark else "\n\n## Notes\n"
    return f"{heading}\n{render(rows)}\n{verdict}\n{NOTES_MARK}{notes}"
