"""Read the history of groups: what was recorded in a file, and what `__consumer_offsets` holds."""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from clients.admin import EARLIEST_TIME, LATEST_TIME, Admin
from clients.command_line.output import Failure
from clients.command_line.sessions import Sessions
from clients.errors import BrokerError
from clients.first_timestamps import read_first_records, read_first_timestamps
from clients.groups.clock_difference import latest_time
from clients.groups.group_facts import LogOffsets
from clients.groups.group_records import read_group_records
from clients.groups.lag import age_of, lag_of, next_offset
from clients.groups.marker_tails import MOST_MARKERS, MarkerTails
from clients.groups.partition_rounds import partition_rounds
from clients.groups.recorded_groups import RecordedGroups
from clients.groups.unowned_partitions import Consumed, find_unowned
from clients.watching.commit_history import (
    Commit,
    CommitCollector,
    consumed_by,
    in_order,
)
from clients.watching.health import WINDOW_MS, health_items
from clients.watching.history_file import HistoryFile, default_path
from clients.watching.zookeeper_watch import ZooKeeperWatch
from offsets.topic import offsets_partition
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.internal_topics import OFFSETS_TOPIC
from protocol.topic_partition import TopicPartition

MAX_ENDS = 10
"""Commits of a partition whose logs' ends are looked up by time, at most."""
MAX_GROUPS_PER_SECOND = 200
"""Groups that are read from ZooKeeper in a second."""


@frozen
class History:
    """The commits of each group in their order.

    From `complete_since_ms` on every commit is among them; 0: all that there ever were.
    """

    commits: Mapping[str, Sequence[Commit]]
    complete_since_ms: int
    sources: Sequence[str]
    in_zookeeper: frozenset[str] = frozenset()
    """Groups with offsets in ZooKeeper, which shows no commit but the last one."""
    failures: Sequence[Failure] = ()
    """What could not be read."""
    is_refused: bool = False
    """True where `__consumer_offsets` may not be read: commits are those that others show."""
    recorded_until_ms: int | None = None
    """The end of the last recording; None without one."""
    consumed: Mapping[str, Consumed] = attrs.Factory(dict)
    """Group -> what its members subscribe to and own now, where that is known."""
    owned: Mapping[str, frozenset[TopicPartition]] = attrs.Factory(dict)
    """Group -> the partitions that its members own now, at its coordinator or in ZooKeeper."""

    def times_ms(self) -> Iterator[int]:
        """Yield the time of each group's last commit: of earlier ones a clock was set since."""
        return (commits[-1].at_ms for commits in self.commits.values() if commits)

    def reach(self, timestamp: Callable[[int], str]) -> str | None:
        """Say how far back it can see, with times as `timestamp` writes them.

        None where there is no source.
        """
        if not self.sources:
            return None
        sources = f"from {' and '.join(self.sources)}: "
        missing = ""
        if self.in_zookeeper:
            missing = "; of commits in ZooKeeper those between two looks were not seen"
        if self.is_refused:
            seen = "the last commit of each partition"
            if self.recorded_until_ms is not None:
                # One that could read the topic may have recorded all that there ever were.
                since = (
                    f"from {timestamp(self.complete_since_ms)} " if self.complete_since_ms else ""
                )
                # A recorder that may not read the topic either compares two looks.
                seen = (
                    f"commits {since}to {timestamp(self.recorded_until_ms)}, of several between "
                    "two looks perhaps only the last"
                )
            return f"{sources}{seen}; {OFFSETS_TOPIC} may not be read{missing}"
        if not self.complete_since_ms:
            return f"{sources}every commit that there was{missing}"
        return (
            f"{sources}every commit since {timestamp(self.complete_since_ms)}; of earlier ones "
            f"those that compaction left{missing}"
        )


async def history_place(admin: Admin, data: Path | None) -> tuple[Path, str | None]:
    """Return the file of the cluster's history, the one that is named or the default one, and the
    cluster's id."""
    cluster_id = (await admin.describe_cluster()).cluster_id
    if data is None:
        data = default_path(os.environ.get("XDG_DATA_HOME"), Path.home(), cluster_id)
    return data, cluster_id


