"""RESULTS.md is made from results.json: tables, what is short, changed bounds; notes stay."""

import attrs

from benchmarks.results import (
    NOTES_MARK,
    RESULTS,
    ResultRow,
    Results,
    encode_results,
    format_results,
    load,
    merge,
    read_results,
)
from benchmarks.table import Beside, Row, at_least, at_most

DAY, EARLIER = "2026-11-27", "2026-11-23"
LOWERED = at_least(0.95, changed="from 1 on 2026-11-25: it waits mostly")
FETCH = ResultRow(Row("fetch", "MB/s", LOWERED, [(9.0,), (7.0,)]), "fetch", DAY)
PRODUCE = ResultRow(
    Row("produce", "MB/s", at_least(0.8), [(30.0,), (100.0,)], [(0.5,), (1.0,)]), "produce", DAY
)
ROLL = ResultRow(
    Row("roll · before", "ms", at_most(20, "ms"), [(25.0,), (500.0,)], beside=Beside.BEFORE),
    "turns",
    EARLIER,
)
THREE = Results("# Speed\n", DAY, [FETCH, PRODUCE, ROLL])


def test_results_are_what_is_kept_and_the_notes() -> None:
    """Whoever edits a figure or a list by hand is told."""
    text = RESULTS.read_text("utf-8")

    assert format_results(load(), text) == text


def test_what_is_kept_is_read_again() -> None:
    text = encode_results(THREE)

    assert encode_results(read_results(text)) == text
    assert [result.row.cells() for result in read_results(text).rows] == [
        result.row.cells() for result in THREE.rows
    ]


def test_short_rows_are_listed_and_a_row_of_another_day_says_so() -> None:
    text = format_results(THREE, "")

    _, _, short = text.partition("## Short of what was wanted\n")
    listed, _, _ = short.partition("## Bounds")
    assert [line for line in listed.splitlines() if line.startswith("- ")] == [
        "- produce, MB/s",
        "- roll · before, ms",
    ]
    (roll,) = [line for line in text.splitlines() if line.startswith("| roll")]
    assert roll.endswith(f"| short | {EARLIER} |")
    assert DAY not in text
    assert text.index("| fetch") < text.index("## Beside an earlier state") < text.index("| roll")


def test_a_bound_that_was_changed_says_from_what_and_why() -> None:
    line = "- fetch, MB/s: now ≥ 0.95, from 1 on 2026-11-25: it waits mostly\n"

    assert line in format_results(THREE, "")


def test_compiled_rows_stand_beside_the_pure_ones_alone() -> None:
    compiled = attrs.evolve(PRODUCE, is_compiled=True)
    faster = attrs.evolve(compiled, row=attrs.evolve(PRODUCE.row, figures=[(90.0,), (100.0,)]))

    text = format_results(attrs.evolve(THREE, rows=[*THREE.rows, faster]), "")

    (line,) = [line for line in text.splitlines() if line.startswith("| produce") and "90" in line]
    assert [cell.strip() for cell in line.strip("|").split("|")] == [
        *("produce", "MB/s", "0.30", "short", "90", "100", "0.90", "≥ 0.8", "", DAY),
    ]
    assert text.count("- produce, MB/s\n") == 1


def test_a_compiled_copy_shows_its_rows_alone() -> None:
    compiled = attrs.evolve(PRODUCE, is_compiled=True)

    text = format_results(attrs.evolve(THREE, rows=[compiled]), "")

    assert "| produce" in text
    assert "- produce, MB/s" in text
    assert "Pure and compiled" not in text


def test_a_run_replaces_the_rows_of_its_questions_in_its_form() -> None:
    compiled = attrs.evolve(FETCH, is_compiled=True)
    again = attrs.evolve(FETCH, day="2026-11-30")

    assert merge([FETCH, compiled, PRODUCE], [again]) == [again, compiled, PRODUCE]


def test_notes_outlive_the_figures() -> None:
    first = format_results(attrs.evolve(THREE, rows=[PRODUCE]), "")
    again = format_results(attrs.evolve(THREE, rows=[FETCH]), first + "\nThe walk is slow.\n")

    assert first.endswith(f"{NOTES_MARK}\n\n## Notes\n")
    assert again.endswith(f"{NOTES_MARK}\n\n## Notes\n\nThe walk is slow.\n")
    assert "produce" not in again
    assert "Nothing is short" in again
