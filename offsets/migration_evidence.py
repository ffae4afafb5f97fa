"""What is proven about two stores by looking at them again and again.

A commit to both stores is two writes, and a look at both is two reads, so that under traffic a
single look proves nothing either way. Kept per partition:

- at how many different offsets both were seen equal: so many commits certainly went to both;
- since when it has not been *stuck*: different twice in a row without either store having moved.
  While one of them moves, a difference may be a commit on its way; one that lags for ever is never
  seen equal, and is judged by that.

A member that nobody can ask (one on the JVM) is known by its deeds: the commits of a partition
count as its owner's while it owns it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import attrs

from protocol.topic_partition import TopicPartition

Offsets = Mapping[TopicPartition, int]


@attrs.frozen
class PartitionEvidence:
    """`zookeeper`, `kafka`: as last seen, None for no offset. `commits`: offsets at which both
    were seen equal after one or both had moved; `owner_commits`: those of its present owner."""

    zookeeper: int | None
    kafka: int | None
    owner: str | None
    sound_since_ms: int
    equal_at: int | None = None
    moved_at_ms: int | None = None
    commits: int = 0
    owner_commits: int = 0

    @property
    def differs(self) -> bool:
        """As last seen."""
        return self.zookeeper != self.kafka


@attrs.frozen
class Evidence:
    """Of all partitions that matter, since `since_ms`."""

    since_ms: int
    partitions: Mapping[TopicPartition, PartitionEvidence] = attrs.field(factory=dict)

    def seeing(
        self,
        zookeeper: Offsets,
        kafka: Offsets,
        owners: Mapping[TopicPartition, str],
        partitions: Collection[TopicPartition],
        now_ms: int,
    ) -> Evidence:
        """The evidence after one more look at `partitions`."""
        after = {}
        for p in partitions:
            pair = zookeeper.get(p), kafka.get(p)
            before = self.partitions.get(p)
            if before is None:
                equal_at = pair[0] if pair[0] == pair[1] else None
                after[p] = PartitionEvidence(*pair, owners.get(p), now_ms, equal_at)
            else:
                after[p] = _looked_again(before, pair, owners.get(p), now_ms)
        return attrs.evolve(self, partitions=after)

    def lacking(self, commits: int, since_ms: int) -> dict[TopicPartition, str]:
        """The partitions not yet proven to be in step since that time or earlier, and why.

        One that did not move since needs no commits: that both agree on it is all there is.
        """
        reasons = {}
        for p, seen in self.partitions.items():
            if seen.differs:
                reasons[p] = "different"
            elif seen.sound_since_ms > since_ms:
                reasons[p] = "equal only since a moment"
            elif (seen.moved_at_ms or since_ms) > since_ms and seen.commits < commits:
                reasons[p] = f"{seen.commits} of {commits} commits seen in both"
        return reasons

    def proven_members(self, commits: int) -> set[str]:
        """Owners whose commits were seen in both stores, so many for one partition at least."""
        return {
            seen.owner
            for seen in self.partitions.values()
            if seen.owner is not None and seen.owner_commits >= commits
        }


def _looked_again(
    before: PartitionEvidence,
    pair: tuple[int | None, int | None],
    owner: str | None,
    now_ms: int,
) -> PartitionEvidence:
    moved = pair != (before.zookeeper, before.kafka)
    seen = attrs.evolve(
        before,
        zookeeper=pair[0],
        kafka=pair[1],
        owner=owner,
        moved_at_ms=now_ms if moved else before.moved_at_ms,
        owner_commits=before.owner_commits if owner == before.owner else 0,
    )
    if not seen.differs and pair[0] != before.equal_at:
        return attrs.evolve(
            seen, equal_at=pair[0], commits=seen.commits + 1, owner_commits=seen.owner_commits + 1
        )
    if seen.differs and not moved:  # stuck: what was counted before it does not count
        return attrs.evolve(seen, sound_since_ms=now_ms, commits=0, owner_commits=0)
    return seen
