"""Contestants take turns in rounds, so that a disturbance of the machine hits both.

Each has a warm-up first: a JVM compiles code that is used often, and caches fill.
"""

from collections.abc import Callable, Sequence

import attrs

Contestant = Callable[[float], tuple[float, ...]]
"""Work for about so many seconds; return the figures, one for each row of the question."""


@attrs.frozen
class Rounds:
    """The number of rounds, and the length of each and of the warm-up."""

    number: int
    seconds: float
    warm_up_s: float = 3.0


def alternate(
    contestants: Sequence[Contestant], rounds: Rounds
) -> list[tuple[tuple[float, ...], ...]]:
    """Let contestants work in turns; return for each figure and contestant that of each round."""
    for contestant in contestants:
        contestant(rounds.warm_up_s)

    turns = [
        [contestant(rounds.seconds) for contestant in contestants] for _ in range(rounds.number)
    ]

    # Transpose: the figures of each turn become the turns of each figure.
    by_contestant = [zip(*figures, strict=True) for figures in zip(*turns, strict=True)]
    return list(zip(*by_contestant, strict=True))