async def read_history(
    sessions: Sessions,
    group_ids: Iterable[str] | None,
    data: Path | None = None,
    since_ms: int = 0,
) -> History:
    """Return the commits of the groups since a time; None: of all groups.

    Where the topic may not be read there are those of a recording; without one that is a failure.
    Raises HistoryUnreadable, KgroupError.
    """
    admin = sessions.admin
    collector = CommitCollector(since_ms)
    wanted = None if group_ids is None else frozenset(group_ids)
    records = RecordedGroups(wanted, collector.take)
    is_refused = await _is_refused(admin, records)
    # One partition whose leader cannot be asked does not hide the groups of the others.
    unread = [
        Failure.of(str(offsets_partition(partition_id)), error)
        for partition_id, error in sorted(records.errors.items())
        if not is_refused
    ]

    commits: dict[str, dict[tuple[TopicPartition, int, int], Commit]] = defaultdict(dict)
    newest_places: dict[str, int] = {}
    for commit in collector.drain():
        commits[commit.group][commit.topic_partition, commit.at_ms, commit.place] = commit
        newest_places[commit.group] = max(newest_places.get(commit.group, -1), commit.place)
    periods: list[tuple[int, int]] = []
    sources: list[str] = []
    if not is_refused:
        topic_since_ms = max(records.complete_since_ms.values(), default=0)
        periods.append((topic_since_ms, time.time_ns() // 1_000_000))
        sources.append(OFFSETS_TOPIC)

    # ZooKeeper has the last commit of each partition, and its time.
    in_zookeeper: frozenset[str] = frozenset()
    zookeeper = ZooKeeperWatch(sessions) if sessions.zk is not None else None
    failures: list[Failure] = []
    if sessions.zk_failure is not None:
        failures.append(Failure.of("ZooKeeper", sessions.zk_failure))
    if zookeeper is not None:
        seen, failures = await zookeeper.look(
            records.groups, time.time_ns() // 1_000_000, MAX_GROUPS_PER_SECOND, wanted
        )
        for commit in seen:
            if commit.at_ms < since_ms:
                continue
            commits[commit.group][commit.topic_partition, commit.at_ms, commit.place] = commit
        in_zookeeper = frozenset(commit.group for commit in seen)
        if in_zookeeper:
            sources.append("ZooKeeper")

    # What was recorded has the logs' ends too.
    path, cluster_id = await history_place(admin, data)
    recorded: list[tuple[int, int]] = []
    if data is not None or path.exists():
        with HistoryFile(path) as file:
            file.require_cluster(cluster_id)
            names = commits.keys() | (file.groups() if is_refused else set())
            for group_id in wanted if wanted is not None else names:
                for commit in file.commits(group_id, since_ms):
                    commits[group_id][commit.topic_partition, commit.at_ms, commit.place] = commit
            recorded = file.recordings()
        periods += recorded
        sources.insert(0, str(path))

    if is_refused and not recorded and not (wanted and wanted <= in_zookeeper):
        failures.append(_refusal(path))

    consumed = {
        group_id: known
        for group_id, group in records.groups.items()
        if not (zookeeper and zookeeper.has_members(group_id))
        and (known := consumed_by(group.metadata)) is not None
    }
    owned = {group_id: known.partitions for group_id, known in consumed.items()}
    if zookeeper is not None:
        owned |= {
            group_id: frozenset(known.owners)
            for group_id, known in zookeeper.groups.items()
            if zookeeper.has_members(group_id)
        }
    return History(
        {
            group_id: in_order(own.values(), newest_places.get(group_id, -1))
            for group_id, own in commits.items()
        },
        complete_since(periods),
        sources,
        in_zookeeper,
        [*unread, *failures],
        is_refused,
        max((until_ms for _, until_ms in recorded), default=None),
        consumed,
        owned,
    )


async def _is_refused(admin: Admin, records: RecordedGroups) -> bool:
    """Read the topic into `records`; return whether it may not be read. Raises KgroupError."""
    try:
        await read_group_records(admin, records.group_ids, so_far=records)
    except BrokerError as error:
        if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise
        return True
    # Nothing at all could be read.
    if records.errors and not records.positions:
        raise next(iter(records.errors.values()))
    return False


def _refusal(path: Path) -> Failure:
    return Failure(
        OFFSETS_TOPIC,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED.name,
        f"you may not read it, and {path} has no recording; ask for DESCRIBE and READ on the "
        "topic, or let `kgroup record` run, which needs DESCRIBE on the groups alone",
    )


def complete_since(periods: Iterable[tuple[int, int]]) -> int:
    """Return where the last unbroken stretch of (from, to) periods begins; 0 without any."""
    latest_first = sorted(periods, key=lambda period: period[1], reverse=True)
    since_ms = latest_first[0][0] if latest_first else 0
    for began_ms, until_ms in latest_first:
        if until_ms >= since_ms:
            since_ms = min(since_ms, began_ms)
    return since_ms


async def judge_groups(
    admin: Admin, history: History, window_ms: int = WINDOW_MS
) -> dict[str, list[dict[str, object]]]:
    """Return the items of `health_items` for each group of a history."""
    newest = {
        group_id: {commit.topic_partition: commit for commit in commits}
        for group_id, commits in history.commits.items()
    }
    # The offset of a deleted topic was deleted with it.
    consumed = {
        (partition, commit.offset)
        for own in newest.values()
        for partition, commit in own.items()
        if commit.offset is not None
    }
    unowned = await find_unowned(admin.cluster, history.consumed)
    logs = await _read_logs(
        admin,
        {partition for partition, _ in consumed}.union(*unowned.values(), *history.owned.values()),
    )
    logs = await MarkerTails().look(admin.cluster, logs, consumed)
    now_ms = latest_time(time.time_ns() // 1_000_000, history.times_ms())

    # What all groups need is asked for together.
    unread = {
        (partition, start)
        for partition, offset in consumed
        if (start := next_offset(offset, logs[partition])) is not None
        and lag_of(offset, logs[partition]).behind_if_assigned
    }
    first_ms: dict[tuple[TopicPartition, int | None], int] = {}
    for asked in partition_rounds(unread):
        found = await read_first_timestamps(admin.cluster, asked)
        first_ms |= {(partition, asked[partition]): at_ms for partition, at_ms in found.items()}
    complete = await with_ends(admin, history.commits, logs, window_ms, now_ms)

    judged = {}
    for group_id in sorted(complete.keys() | history.owned.keys()):
        commits = complete.get(group_id, [])
        unread_since_ms = {
            partition: first_ms[place]
            for partition, commit in newest.get(group_id, {}).items()
            if commit.offset is not None
            and (place := (partition, next_offset(commit.offset, logs[partition]))) in first_ms
        }
        judged[group_id] = health_items(
            group_id,
            commits,
            logs,
            now_ms,
            window_ms,
            unread_since_ms,
            history.consumed[group_id].topics if group_id in history.consumed else None,
            unowned.get(group_id, frozenset()),
            history.owned.get(group_id, frozenset()),
        )
    return judged


async def _read_logs(
    admin: Admin, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, LogOffsets]:
    asked = list(partitions)
    starts, ends = await asyncio.gather(
        *(
            admin.list_offsets(dict.fromkeys(asked, time), waits_for_topics=False)
            for time in (EARLIEST_TIME, LATEST_TIME)
        )
    )
    return {
        partition: LogOffsets(starts[partition].offset, ends[partition].offset)
        if not (starts[partition].error or ends[partition].error)
        else LogOffsets()
        for partition in asked
    }


async def with_ends(
    admin: Admin,
    histories: Mapping[str, Sequence[Commit]],
    logs: Mapping[TopicPartition, LogOffsets],
    window_ms: int,
    now_ms: int,
) -> dict[str, list[Commit]]:
    """Give some commits of each partition's last window the end that the log had at their time.

    The end is the offset of the first record with that time or a later one, so it needs no
    recording; records with times of their own making are where it is wrong. What shows that it is
    wrong leaves the end unknown.
    """
    complete = {group_id: list(commits) for group_id, commits in histories.items()}
    judged = [
        (commits, index)
        for commits in complete.values()
        for index in _chosen(commits, window_ms)
        if _has_end(logs, commits[index].topic_partition)
    ]
    chosen = [(commits, index) for commits, index in judged if commits[index].end_offset is None]

    ends: dict[tuple[TopicPartition, int], int] = {}
    times = {(commits[index].topic_partition, commits[index].at_ms) for commits, index in chosen}
    # -1 is no time, and would be asked for as the end of now (fault tool-F1).
    times = {(partition, at_ms) for partition, at_ms in times if at_ms >= 0}
    for asked in partition_rounds(times):
        listed_at = await admin.list_offsets(asked, waits_for_topics=False)
        for partition, listed in listed_at.items():
            # No record is as late: then the end is that of now.
            end = listed.offset if listed.offset >= 0 else logs[partition].end
            # A record of the future is later than all commits, wherever it stands in the log: of a
            # group that waits at it, it would say "no lag" at each.
            is_believed = age_of(listed.timestamp_ms, now_ms) is not None
            if not listed.error and end is not None and is_believed:
                ends[partition, asked[partition]] = end

    for commits, index in chosen:
        commit = commits[index]
        end_offset = ends.get((commit.topic_partition, commit.at_ms))
        # The log had what was committed: producers whose clocks are ahead make its end too early.
        if end_offset is not None and commit.offset is not None and end_offset < commit.offset:
            end_offset = None
        commits[index] = commit._replace(end_offset=end_offset)

    await _leave_markers_out(admin, judged, chosen)
    return complete


_Places = Sequence[tuple[list[Commit], int]]
"""Commits, each by a list and its index there."""


async def _leave_markers_out(admin: Admin, judged: _Places, chosen: _Places) -> None:
    """Give those of the `chosen` commits behind which there were markers alone a lag of 0.

    A partition without lag at any of its `judged` commits is none to doubt, and needs no reading.
    """
    level = {_key(commits[index]) for commits, index in judged if commits[index].lag == 0}
    doubtful = [
        (commits, index)
        for commits, index in chosen
        if _key(commits[index]) not in level and 0 < (commits[index].lag or 0) <= MOST_MARKERS
    ]

    first_ms: dict[tuple[TopicPartition, int | None], int] = {}
    without: set[tuple[TopicPartition, int | None]] = set()
    places = {
        (commit.topic_partition, commit.offset)
        for commit in (commits[index] for commits, index in doubtful)
        if commit.offset is not None
    }
    for asked in partition_rounds(places):
        first = await read_first_records(admin.cluster, asked)
        first_ms |= {(p, asked[p]): at_ms for p, at_ms in first.timestamps.items()}
        without |= {(p, asked[p]) for p in first.without}

    for commits, index in doubtful:
        commit = commits[index]
        place = commit.topic_partition, commit.offset
        # No record before the end is as late as the commit, and the first behind the offset is.
        if place in without or first_ms.get(place, -1) >= commit.at_ms:
            commits[index] = commit._replace(end_offset=commit.offset)


def _key(commit: Commit) -> tuple[str, TopicPartition]:
    return commit.group, commit.topic_partition


def _has_end(logs: Mapping[TopicPartition, LogOffsets], partition: TopicPartition) -> bool:
    """Return whether the log can be read: a deleted one would be waited for."""
    return logs.get(partition, LogOffsets()).end is not None


def _chosen(commits: Sequence[Commit], window_ms: int) -> list[int]:
    """Choose MAX_ENDS commits of each partition's last window, evenly; its first and last too."""
    by_partition: dict[TopicPartition, list[int]] = defaultdict(list)
    for index, commit in enumerate(commits):
        if commit.offset is None:
            # What was before the deletion is not judged.
            by_partition.pop(commit.topic_partition, None)
        else:
            by_partition[commit.topic_partition].append(index)

    chosen = []
    for indexes in by_partition.values():
        last_ms = commits[indexes[-1]].at_ms
        window = [i for i in indexes if last_ms - window_ms <= commits[i].at_ms <= last_ms]
        step = max(1, -(-len(window) // (MAX_ENDS - 1)))
        chosen += [*window[:-1:step], window[-1]]
    return chosen
