"""Measure how long members have no coordinator when the broker of 1,000 groups is killed.

The same is measured for producers, when the broker of 10,000 transactional ids is killed: the clock
stops when InitProducerId succeeds, which is written to the log of the id's partition.

The clock starts with the first partition of `__consumer_offsets` whose new leader's epoch is in
ZooKeeper, by ZooKeeper's stamp. It stops when the last member's heartbeat is accepted, and a second
time when a commit of each group was. A coordinator that loads accepts heartbeats unseen, on both
sides, but refuses commits.

All partitions are led by one broker, which is not the controller, and move to one other. Each has a
connection of its own, on which its members ask in turn.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from benchmarks.brokers import Side
from benchmarks.clusters import BROKERS, Cluster, await_whole, await_znode, measure_in_succession
from benchmarks.played_members import (
    Line,
    Lines,
    PlayedMember,
    check_alive,
    found_groups,
    open_lines,
)
from benchmarks.played_producers import TIMEOUT_MS
from benchmarks.rounds import Contestant, Rounds
from benchmarks.table import Row, at_most
from clients.admin import NewTopic
from groups.transactions.config import TransactionsConfig
from groups.transactions.topic import transactions_topic_properties
from offsets.config import OffsetsConfig
from offsets.topic import partition_for, topic_properties
from protocol.errors import ErrorCode
from protocol.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from zk.znodes import BrokerId, Controller, PartitionState

GROUPS = 1000
IDS = 10_000
PARTITIONS = 50
FOUNDING_PAIRS = 16
AT_REST_S = 3.0
POLL_S = 0.02
OFFSET = 42
_NOT_YET = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    # The last change of the id is being written.
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


def measure(
    sides: Sequence[Side], directory: Path, rounds: Rounds, groups: int = GROUPS
) -> Iterator[Row]:
    """Yield a row for heartbeats and one for commits."""
    heartbeats, commits = measure_in_succession(
        sides, directory, rounds, partial(_failing, groups=groups)
    )
    title = f"a new coordinator of {groups:,} groups of 2 members"
    yield Row(f"{title}, until the last heartbeat", "s", at_most(0.5), heartbeats)
    yield Row(f"{title}, until the last commit", "s", None, commits)


def measure_transactions(
    sides: Sequence[Side], directory: Path, rounds: Rounds, ids: int = IDS
) -> Iterator[Row]:
    """Yield rows for the first good response of a new coordinator of ids, and of the last one."""
    first, last = measure_in_succession(
        sides, directory, rounds, partial(_failing_transactions, ids=ids)
    )
    title = f"a new coordinator of {ids:,} transactional ids"
    yield Row(f"{title}, until the first good response", "s", at_most(0.5), first)
    yield Row(f"{title}, until all {PARTITIONS} partitions gave one", "s", at_most(0.5), last)


@contextlib.contextmanager
def _failing_transactions(cluster: Cluster, ids: int) -> Iterator[Contestant]:
    properties = transactions_topic_properties(TransactionsConfig(topic_min_isr=1))
    first, second = asyncio.run(_lead(cluster, TRANSACTIONS_TOPIC, properties))
    inits = [
        (name, InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TIMEOUT_MS))
        for name in (f"id-{number:05}" for number in range(ids))
    ]
    with open_lines(cluster.members[first].address) as lines:
        ask_until_accepted(lines, inits)

    # One id of each partition is asked for, so that none waits for others of its partition.
    asked = {partition_for(name, PARTITIONS): (name, request) for name, request in inits}
    turns = deque((first, second))

    def fail(_: float) -> tuple[float, float]:
        victim, survivor = turns
        turns.rotate()
        time.sleep(AT_REST_S)
        asyncio.run(_kill(cluster, victim))
        with open_lines(cluster.members[survivor].address) as lines:
            first_at_s, last_at_s = ask_until_accepted(lines, list(asked.values()))
        elected_at_s = asyncio.run(_elected_at_s(cluster, survivor, TRANSACTIONS_TOPIC))
        _start_again(cluster, victim, survivor, TRANSACTIONS_TOPIC)
        return first_at_s - elected_at_s, last_at_s - elected_at_s

    yield fail


@contextlib.contextmanager
def _failing(cluster: Cluster, groups: int) -> Iterator[Contestant]:
    first, second = asyncio.run(_lead(cluster, OFFSETS_TOPIC, topic_properties(OffsetsConfig())))
    with open_lines(cluster.members[first].address) as lines:
        members = _found(lines, groups)

    # The coordinator dies, the other one takes over, and so on.
    turns = deque((first, second))

    def fail(topic: str, _: float) -> tuple[float, float]:
        victim, survivor = turns
        turns.rotate()
        return _fail(cluster, victim, survivor, members, topic)

    # Commits are for a partition that exists.
    with cluster.create_topic([BROKERS]) as topic:
        yield partial(fail, topic)


async def _lead(cluster: Cluster, name: str, properties: dict[str, str]) -> tuple[int, int]:
    """Create an internal topic on the brokers that are not the controller; return them."""
    async with cluster.observe() as zk:
        content, _ = await zk.get(Controller.path())
    controller = Controller.decode(content).broker_id
    first, second = (broker_id for broker_id in BROKERS if broker_id != controller)

    async with cluster.admin() as admin:
        topic = NewTopic(
            name,
            assignments=dict.fromkeys(range(PARTITIONS), (first, second)),
            configs=properties,
        )
        refusal = (await admin.create_topics([topic]))[name]
        if refusal:
            raise RuntimeError(f"{cluster.name} does not create {name}: {refusal}")
    await cluster.await_leaders(name, [first] * PARTITIONS)
    return first, second


def _found(lines: Lines, groups: int) -> list[PlayedMember]:
    members: list[PlayedMember] = []
    names = [f"group-{number:04}" for number in range(groups)]
    found_groups(lines, names, FOUNDING_PAIRS, lambda group: members.extend(group.members))
    return members


def _fail(
    cluster: Cluster, victim: int, survivor: int, members: Sequence[PlayedMember], topic: str
) -> tuple[float, float]:
    """Kill the coordinator; return the seconds until all heartbeats, and commits, are accepted."""
    time.sleep(AT_REST_S)
    asyncio.run(_kill(cluster, victim))
    with open_lines(cluster.members[survivor].address) as lines:
        heartbeats = [(member.group.name, member.heartbeat()) for member in members]
        _, beaten_at_s = ask_until_accepted(lines, heartbeats)
        commits = [
            (member.group.name, commit_request(member, topic))
            for member in members
            if not member.number
        ]
        _, committed_at_s = ask_until_accepted(lines, commits)
        check_alive(lines, members)
    elected_at_s = asyncio.run(_elected_at_s(cluster, survivor, OFFSETS_TOPIC))

    _start_again(cluster, victim, survivor, OFFSETS_TOPIC)
    return beaten_at_s - elected_at_s, committed_at_s - elected_at_s


def _start_again(cluster: Cluster, victim: int, survivor: int, name: str) -> None:
    """Start the victim: the next round needs it, in sync."""
    cluster.start(victim)
    asyncio.run(await_whole(cluster))
    asyncio.run(cluster.await_leaders(name, [survivor] * PARTITIONS))


async def _kill(cluster: Cluster, victim: int) -> None:
    async with cluster.observe() as zk:
        cluster.kill(victim)
        await await_znode(zk, BrokerId.path(victim), False)


async def _elected_at_s(cluster: Cluster, leader: int, name: str) -> float:
    """Return when the first partition got its leader, in seconds of the wall clock."""
    async with cluster.observe() as zk:
        paths = [PartitionState.path(name, number) for number in range(PARTITIONS)]
        nodes = [node for node in await zk.get_many(paths) if node is not None]
    if [PartitionState.decode(content).leader for content, _ in nodes] != [leader] * PARTITIONS:
        raise RuntimeError(f"{cluster.name} has other leaders of {name} than expected")
    return min(stat.mtime_ms for _, stat in nodes) / 1000


def ask_until_accepted(lines: Lines, requests: Sequence[tuple[str, Any]]) -> tuple[float, float]:
    """Have each request accepted; return when the first and the last were, by the wall clock.

    A request goes with the name whose coordinator it is for.
    """
    by_partition: dict[int, deque[Any]] = {}
    for name, request in requests:
        by_partition.setdefault(partition_for(name, PARTITIONS), deque()).append(request)
    askers = [_Asker(lines, lines.open(), todo) for todo in by_partition.values()]
    for asker in askers:
        asker.ask()
    lines.run(lambda: not any(asker.todo for asker in askers))
    return (
        min(asker.first_accepted_at_s for asker in askers),
        max(asker.accepted_at_s for asker in askers),
    )


@attrs.define(eq=False)
class _Asker:
    """Requests to the coordinator of one partition: each is repeated until it is accepted."""

    lines: Lines
    line: Line
    todo: deque[Any]
    first_accepted_at_s: float = 0.0
    accepted_at_s: float = 0.0

    def ask(self) -> None:
        self.line.ask(self.todo[0], self._take)

    def _take(self, response: Any) -> None:
        error = _error_of(response)
        if error in _NOT_YET:
            self.lines.at(time.monotonic() + POLL_S, self.ask)
            return
        if error:
            raise RuntimeError(f"the coordinator refuses a request: {error}")
        self.todo.popleft()
        self.accepted_at_s = time.time()
        self.first_accepted_at_s = self.first_accepted_at_s or self.accepted_at_s
        if self.todo:
            self.ask()


def _error_of(response: Any) -> ErrorCode:
    topics: Sequence[Any] = getattr(response, "topics", ())
    codes = [partition.error_code for topic in topics for partition in topic.partitions]
    return ErrorCode.of(codes[0] if codes else response.error_code)


def commit_request(member: PlayedMember, topic: str) -> OffsetCommitRequest:
    """Return a member's commit for partition 0 of a topic."""
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=OFFSET, committed_metadata=""
    )
    return OffsetCommitRequest(
        group_id=member.group.name,
        generation_id_or_member_epoch=member.generation_id,
        member_id=member.member_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
