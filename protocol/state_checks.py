"""A switch: check a state after each decision.

A state that a `decide` function works on has a method `check`, which asserts what must hold between
two events. It walks the whole state, so only tests and simulations turn this on. A process in
production looks at a flag.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable

import attrs


@attrs.define(eq=False)
class StateChecks:
    """The checks of one process. `is_on` is for callers: they skip the call if it is False."""

    is_on: bool = False
    _failures: list[str] = attrs.field(factory=list)

    def run(self, check: Callable[[], None]) -> None:
        """Call `check` and note its failure. Raises AssertionError."""
        try:
            check()
        except AssertionError:
            self._failures.append(traceback.format_exc())
            raise

    def take_failures(self) -> list[str]:
        """Return the failures since the last call. A caller may have swallowed the exceptions."""
        failures = self._failures
        self._failures = []
        return failures


STATE_CHECKS = StateChecks()
