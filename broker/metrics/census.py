"""Count partitions and groups by their states, in slices: a broker may have ten thousand.

A census is a generator without values: whoever runs it may do something else at each `yield`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import attrs

from broker.controller.controller import Controller
from broker.controller.partition_states import PartitionStatus
from broker.controller.replica_states import ReplicaStatus
from broker.metrics.counts import Counts, TopicCounts
from broker.replication.partition import Partition
from compaction.cleaner import Cleaner
from compaction.status import Pass
from groups.coordinator import listing
from groups.coordinator.shard import GroupShard

SLICE = 200
"""Items that are looked at between two yields: some 0.2 ms."""


@attrs.define(eq=False)
class Census:
    """The numbers of one look at the broker."""

    # All topics, those that are gone too.
    topics: TopicCounts = attrs.field(factory=TopicCounts)

    # Replicas on this broker.
    leaders: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0

    # The cluster, while this broker is its controller.
    partitions: int = 0
    offline_partitions: int = 0
    preferred_imbalance: int = 0
    replicas: Counter[ReplicaStatus] = attrs.field(factory=Counter)

    # Groups by the names of their states, and their offsets.
    groups: Counter[str] = attrs.field(factory=Counter)
    offsets: int = 0

    # The cleaner: the last pass of all, and the quarantined logs by directory.
    last_pass: Pass | None = None
    uncleanable: Counter[str] = attrs.field(factory=Counter)
    uncleanable_bytes: Counter[str] = attrs.field(factory=Counter)

    def count_topics(self, counts: Counts, has_topic: Callable[[str], bool]) -> Iterator[None]:
        """Add up the counts of all topics; of those that are gone only their share is kept."""
        # A copy, and first the rest: what moves there between two slices counts once.
        topics = list(counts.topics.items())
        self.topics.add(counts.rest)
        for number, (name, of_topic) in enumerate(topics):
            self.topics.add(of_topic)
            if name in counts.topics and not has_topic(name):
                counts.delete_topics([name])
            if number % SLICE == 0:
                yield

    def count_replicas(self, partitions: Iterable[Partition]) -> Iterator[None]:
        """Count the replicas of this broker."""
        for number, partition in enumerate(list(partitions)):
            if partition.is_leader:
                in_sync = len(partition.isr)
                least = partition.log.config.min_insync_replicas
                self.leaders += 1
                self.under_replicated += is_under_replicated(partition)
                self.under_min_isr += in_sync < least
                self.at_min_isr += in_sync == least
            if number % SLICE == 0:
                yield

    def count_cluster(self, controller: Controller) -> Iterator[None]:
        """Count what the controller knows, if this broker is the controller."""
        if not controller.is_active:
            return
        state = controller.state

        # Copies: the controller goes on between two slices.
        for number, (partition, status) in enumerate(list(state.partition_states.items())):
            self.partitions += 1
            is_online = status is PartitionStatus.ONLINE
            self.offline_partitions += not is_online
            replicas = state.replicas(partition)
            leadership = state.leadership.get(partition)
            if leadership is not None and replicas:
                self.preferred_imbalance += leadership.state.leader != replicas[0]
            if number % SLICE == 0:
                yield
        for number, status_of_replica in enumerate(list(state.replica_states.values())):
            self.replicas[status_of_replica] += 1
            if number % SLICE == 0:
                yield

    def count_groups(self, shards: Iterable[GroupShard]) -> Iterator[None]:
        """Count the groups and offsets of the partitions led here."""
        for shard in shards:
            # A copy: groups come and go between two slices.
            group_ids = {*shard.groups, *shard.live, *shard.offsets.groups()}
            for number, group_id in enumerate(group_ids):
                self.groups[listing.state_of(shard, group_id)] += 1
                self.offsets += shard.offsets.count_of(group_id)
                if number % SLICE == 0:
                    yield
            yield

    def count_cleaning(self, cleaner: Cleaner) -> Iterator[None]:
        """Find the cleaner's last pass, and count the logs that it leaves alone."""
        statuses = list(cleaner.status.partitions.items())
        for number, (topic_partition, status) in enumerate(statuses):
            last = status.last
            if last is not None and (
                self.last_pass is None or last.ended_ms > self.last_pass.ended_ms
            ):
                self.last_pass = last

            log = cleaner.logs.get(topic_partition)
            log_dir = cleaner.logs.dir_of(topic_partition)
            if status.quarantine is not None and log is not None and log_dir is not None:
                self.uncleanable[log_dir.path] += 1
                self.uncleanable_bytes[log_dir.path] += log.size
            if number % SLICE == 0:
                yield


def is_under_replicated(partition: Partition) -> bool:
    """Return whether this broker leads the partition, and a replica is not in sync."""
    return partition.is_leader and len(partition.isr) < len(partition.replicas)
