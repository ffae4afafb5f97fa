"""A remedy: a piece of code without which a fault, or a hazard, is back."""

from __future__ import annotations

import attrs


@attrs.frozen
class Remedy:
    """`code` stands in `place` (see `tests.mutants.places`); with `instead`, the fault is back.

    `finding`: the number in the tables of `tests/README.md`, as in "26" or "A3". `tests` must fail
    then: paths and test ids with blanks between; empty for those its area has for the module.
    """

    finding: str
    what: str
    place: str
    code: str
    instead: str
    tests: str = ""

    @property
    def module(self) -> str:
        """The module of the place."""
        return self.place.partition(":")[0]
