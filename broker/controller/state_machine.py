"""A table of states and of the moves between them, for partitions and for replicas.

A key in the state `absent` is not kept: a key without a state is absent.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Generic, TypeVar

from protocol.frozen import frozen

K = TypeVar("K")
S = TypeVar("S", bound=Enum)

logger = logging.getLogger(__name__)


@frozen
class StateMachine(Generic[S]):
    """The legal moves. `valid_previous` has, for each state, those from which it may be entered."""

    valid_previous: Mapping[S, frozenset[S]]
    absent: S

    def enter(self, states: dict[K, S], keys: Iterable[K], target: S) -> list[K]:
        """Move `keys` to the state `target`; return those that moved.

        An illegal move is logged, and the key stays where it is: its events came in an order that
        nobody foresaw, and to act on it would make matters worse.
        """
        moved = []
        for key in keys:
            current = states.get(key, self.absent)
            if current not in self.valid_previous[target]:
                logger.error("%s cannot go from %s to %s", key, current.name, target.name)
                continue

            moved.append(key)
            if target is self.absent:
                states.pop(key, None)
            else:
                states[key] = target
        return moved
