"""States and the table of ways between them: what a partition's and a replica's machine share.

What is in no state yet, or not any more, is not kept: it counts as being in `absent`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Generic, TypeVar

import attrs

K = TypeVar("K")
S = TypeVar("S", bound=Enum)

logger = logging.getLogger(__name__)


@attrs.frozen
class StateMachine(Generic[S]):
    """`valid_previous`: for each state, those from which it may be entered."""

    valid_previous: Mapping[S, frozenset[S]]
    absent: S

    def enter(self, states: dict[K, S], keys: Iterable[K], target: S) -> list[K]:
        """Put `keys` into `target`, and say which have come there.

        One that must not go there from where it is stays, and that is logged: its events came in
        an order nobody has thought of, and to act on it would make it worse.
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
