"""Rounds: the contestants take turns, so that what disturbs the machine disturbs both.

Each is first driven once for nothing: a JVM compiles what is used often, and caches fill.
"""

from collections.abc import Callable, Sequence

import attrs

Contestant = Callable[[float], tuple[float, ...]]
"""Works for about so many seconds and gives its figures, one for each row of the question."""


@attrs.frozen
class Rounds:
    """How many, and how long each of them and the warm-up are."""

    number: int
    seconds: float
    warm_up_s: float = 3.0


def alternate(
    contestants: Sequence[Contestant], rounds: Rounds
) -> list[tuple[tuple[float, ...], ...]]:
    """For each figure, for each contestant, what the rounds gave."""
    for contestant in contestants:
        contestant(rounds.warm_up_s)
    turns = [
        [contestant(rounds.seconds) for contestant in contestants] for _ in range(rounds.number)
    ]
    by_contestant = [zip(*figures, strict=True) for figures in zip(*turns, strict=True)]
    return list(zip(*by_contestant, strict=True))
