"""Combinations that are too many for each run: `make test` takes a few, `make interop` all.

A test has a mark for those of its parameters that wait for `make interop`:
`pytest.param(…, marks=pytest.mark.product)`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

MARK = "product"


def wanted(items: Sequence[pytest.Item], part: str | None) -> list[pytest.Item]:
    """Return the tests without the mark; or part N of M of all, where `part` is N/M.

    Parts hold every M-th test, so that each has its share of every kind.
    """
    if part is None:
        return [item for item in items if item.get_closest_marker(MARK) is None]

    number, _, parts = part.partition("/")
    if not (number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts)):
        raise pytest.UsageError(f"--product {part}: a part is N/M, from 1/M to M/M")
    return [*items[int(number) - 1 :: int(parts)]]
