"""Read the rows of groups' partitions: what `kgroup describe` shows, and `at-risk` judges."""

import time
from collections.abc import Collection, Sequence

from clients.command_line.printing import plain
from clients.command_line.topic_scope import TopicScope
from clients.groups.clock_difference import describe_future
from clients.groups.group_facts import GroupFacts
from clients.groups.group_reader import GroupReader
from clients.groups.group_view import LOG_KEYS, RECORD_KEYS, Item, offset_items
from clients.groups.offset_times import TimeReader

RETENTION_KEY = "deleted_in_ms"
BY_SIZE = "retention.bytes may delete records before their time"
BY_KEY = "compaction deletes records without a key, or with a later value of it, at any time"


async def read_offset_rows(
    reader: GroupReader,
    groups: Sequence[GroupFacts],
    topics: Collection[TopicScope] = (),
    keys: Collection[str] = RECORD_KEYS | LOG_KEYS,
) -> tuple[dict[str, list[Item]], list[str]]:
    """Return the rows of each group, one for each partition, and remarks for people.

    `topics` are the scopes that are shown, by default all. The rows have all keys that
    `kgroup describe -o json` has; those of RECORD_KEYS and LOG_KEYS are read where `keys` names one
    of them, and else are None. What cannot be read is in the reader's `failures`.
    """
    # Partitions outside the scopes need no request to their leaders.
    shown = {
        group.group: {
            partition
            for partition in group.partitions
            if not topics or any(scope.holds(partition) for scope in topics)
        }
        for group in groups
    }
    logs = await reader.logs_of(groups, set().union(*shown.values()))

    # Times are read for the columns that are shown alone.
    times = TimeReader(reader.sessions.admin, groups, logs, reader.isolation)
    of_groups = await times.read(
        records=not RECORD_KEYS.isdisjoint(keys),
        logs=not LOG_KEYS.isdisjoint(keys),
        retention=RETENTION_KEY in keys,
    )

    # One time for all rows, so that ages can be compared.
    now_ms = int(time.time() * 1000)
    rows_of = {
        group.group: offset_items(group, shown[group.group], logs, now_ms, of_groups[group.group])
        for group in groups
    }
    ahead_ms = max(
        (
            item["committed_at_ms"] - now_ms
            for items in rows_of.values()
            for item in items
            if item.get("committed_at_ms") is not None
        ),
        default=0,
    )
    reader.unread += times.unread
    remarks = [f"{failure.what} {failure.message}" for failure in times.unread]
    if (remark := describe_future(ahead_ms)) is not None:
        remarks.append(remark)
    behind = {item["topic"] for items in rows_of.values() for item in items if item.get("lag")}
    # How much will come is not known, nor where segments end (fault strangers-66).
    for remark, topics_so in ((BY_SIZE, times.size_bound), (BY_KEY, times.compacted)):
        if named := sorted(behind & topics_so):
            remarks.append(f"{remark}: {', '.join(map(plain, named))}")
    return rows_of, remarks
