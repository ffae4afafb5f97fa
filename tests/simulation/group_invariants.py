"""What must never happen to a group with members; `invariants` has the letters of the others.

i  a partition has two owners in one generation; a member is given a generation, or has a commit
   accepted, that is older than one given out before it asked; a commit that was acknowledged is
   behind an earlier one, or whoever reads the offsets later finds less
k  when peace is made, the group does not settle: all members stable, each partition with one owner
l  one broker falls silent for good and the others are well, and the group does not settle without
   it, or a member's commits are refused for ever

As elsewhere, what a power failure may take is counted and not held against anyone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from tests.simulation.invariants import Invariants

Offsets = Mapping[TopicPartition, int]


class GroupInvariants:
    """What the members of one group were told; a member is named by its process."""

    def __init__(self, invariants: Invariants) -> None:
        self._invariants = invariants
        self._story = invariants.story
        self.newest_generation = -1
        """Members ask for this before a request, and bring it back with the response."""
        self.committed_at: dict[str, float] = {}
        """When a commit of each member was last accepted, in virtual seconds."""
        self._owners: dict[tuple[int, TopicPartition], str] = {}
        self._committed: dict[TopicPartition, int] = {}

    def committed(self) -> Offsets:
        """Return what is acknowledged so far: the next reader must find as much."""
        return dict(self._committed)

    def assigned(
        self, member: str, generation_id: int, newest: int, partitions: Collection[TopicPartition]
    ) -> None:
        """Note that a member was given partitions. `newest`: the generation known when it asked."""
        self._story.counts["assignments"] += 1
        if generation_id < newest:
            self._fail(f"{member} is given generation {generation_id} after {newest}")
        if generation_id > self.newest_generation:
            self.newest_generation = generation_id
            self._story.tell("group", f"generation {generation_id}")
        for partition in sorted(partitions):
            owner = self._owners.setdefault((generation_id, partition), member)
            if owner != member:
                self._fail(f"{owner} and {member} own {partition} in generation {generation_id}")
                self._owners[generation_id, partition] = member

    def commit_accepted(
        self, member: str, generation_id: int, newest: int, before: Offsets, offsets: Offsets
    ) -> None:
        """Note an acknowledged commit; `newest` and `before` were known when it was sent."""
        self._story.counts["commits of members"] += 1
        self.committed_at[member] = self._invariants.world.now
        if generation_id < newest:
            self._fail(f"{member} commits in generation {generation_id} after {newest}")
        for partition, offset in offsets.items():
            if offset < before.get(partition, -1):
                self._fail(f"{member} commits {offset} of {partition} after {before[partition]}")
                self._committed[partition] = offset
            self._committed[partition] = max(self._committed.get(partition, -1), offset)

    def read(self, member: str, before: Offsets, found: Mapping[TopicPartition, int]) -> None:
        """Note what a member finds committed of what it was given."""
        for partition, offset in found.items():
            if offset < before.get(partition, -1):
                self._fail(f"{member} finds {offset} of {partition}, not {before[partition]}")
                self._committed[partition] = offset

    def _fail(self, what: str) -> None:
        if self._invariants.cluster.loss_allowed:
            self._story.counts["group set back by a power failure"] += 1
            # Generations are counted from what is left.
            self.newest_generation = -1
            self._owners.clear()
        else:
            self._invariants.world.fail(f"i: {what}")
