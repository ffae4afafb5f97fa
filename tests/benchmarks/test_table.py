"""The tables show medians, ratios and rows that are short, one for each kind of other side."""

import pytest

from benchmarks.table import Beside, Row, at_least, at_most, format_number, format_spread, render

FAST = Row("fetch", "MB/s", at_least(1.0), [(1200.0, 900.0, 1000.0), (800.0, 500.0, 700.0)])
SLOW = Row("produce", "MB/s", at_least(0.8), [(30.0,), (100.0,)], [(0.5, 0.7, 0.6), (1.25,)])
LARGE = Row("a connection", "KB", at_most(30, "KB"), [(31.0,), (60.0,)])
ALONE = Row("start", "s", at_most(1 / 3), [(0.5,)])


@pytest.mark.parametrize(
    ("figure", "text"),
    [(0.04567, "0.0457"), (3.14159, "3.14"), (99.94, "99.9"), (419.4, "419"), (24400.0, "24,400")],
)
def test_a_number_shows_what_counts(figure: float, text: str) -> None:
    assert format_number(figure) == text


def test_a_spread_is_the_median_with_least_and_most() -> None:
    assert format_spread((3.0, 1.0, 2.0, 10.0)) == "2.5 (1–10)"
    assert format_spread((3.0,)) == "3"
    assert format_spread(()) == "–"


def test_the_ratio_is_that_of_the_medians() -> None:
    assert FAST.ratio == pytest.approx(1000 / 700)
    assert ALONE.ratio is None


def test_a_row_is_short_when_its_ratio_or_its_own_figure_is_out_of_bound() -> None:
    assert [row.is_short for row in (FAST, SLOW, LARGE, ALONE)] == [False, True, True, False]


def test_the_table_is_aligned() -> None:
    assert render([FAST, SLOW, LARGE, ALONE]) == (
        "| question     | unit | ours              | peer          | ours/peer | wanted  |       "
        "| broker cores |\n"
        "|--------------|------|-------------------|---------------|-----------|---------|-------"
        "|--------------|\n"
        "| fetch        | MB/s | 1,000 (900–1,200) | 700 (500–800) | 1.43      | ≥ 1     |       "
        "|              |\n"
        "| produce      | MB/s | 30                | 100           | 0.30      | ≥ 0.8   | short "
        "| 0.60 · 1.25  |\n"
        "| a connection | KB   | 31                | 60            | 0.52      | ≤ 30 KB | short "
        "|              |\n"
        "| start        | s    | 0.5               | –             |           | ≤ 0.333 |       "
        "|              |\n"
    )


def test_rows_beside_an_earlier_state_do_not_stand_under_the_peer() -> None:
    before = Row("roll · before", "ms", None, [(5.0,), (500.0,)], beside=Beside.BEFORE)
    figures = [(3.0,), (4.0,)]
    linear = Row("20 members · linear from 10", "a member", None, figures, beside=Beside.LINEAR)

    assert render([before, FAST, linear], ["2026-11-23", "", ""]) == (
        "| question | unit | ours              | peer          | ours/peer | wanted |\n"
        "|----------|------|-------------------|---------------|-----------|--------|\n"
        "| fetch    | MB/s | 1,000 (900–1,200) | 700 (500–800) | 1.43      | ≥ 1    |\n"
        "\n"
        "| question                    | unit     | ours | if linear | ours/if linear |\n"
        "|-----------------------------|----------|------|-----------|----------------|\n"
        "| 20 members · linear from 10 | a member | 3    | 4         | 0.75           |\n"
        "\n"
        "| question      | unit | ours | before | ours/before | day        |\n"
        "|---------------|------|------|--------|-------------|------------|\n"
        "| roll · before | ms   | 5    | 500    | 0.01        | 2026-11-23 |\n"
    )
