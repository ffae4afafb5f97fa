"""Choose and order the columns and rows of a listing: `--columns`, `--sort` and `--match`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import click

from clients.command_line.output import Column, Listing

columns_option = click.option(
    "--columns", metavar="A,B,…", help="Show these columns, by their titles or their names in JSON."
)
sort_option = click.option(
    "--sort", metavar="[-]COLUMN", help="Sort rows by a column; - puts the largest first."
)


def match_pattern(match: str | None) -> re.Pattern[str]:
    """Return the pattern of `--match`, by default one that all names match. Raises UsageError."""
    try:
        return re.compile(match or "")
    except re.error as error:
        raise click.UsageError(f"--match {match!r}: {error}") from None


def find_column(columns: Sequence[Column], name: str) -> Column:
    """Return a column by its title or key, whatever the case. Raises UsageError."""
    known = {column.title.lower(): column for column in columns}
    known |= {column.key.lower(): column for column in columns}
    wanted = name.strip().lower()
    if wanted in known:
        return known[wanted]

    # `time-lag` is the title, `time_lag_ms` the key, and people try `time_lag`.
    spellings = {spelling.replace("_", "-"): column for spelling, column in known.items()}
    if wanted.replace("_", "-") in spellings:
        return spellings[wanted.replace("_", "-")]

    from difflib import get_close_matches  # here, because hardly anyone needs it

    close = get_close_matches(wanted.replace("_", "-"), spellings, 1)
    hint = f"did you mean {spellings[close[0]].title}?" if close else ""
    titles = ", ".join(column.title for column in columns)
    raise click.UsageError(f"no column {name.strip()!r}: {hint or f'there are {titles}'}")


def choose_columns(columns: Sequence[Column], names: str | None) -> list[Column]:
    """Return the columns of `--columns`, in its order; all as they are without it.

    Raises UsageError.
    """
    if names is None:
        return list(columns)
    chosen = [find_column(columns, name) for name in names.split(",") if name.strip()]
    if not chosen:
        raise click.UsageError("--columns names no column")
    # What was named is shown, in a plain table too.
    return [attrs.evolve(column, wide=False, optional=False) for column in chosen]


def sort_listing(listing: Listing, columns: Sequence[Column], name: str | None) -> Listing:
    """Sort the rows by one of `columns`; those without a value come last. Raises UsageError."""
    if name is None:
        return listing
    key = find_column(columns, name.removeprefix("-")).key

    def value_of(item: Mapping[str, Any]) -> Any:
        return item[key]

    known = [item for item in listing.items if item.get(key) is not None]
    unknown = [item for item in listing.items if item.get(key) is None]
    known.sort(key=value_of, reverse=name.startswith("-"))
    return attrs.evolve(listing, items=[*known, *unknown])
