"""Figures, and the one table they are printed as and kept in.

A row is a question, what was wanted, and what each round measured on our side and on the peer's.
Medians stand for the rounds, their least and most show the spread, and the ratio of the medians is
what was wanted of most rows.
"""

from collections.abc import Sequence
from statistics import median

import attrs

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
        """Whether a figure is within the bound."""
        return figure >= self.bound if self.sign == "≥" else figure <= self.bound


def at_least(bound: float) -> Wanted:
    """Of the ratio: the more the better."""
    return Wanted("≥", bound)


def at_most(bound: float, unit: str = "") -> Wanted:
    """Of the ratio, or with `unit` of our figure: the less the better."""
    return Wanted("≤", bound, unit)


@attrs.frozen
class Row:
    """What the rounds said to one question: our figures and, with a peer, its figures."""

    question: str
    unit: str
    wanted: Wanted | None
    figures: Sequence[tuple[float, ...]]
    cores: Sequence[tuple[float, ...]] = ()
    """Processor cores that our broker used meanwhile, and the peer's."""

    @property
    def ours(self) -> tuple[float, ...]:
        """Our figures, one for each round."""
        return self.figures[0]

    @property
    def peer(self) -> tuple[float, ...]:
        """The peer's; empty without one."""
        return self.figures[1] if len(self.figures) > 1 else ()

    @property
    def ratio(self) -> float | None:
        """Our median over the peer's; None without a peer."""
        if not self.peer or not median(self.peer):
            return None
        return median(self.ours) / median(self.peer)

    @property
    def is_short(self) -> bool:
        """Whether what was wanted was measured and not reached."""
        if self.wanted is None:
            return False
        figure = median(self.ours) if self.wanted.unit else self.ratio
        return figure is not None and not self.wanted.is_met(figure)

    def cells(self) -> tuple[str, ...]:
        """The row as the table shows it."""
        return (
            self.question,
            self.unit,
            format_spread(self.ours),
            format_spread(self.peer),
            "" if self.ratio is None else f"{self.ratio:.2f}",
            "" if self.wanted is None else str(self.wanted),
            "short" if self.is_short else "",
            " · ".join(f"{median(of):.2f}" for of in self.cores),
        )


def format_spread(figures: Sequence[float]) -> str:
    """Median, and least and most if there is more than one figure: `12.3 (11.9–12.5)`."""
    if not figures:
        return "–"
    middle = format_number(median(figures))
    if len(figures) == 1:
        return middle
    return f"{middle} ({format_number(min(figures))}–{format_number(max(figures))})"


def format_number(figure: float) -> str:
    """Three digits that count, and all that are whole: 0.123, 12.3, 12,345."""
    if abs(figure) >= 100:
        return f"{figure:,.0f}"
    return f"{figure:.3g}"


def render(rows: Sequence[Row]) -> str:
    """A table that reads well in a terminal, and as Markdown."""
    cells = [_COLUMNS, *(row.cells() for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines) + "\n"


def format_results(rows: Sequence[Row], heading: str, before: str) -> str:
    """The text of RESULTS.md: `heading`, the table, what is short, and the notes of `before`."""
    short = "".join(f"- {row.question}, {row.unit}\n" for row in rows if row.is_short)
    said = (
        f"Short of what was wanted (the notes say why):\n\n{short}"
        if short
        else ("Nothing is short of what was wanted.\n")
    )
    _, mark, notes = before.partition(NOTES_MARK)
    kept = notes if mark else "\n\n## Notes\n"
    return f"{heading}\n{render(rows)}\n{said}\n{NOTES_MARK}{kept}"
