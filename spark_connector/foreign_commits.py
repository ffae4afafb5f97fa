"""Decide what it means that a query's group is not as the query left it.

Two queries on one group overwrite each other. The one that began later gives way:

- It accepts what is there when it begins, which may be of its own dead predecessor.
- If it finds a run that began earlier later on, that query is alive: it ends.
- If it finds a run that began later, it overwrites it. The other one notices, and ends.

A commit without a run is by somebody who is no query: a tool that reset the group, or a consumer.
"""

from collections.abc import Mapping

import attrs

from protocol.frozen import frozen
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from spark_connector.commit_metadata import Run, find_run, is_by_query
from spark_connector.stream_offset import Offsets

GroupOffsets = Mapping[TopicPartition, OffsetAndMetadata]


@frozen
class ForeignCommits:
    """Commits to the query's group that are not the query's."""

    earlier: Run | None = None
    """A query that has the group, and is alive."""
    later: Run | None = None
    """A query that has come to the group, and will see that it is taken."""
    moved: Mapping[TopicPartition, int | None] = attrs.field(factory=dict)
    """Partitions that somebody else has moved, and where to; None: without an offset."""


def find_foreign(
    run: Run, committed_before: Offsets, place: Offsets, committed_now: GroupOffsets
) -> ForeignCommits:
    """Judge the group after this run's first commit.

    `committed_before` is what this run has committed; partitions that it has not do not count.
    `place` is what it commits next: who commits the same moves nothing.
    """
    earlier = later = None
    moved: dict[TopicPartition, int | None] = {}
    for partition in committed_before.keys() & place.keys():
        committed = committed_now.get(partition)
        if committed is None:
            moved[partition] = None
            continue

        other = find_run(committed.metadata)
        if other is None:
            if committed.offset != place[partition]:
                moved[partition] = committed.offset
        elif other < run:
            earlier = max(other, earlier or other)
        elif other > run:
            later = max(other, later or other)
    return ForeignCommits(earlier, later, moved)


def find_moved_before(
    own_text: str, place: Offsets, committed_now: GroupOffsets
) -> dict[TopicPartition, int | None]:
    """Return where somebody who is no query has moved the group while the query was stopped.

    An earlier run of the query may have committed less than `place`: its last batch may be missing.
    """
    return {
        partition: committed.offset
        for partition, committed in committed_now.items()
        if partition in place
        and committed.offset != place[partition]
        and not is_by_query(committed.metadata, own_text)
    }


def find_ahead(
    own_text: str, place: Offsets, committed_now: GroupOffsets
) -> dict[TopicPartition, int]:
    """Return where a query has committed more than the checkpoint has from which this one goes on.

    It was another query, or this one with a checkpoint that has been lost since.
    """
    return {
        partition: committed.offset
        for partition, committed in committed_now.items()
        if partition in place
        and committed.offset > place[partition]
        and is_by_query(committed.metadata, own_text)
    }
