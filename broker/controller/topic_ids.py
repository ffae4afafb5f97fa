"""The controller pins the ids of topics: it writes each into the topic's znode.

The id is the one that every broker of ours derives (`protocol/topic_identity`), never a random one.
So a stock controller before 2.8, which drops it when it next writes the node, changes nothing; and
one from 2.8 on, which gives an id to a topic that has none, finds one.

A new topic is pinned before its partitions get leaders: every write of the node makes old consumers
rebalance who watch it, and then nobody consumes yet. The topics that a new controller finds without
an id are pinned some time after its election, a few at a time, so that what is urgent comes in
between.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.controller.effects import Effect, PinTopicIds, SetTimer
from broker.controller.events import PinningDue
from broker.controller.state import ControllerState

PINNING_DELAY_MS = 2000
"""From an election to the pinning of ids."""
PINNING_PAUSE_MS = 50
TOPICS_AT_ONCE = 50


def pin_now(state: ControllerState, topics: Iterable[str]) -> list[Effect]:
    """Pin the ids of topics that have none in their znodes."""
    unpinned = _living(state, sorted(topics))
    starts = range(0, len(unpinned), TOPICS_AT_ONCE)
    return [PinTopicIds(unpinned[start : start + TOPICS_AT_ONCE]) for start in starts]


def pin_later(state: ControllerState, topics: Iterable[str]) -> list[Effect]:
    """Have the ids of topics pinned that have none in their znodes."""
    unpinned = tuple(sorted(topics))
    if not unpinned:
        return []
    return [SetTimer(PinningDue(state.resignations, unpinned), PINNING_DELAY_MS)]


def handle_pinning_due(state: ControllerState, event: PinningDue) -> list[Effect]:
    """Pin some topics, and the rest after a pause."""
    # Begun before this controller resigned.
    if event.resignations != state.resignations:
        return []

    left = _living(state, event.topics)
    effects: list[Effect] = []
    if left:
        effects.append(PinTopicIds(left[:TOPICS_AT_ONCE]))
    if rest := left[TOPICS_AT_ONCE:]:
        effects.append(SetTimer(PinningDue(event.resignations, rest), PINNING_PAUSE_MS))
    return effects


def _living(state: ControllerState, topics: Iterable[str]) -> tuple[str, ...]:
    """Those that are there and not being deleted: the others need no id any more."""
    return tuple(
        topic for topic in topics if topic in state.assignments and topic not in state.deletions
    )
