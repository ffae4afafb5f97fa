"""The balance of a placement: no move of one partition brings two members closer together.

A placement is balanced if every member that could take a partition from another one holds at most
one less than that other. Between members with the same topics this is a difference of at most one.

Topics are levelled one after the other, until none of them changes. Within a topic the member that
holds most gives to the subscriber that holds least. Every move lowers the sum of the squares of all
loads, so this ends. Nor can balance get worse by it, which Java's assignor has to check at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush

import attrs

from groups.assignors.placement import Placement
from protocol.topic_partition import TopicPartition

Holdings = dict[str, list[TopicPartition]]
"""Partitions of a topic that may move, by their holder. The last one moves first."""


def balance(placement: Placement) -> None:
    """Move partitions until the placement is balanced."""
    is_changed = True
    while is_changed:
        # A partition that is not at home moves on at no cost: try that before others leave home.
        while _level_all(placement, only_strangers=True):
            pass
        is_changed = _level_all(placement, only_strangers=False)


def _level_all(placement: Placement, *, only_strangers: bool) -> bool:
    """Level every topic once; return whether a partition moved."""
    is_changed = False
    for topic, subscribers in placement.subscribers_of.items():
        # A topic with one subscriber cannot move.
        if len(subscribers) < 2:
            continue

        # Strangers first again: the topic before may have made room for them.
        is_changed |= _level(placement, topic, only_strangers=True)
        if not only_strangers:
            is_changed |= _level(placement, topic, only_strangers=False)
    return is_changed


def _level(placement: Placement, topic: str, *, only_strangers: bool) -> bool:
    """Bring the subscribers of a topic closer together; return whether a partition moved."""
    loads = placement.loads
    subscribers = placement.subscribers_of[topic]
    holders = {placement.holder_of[partition] for partition in placement.partitions_of[topic]}

    # Most topics are level: say so before anything is put in order.
    least = min(map(loads.__getitem__, subscribers))
    if max(map(loads.__getitem__, holders)) - least < 2:
        return False

    holdings = _movable(placement, topic, only_strangers=only_strangers)
    heaviest = _Ranking.of(holdings, loads, sign=-1)
    lightest = _Ranking.of(subscribers, loads, sign=1)
    is_changed = False

    while (giver := _heaviest_holder(heaviest, holdings)) is not None:
        taker = lightest.first()
        assert taker is not None
        if loads[giver] - loads[taker] < 2:
            break

        partition = holdings[giver].pop()
        taker = _choose_taker(placement, partition, giver, taker)
        placement.move(partition, taker)
        is_changed = True

        # It may move on from here, but not if it came home.
        if not placement.is_home(partition):
            holdings.setdefault(taker, []).append(partition)
        for ranking in (heaviest, lightest):
            ranking.update(giver)
            ranking.update(taker)

    return is_changed


def _movable(placement: Placement, topic: str, *, only_strangers: bool) -> Holdings:
    """Return the partitions of a topic by their holders; those not at home come last."""
    at_home: Holdings = {}
    strangers: Holdings = {}
    for partition in placement.partitions_of[topic]:
        kind = at_home if placement.is_home(partition) else strangers
        kind.setdefault(placement.holder_of[partition], []).append(partition)

    if only_strangers:
        return strangers
    return {
        holder: at_home.get(holder, []) + strangers.get(holder, [])
        for holder in at_home.keys() | strangers.keys()
    }


def _heaviest_holder(heaviest: _Ranking, holdings: Holdings) -> str | None:
    """Return the holder with the largest load that has a partition left to give."""
    while (holder := heaviest.first()) is not None and not holdings.get(holder):
        heaviest.remove_first()
    return holder


def _choose_taker(placement: Placement, partition: TopicPartition, giver: str, taker: str) -> str:
    """Return who takes the partition: its owner before the last one, if that helps too."""
    previous = placement.previous_owner_of.get(partition)
    if previous is not None and placement.loads[giver] - placement.loads[previous] >= 2:
        return previous
    return taker


@attrs.define(eq=False)
class _Ranking:
    """Members in the order of their loads, ascending with `sign` 1 and descending with -1.

    A member has an entry for each load that it had; only that for its present load counts.
    """

    loads: Mapping[str, int]
    sign: int
    entries: list[tuple[int, str]]

    @classmethod
    def of(cls, members: Iterable[str], loads: Mapping[str, int], *, sign: int) -> _Ranking:
        entries = [(sign * loads[member_id], member_id) for member_id in members]
        heapify(entries)
        return cls(loads, sign, entries)

    def first(self) -> str | None:
        """Return the member at the head."""
        while self.entries:
            load, member_id = self.entries[0]
            if load == self.sign * self.loads[member_id]:
                return member_id
            heappop(self.entries)
        return None

    def remove_first(self) -> None:
        heappop(self.entries)

    def update(self, member_id: str) -> None:
        """Take note of a member's new load."""
        heappush(self.entries, (self.sign * self.loads[member_id], member_id))
