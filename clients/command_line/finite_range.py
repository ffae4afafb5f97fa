"""A type of options: a number that is finite."""

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A number in a range, as `click.FloatRange`, which takes NaN in each range."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number. Raises BadParameter (exit code 2)."""
        number: float = super().convert(value, param, ctx)
        # Nothing waits for so long (fault strangers-168).
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number
