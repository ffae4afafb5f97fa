"""Keep the groups that are in ZooKeeper: their offsets, owners and members, as of the last look.

Nothing tells of a commit there. It shows as an offset, or a time of writing, that is another one
than at the look before, so of several commits between two looks only the last one is seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from clients.command_line.output import Failure
from clients.command_line.sessions import Sessions
from clients.groups.group_facts import CoordinatorFacts, GroupFacts, MemberFacts, host_of
from clients.groups.group_reader import GroupReader
from clients.groups.recorded_groups import RecordedGroup, RecordedOffset
from clients.paced import paced
from clients.watching.commit_history import Commit, Owner, Owners, commits_between
from protocol.frozen import frozen
from protocol.topic_partition import OffsetAndMetadata, TopicPartition


@frozen
class GroupInZooKeeper:
    """A group with a node below `/consumers`."""

    facts: GroupFacts
    group: RecordedGroup
    """With the offsets that count, of both stores."""
    owners: Owners
    committed: Mapping[TopicPartition, RecordedOffset]
    """Those of `group.offsets` that are in ZooKeeper."""


@attrs.define(eq=False)
class ZooKeeperWatch:
    """The groups below `/consumers`; `look` reads them."""

    sessions: Sessions
    groups: dict[str, GroupInZooKeeper] = attrs.field(factory=dict)

    def has_members(self, group_id: str) -> bool:
        """Return whether a group had members here at the last look."""
        known = self.groups.get(group_id)
        return bool(known and known.facts.zookeeper and known.facts.zookeeper.members)

    async def look(
        self,
        recorded: Mapping[str, RecordedGroup],
        now_ms: int,
        max_groups_per_second: int,
        group_ids: Iterable[str] | None = None,
    ) -> tuple[list[Commit], list[Failure]]:
        """Read all groups, or those that are named, and return what they committed since.

        `recorded` is what is known of groups in Kafka. Raises ZooKeeperError; all stays as it was.
        """
        reader = GroupReader(self.sessions)
        names = await reader.zookeeper_names()
        wanted = names.keys() if group_ids is None else names.keys() & set(group_ids)

        groups = {}
        async for some in paced(sorted(wanted), max_groups_per_second):
            for facts in await reader.groups_in_zookeeper(some):
                groups[facts.group] = _joined(facts, recorded.get(facts.group))

        commits: list[Commit] = []
        for group_id in groups.keys() | self.groups.keys():
            before, after = self.groups.get(group_id), groups.get(group_id)
            if before is not None and after is not None:
                commits += _deletions_between(before, after)
            seen = commits_between(
                group_id,
                before.committed if before else None,
                after.committed if after else {},
                now_ms,
            )
            # An offset that counts in Kafka from now on was not deleted.
            left = after.group.offsets if after else {}
            commits += (c for c in seen if c.offset is not None or c.topic_partition not in left)
        self.groups = groups
        return commits, reader.failures


def _deletions_between(before: GroupInZooKeeper, after: GroupInZooKeeper) -> list[Commit]:
    """Return the deletions of offsets that were committed again before anybody looked."""
    held = after.facts.zookeeper.offsets if after.facts.zookeeper else {}
    deleted = {
        partition: held[partition].created_at_ms
        for partition, committed in before.committed.items()
        if partition in after.committed
        and held[partition].created_at_ms > committed.committed_at_ms
    }
    group_id = after.facts.group
    # Or a group that began again would have gone back (fault strangers-124, was: []).
    return [Commit(at_ms - 1, group_id, *partition, None) for partition, at_ms in deleted.items()]


def _joined(facts: GroupFacts, recorded: RecordedGroup | None) -> GroupInZooKeeper:
    """Let the facts choose between the offsets of both stores."""
    in_kafka = recorded.offsets if recorded else {}
    metadata = recorded.metadata if recorded else None
    members = metadata.members if metadata else ()
    facts = attrs.evolve(
        facts,
        coordinator=CoordinatorFacts(
            state="Dead" if recorded is None else "Stable" if members else "Empty",
            protocol_type=metadata.protocol_type if metadata else "",
            members=tuple(MemberFacts(m.member_id, m.client_host, m.client_id) for m in members),
            offsets={
                partition: OffsetAndMetadata(committed.offset)
                for partition, committed in in_kafka.items()
            },
        ),
    )
    in_zookeeper = facts.zookeeper.offsets if facts.zookeeper else {}
    committed = {
        partition: RecordedOffset(offset.offset, -1, "", offset.committed_at_ms, None, -1)
        for partition, offset in in_zookeeper.items()
        if facts.winner(partition) == "zookeeper"
    }

    owners = {
        partition: Owner(consumer_id, "", host_of(facts.group, consumer_id) or "")
        for partition, consumer_id in (facts.zookeeper.owners if facts.zookeeper else {}).items()
    }
    group = RecordedGroup({**in_kafka, **committed}, metadata)
    return GroupInZooKeeper(facts, group, owners, committed)
