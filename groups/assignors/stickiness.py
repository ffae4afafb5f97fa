"""The stickiness of a placement: partitions go back home where that costs no balance.

Balancing goes topic by topic, so one member may give to a second, and get something else from it
or from a third. Two kinds of moves undo that, and leave the balance as it is: a partition goes home
to a member that holds one less than its holder, and two members exchange partitions of which one
comes home by it.
"""

from __future__ import annotations

from collections.abc import Iterable

from groups.assignors.placement import Placement
from protocol.topic_partition import TopicPartition

Strangers = dict[str, dict[TopicPartition, None]]
"""Partitions that are not at home, by their holders, in a fixed order."""


def bring_home(placement: Placement) -> bool:
    """Move partitions home; return whether some did.

    Call this with a balanced placement. What members get in exchange may be of other topics, so
    that the placement can need balancing again. Each call lowers the number of moved partitions.
    """
    strangers: Strangers = {}
    for partition, holder in placement.holder_of.items():
        if not placement.is_home(partition):
            strangers.setdefault(holder, {})[partition] = None

    is_changed = False
    for partition, home in placement.home_of.items():
        # An exchange may have brought it home meanwhile.
        holder = placement.holder_of[partition]
        if holder == home:
            continue

        if placement.loads[holder] > placement.loads[home]:
            _move(placement, strangers, partition, home)
            is_changed = True
            continue

        exchanged = _find_exchange(placement, strangers.get(home, {}), holder)
        if exchanged is not None:
            _move(placement, strangers, partition, home)
            _move(placement, strangers, exchanged, holder)
            is_changed = True

    return is_changed


def _find_exchange(
    placement: Placement, candidates: Iterable[TopicPartition], taker: str
) -> TopicPartition | None:
    """Return the first of the candidates that `taker` subscribes to."""
    topics = placement.topics_of[taker]
    return next((partition for partition in candidates if partition.topic in topics), None)


def _move(
    placement: Placement, strangers: Strangers, partition: TopicPartition, member_id: str
) -> None:
    """Move a partition, and keep `strangers` right."""
    del strangers[placement.holder_of[partition]][partition]
    placement.move(partition, member_id)
    if not placement.is_home(partition):
        strangers.setdefault(member_id, {})[partition] = None
