"""Evidence about two stores, gathered by looking at them again and again.

A commit to both stores is two writes, and a look at both is two reads, so under traffic a single
look proves nothing either way. The evidence keeps of each partition:

- how many different offsets were seen in both stores, at one look or at looks near each other: so
  many commits certainly went to both;
- since when it has been *in step*: never different for STUCK_MS while neither store moved. A
  younger difference may be a commit in flight. A store that lags for ever is found out because it
  does not take the commits.

A member that nobody can ask (one on the JVM) is judged by what it does: the commits of a partition
count as its owner's while it owns it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import attrs

from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition

Offsets = Mapping[TopicPartition, int]
Pair = tuple[int | None, int | None]
"""Offsets in ZooKeeper and in Kafka; None for no offset."""

STUCK_MS = 2_000  # longer than a write to ZooKeeper takes, unless something is wrong
LOOKS_KEPT = 32  # eight seconds or more, at one look in LOOK_AGAIN_MS


@frozen
class PartitionEvidence:
    """The evidence of one partition.

    - `looks`: the latest pairs, oldest first.
    - `common`: the latest offset that was seen in both stores.
    - `commits`, `owner_commits`: how many common offsets there were after the first look, and those
      of the present owner.
    """

    looks: tuple[Pair, ...]
    owner: str | None
    in_step_since_ms: int
    quiet_since_ms: int
    common: int | None
    commits: int = 0
    owner_commits: int = 0

    @property
    def last(self) -> Pair:
        """The pair of the last look."""
        return self.looks[-1]

    @property
    def differs(self) -> bool:
        """True if the stores differed at the last look."""
        return self.last[0] != self.last[1]

    def is_stuck(self, now_ms: int) -> bool:
        """Return whether the stores differ for too long for a commit in flight."""
        return self.differs and now_ms - self.quiet_since_ms >= STUCK_MS


@frozen
class Evidence:
    """The evidence of all partitions that matter, gathered since `since_ms`."""

    since_ms: int
    partitions: Mapping[TopicPartition, PartitionEvidence] = attrs.field(factory=dict)

    def with_look(
        self,
        zookeeper: Offsets,
        kafka: Offsets,
        owners: Mapping[TopicPartition, str],
        partitions: Collection[TopicPartition],
        now_ms: int,
    ) -> Evidence:
        """Return the evidence after one more look at `partitions`."""
        after = {}
        for partition in partitions:
            pair = (zookeeper.get(partition), kafka.get(partition))
            owner = owners.get(partition)
            before = self.partitions.get(partition)
            if before is None:
                # The first offset seen in both is where counting begins, and no commit yet.
                common = pair[0] if pair[0] == pair[1] else None
                after[partition] = PartitionEvidence((pair,), owner, now_ms, now_ms, common)
            else:
                after[partition] = _add_look(before, pair, owner, now_ms)

        return attrs.evolve(self, partitions=after)

    def without(self, partitions: Collection[TopicPartition]) -> Evidence:
        """Return the evidence without partitions that the command itself has written."""
        rest = {
            partition: evidence
            for partition, evidence in self.partitions.items()
            if partition not in partitions
        }
        return attrs.evolve(self, partitions=rest)

    def find_stuck(self, now_ms: int) -> set[TopicPartition]:
        """Return the partitions that differ, and not because of a commit in flight."""
        return {
            partition
            for partition, evidence in self.partitions.items()
            if evidence.is_stuck(now_ms)
        }

    def find_unproven(self, commits: int, since_ms: int, now_ms: int) -> dict[TopicPartition, str]:
        """Return the partitions not proven to be in step from `since_ms` till now, with reasons.

        A partition that has been quiet since then needs no commits: it is enough that both stores
        agree. One that moves may differ just now, if its commits were seen in both.
        """
        reasons = {}
        for partition, evidence in self.partitions.items():
            # A partition that has moved needs commits; one at rest only has to agree.
            needed = commits if evidence.quiet_since_ms > since_ms else 0
            # A difference passes for a commit in flight once a commit was seen in both.
            has_too_few = evidence.commits < max(needed, 1)

            if evidence.is_stuck(now_ms) or (evidence.differs and has_too_few):
                reasons[partition] = "different"
            elif evidence.in_step_since_ms > since_ms:
                reasons[partition] = "in step only since a moment"
            elif evidence.commits < needed:
                reasons[partition] = f"{evidence.commits} of {needed} commits seen in both"

        return reasons

    def proven_members(self, commits: int) -> set[str]:
        """Return owners of which so many commits of one partition were seen in both stores."""
        return {
            evidence.owner
            for evidence in self.partitions.values()
            if evidence.owner is not None and evidence.owner_commits >= commits
        }


def _add_look(
    before: PartitionEvidence, pair: Pair, owner: str | None, now_ms: int
) -> PartitionEvidence:
    evidence = attrs.evolve(
        before,
        looks=(*before.looks, pair)[-LOOKS_KEPT:],
        owner=owner,
        # Every move of a store ends the quiet; a new owner has proven nothing yet.
        quiet_since_ms=before.quiet_since_ms if pair == before.last else now_ms,
        owner_commits=before.owner_commits if owner == before.owner else 0,
    )

    # A partition that is stuck was never in step: what was counted before does not count.
    if evidence.is_stuck(now_ms):
        return attrs.evolve(evidence, in_step_since_ms=now_ms, commits=0, owner_commits=0)

    common = _find_common(evidence)
    if common is None or common == before.common:
        return evidence
    return attrs.evolve(
        evidence,
        common=common,
        commits=evidence.commits + 1,
        owner_commits=evidence.owner_commits + 1,
    )


def _find_common(evidence: PartitionEvidence) -> int | None:
    """Return the latest offset known to have been in both: the present one, else the largest."""
    zookeeper, kafka = evidence.last
    if zookeeper == kafka:
        return kafka
    # The stores are read one after the other: one commit may be seen in two looks.
    in_zookeeper, in_kafka = ({pair[store] for pair in evidence.looks} for store in (0, 1))
    offsets = (in_zookeeper & in_kafka) - {None}
    return max((*offsets, evidence.common), key=lambda offset: -1 if offset is None else offset)
