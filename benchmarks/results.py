"""RESULTS.md is made from results.json, which keeps the rows of all runs, and from the notes in it.

    python -m benchmarks.results [FILE…]

A run replaces the rows of the questions that it has asked, and each row keeps the day of its run.
Rows of FILEs, such as build/compiled/benchmarks/results.json, are taken in first. Nothing above the
mark in RESULTS.md is written by hand.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import attrs
import click

from benchmarks.table import Beside, Row, Wanted, align, format_number, render

HERE = Path(__file__).parent
DATA = HERE / "results.json"
RESULTS = HERE / "RESULTS.md"
NOTES_MARK = (
    "<!-- Below this line: by hand. `python -m benchmarks.results` makes what is above, and keeps "
    "this. -->"
)

_TITLES = {
    Beside.PEER: "Beside a peer",
    Beside.OURSELVES: "Beside ourselves: the second is what the question names last",
    Beside.LINEAR: "Growth, beside an extrapolation from the smallest number",
    Beside.BEFORE: "Beside an earlier state of ours",
}


@attrs.frozen
class ResultRow:
    """A row with the question of `python -m benchmarks` that it answers, and the day of its run."""

    row: Row
    asked: str
    day: str
    is_compiled: bool = False


@attrs.frozen
class Results:
    """All rows, and the head of RESULTS.md: of the last run that asked all questions, on `day`."""

    head: str
    day: str
    rows: Sequence[ResultRow]


def merge(rows: Sequence[ResultRow], new: Sequence[ResultRow]) -> list[ResultRow]:
    """Put new rows in the place of those that answer the same questions in the same form."""
    answers: dict[tuple[str, bool], list[ResultRow]] = {}
    for result in rows:
        answers.setdefault((result.asked, result.is_compiled), []).append(result)

    renewed = set()
    for result in new:
        place = result.asked, result.is_compiled
        if place not in renewed:
            answers[place] = []
            renewed.add(place)
        answers[place].append(result)
    return [result for answer in answers.values() for result in answer]


def format_results(results: Results, old_text: str) -> str:
    """Format RESULTS.md: head, tables, what is short, changed bounds, and the old text's notes.

    Its tables have the pure rows; those of the compiled form stand beside them in a table of their
    own, and in all where there are no others.
    """
    shown = [result for result in results.rows if not result.is_compiled] or results.rows
    parts = [results.head, *_format_tables(shown, results.day), *_format_both(results.rows)]

    rows = [result.row for result in shown]
    short = "".join(f"- {row.question}, {row.unit}\n" for row in rows if row.is_short)
    if short:
        parts.append(f"## Short of what was wanted\n\nThe notes say why.\n\n{short}")
    else:
        parts.append("Nothing is short of what was wanted.\n")

    changes = "".join(
        f"- {row.question}, {row.unit}: now {row.wanted}, {row.wanted.changed}\n"
        for row in rows
        if row.wanted is not None and row.wanted.changed
    )
    if changes:
        parts.append(f"## Bounds that were changed\n\n{changes}")

    # Notes are written by hand, and outlive the figures.
    _, mark, old_notes = old_text.partition(NOTES_MARK)
    notes = old_notes if mark else "\n\n## Notes\n"
    return "\n".join(parts) + f"\n{NOTES_MARK}{notes}"


def _format_tables(results: Sequence[ResultRow], day: str) -> Iterable[str]:
    """Yield a section for each kind of rows; a row of another day than `day` shows its own."""
    for beside, title in _TITLES.items():
        chosen = [result for result in results if result.row.beside is beside]
        if chosen:
            days = ["" if result.day == day else result.day for result in chosen]
            yield f"## {title}\n\n{render([result.row for result in chosen], days)}"


def _format_both(results: Sequence[ResultRow]) -> Iterable[str]:
    """Yield the section of what was measured pure and compiled, if there is any."""
    pure = {
        (result.row.question, result.row.unit): result.row.cells()
        for result in results
        if not result.is_compiled
    }
    lines = [
        ("question", "unit", "pure", "", "compiled: ours", "other", "ratio", "wanted", "", "day")
    ]
    for result in results:
        row = result.row
        if result.is_compiled and (row.question, row.unit) in pure:
            _, _, _, _, pure_ratio, _, pure_short, _ = pure[row.question, row.unit]
            _, _, _, _, ratio, wanted, short, _ = row.cells()
            ours, other = format_number(median(row.ours)), format_number(median(row.other))
            line = pure_ratio, pure_short, ours, other, ratio, wanted, short, result.day
            lines.append((row.question, row.unit, *line))
    if len(lines) > 1:
        yield f"## Pure and compiled, by the ratio to the other side\n\n{align(lines)}"


# ---- results.json


def read_results(text: str) -> Results:
    """Read results.json."""
    fields = json.loads(text)
    return Results(fields["head"], fields["day"], [_read_row(row) for row in fields["rows"]])


def encode_results(results: Results) -> str:
    """Encode results.json: a line for each row, so that a run changes the lines of its rows."""
    rows = ",\n".join(json.dumps(_encode_row(row), ensure_ascii=False) for row in results.rows)
    head, day = (json.dumps(text, ensure_ascii=False) for text in (results.head, results.day))
    return f'{{"head": {head},\n"day": {day},\n"rows": [\n{rows}\n]}}\n'


def _read_row(fields: dict[str, Any]) -> ResultRow:
    wanted = fields["wanted"]
    row = Row(
        fields["question"],
        fields["unit"],
        None if wanted is None else Wanted(**wanted),
        [tuple(figures) for figures in fields["figures"]],
        [tuple(cores) for cores in fields["cores"]],
        Beside[fields["beside"]],
    )
    return ResultRow(row, fields["asked"], fields["day"], fields["is_compiled"])


def _encode_row(result: ResultRow) -> dict[str, Any]:
    row = result.row
    return {
        "asked": result.asked,
        "day": result.day,
        "is_compiled": result.is_compiled,
        "beside": row.beside.name,
        "question": row.question,
        "unit": row.unit,
        "wanted": None if row.wanted is None else attrs.asdict(row.wanted),
        "figures": row.figures,
        "cores": row.cores,
    }


# ---- the files


def load() -> Results:
    """Return what results.json has; nothing if there is none."""
    return read_results(DATA.read_text("utf-8")) if DATA.exists() else Results("", "", [])


def save(results: Results) -> None:
    """Write results.json, and RESULTS.md from it."""
    old_text = RESULTS.read_text("utf-8") if RESULTS.exists() else ""
    DATA.write_text(encode_results(results), "utf-8")
    RESULTS.write_text(format_results(results, old_text), "utf-8")


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def main(files: tuple[Path, ...]) -> None:
    """Make RESULTS.md from results.json, with the rows of FILEs."""
    results = load()
    for file in files:
        others = read_results(file.read_text("utf-8"))
        results = attrs.evolve(results, rows=merge(results.rows, others.rows))
    save(results)


if __name__ == "__main__":
    main()
