"""What is proven about two stores by looking at them again and again.

A commit to both stores is two writes, and a look at both is two reads, so that under traffic a
single look proves nothing either way. Kept per partition:

- how many different offsets were seen in both, at the same look or at looks near each other: so
  many commits certainly went to both;
- since when it has been *in step*: never different for STUCK_MS without either store moving. A
  difference that is younger may be a commit on its way; a store that lags for ever is found out by
  the commits it is not seen to take.

A member that nobody can ask (one on the JVM) is known by its deeds: the commits of a partition
count as its owner's while it owns it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import attrs

from protocol.topic_partition import TopicPartition

Offsets = Mapping[TopicPartition, int]
Pair = tuple[int | None, int | None]

STUCK_MS = 2_000  # longer than a write to ZooKeeper takes, unless something is wrong
LOOKS_KEPT = 32


@attrs.frozen
class PartitionEvidence:
    """`looks`: the latest pairs (ZooKeeper, Kafka), None for no offset; `last` is the last of them.
    `common`: the latest offset seen in both; `commits`: how many there were after the first look,
    and `owner_commits` those of the present owner."""

    looks: tuple[Pair, ...]
    owner: str | None
    in_step_since_ms: int
    quiet_since_ms: int
    common: int | None
    commits: int = 0
    owner_commits: int = 0

    @property
    def last(self) -> Pair:
        """As last seen."""
        return self.looks[-1]

    @property
    def differs(self) -> bool:
        """As last seen."""
        return self.last[0] != self.last[1]

    def is_stuck(self, now_ms: int) -> bool:
        """Whether no commit on its way explains the difference."""
        return self.differs and now_ms - self.quiet_since_ms >= STUCK_MS


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
            pair, owner = (zookeeper.get(p), kafka.get(p)), owners.get(p)
            before = self.partitions.get(p)
            if before is None:
                common = pair[0] if pair[0] == pair[1] else None
                after[p] = PartitionEvidence((pair,), owner, now_ms, now_ms, common)
            else:
                after[p] = _looked_again(before, pair, owner, now_ms)
        return attrs.evolve(self, partitions=after)

    def without(self, partitions: Collection[TopicPartition]) -> Evidence:
        """Somebody else than the members has written these: begin anew."""
        kept = {p: seen for p, seen in self.partitions.items() if p not in partitions}
        return attrs.evolve(self, partitions=kept)

    def stuck(self, now_ms: int) -> set[TopicPartition]:
        """The partitions for which the stores differ, and not because a commit is on its way."""
        return {p for p, seen in self.partitions.items() if seen.is_stuck(now_ms)}

    def lacking(self, commits: int, since_ms: int, now_ms: int) -> dict[TopicPartition, str]:
        """The partitions not proven to be in step from `since_ms` till now, and why not.

        A partition that has been quiet since then needs no commits: that both stores agree on it
        is all there is. One that moves may differ just now, if its commits were seen in both.
        """
        reasons = {}
        for p, seen in self.partitions.items():
            wanted = commits if seen.quiet_since_ms > since_ms else 0
            if seen.is_stuck(now_ms) or (seen.differs and seen.commits < max(wanted, 1)):
                reasons[p] = "different"
            elif seen.in_step_since_ms > since_ms:
                reasons[p] = "in step only since a moment"
            elif seen.commits < wanted:
                reasons[p] = f"{seen.commits} of {wanted} commits seen in both"
        return reasons

    def proven_members(self, commits: int) -> set[str]:
        """Owners whose commits were seen in both stores, so many for one partition at least."""
        return {
            seen.owner
            for seen in self.partitions.values()
            if seen.owner is not None and seen.owner_commits >= commits
        }


def _looked_again(
    before: PartitionEvidence, pair: Pair, owner: str | None, now_ms: int
) -> PartitionEvidence:
    seen = attrs.evolve(
        before,
        looks=(*before.looks, pair)[-LOOKS_KEPT:],
        owner=owner,
        quiet_since_ms=before.quiet_since_ms if pair == before.last else now_ms,
        owner_commits=before.owner_commits if owner == before.owner else 0,
    )
    if seen.is_stuck(now_ms):  # what was counted before does not count
        return attrs.evolve(seen, in_step_since_ms=now_ms, commits=0, owner_commits=0)
    common = _common(seen)
    if common is None or common == before.common:
        return seen
    return attrs.evolve(
        seen, common=common, commits=seen.commits + 1, owner_commits=seen.owner_commits + 1
    )


def _common(seen: PartitionEvidence) -> int | None:
    """The latest offset known to have been in both: the present one, else the largest."""
    zookeeper, kafka = seen.last
    if zookeeper == kafka:
        return kafka
    in_zookeeper, in_kafka = ({pair[store] for pair in seen.looks} for store in (0, 1))
    offsets = (in_zookeeper & in_kafka) - {None}
    return max((*offsets, seen.common), key=lambda offset: -1 if offset is None else offset)
