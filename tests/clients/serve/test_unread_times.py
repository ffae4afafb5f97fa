"""Since when groups have something to consume: whose turn it is, and which answers stay."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from clients.admin import Admin
from clients.command_line.sessions import Sessions
from clients.first_timestamps import FirstRecords
from clients.groups.group_facts import LogOffsets
from clients.serve.monitor import Monitor
from clients.serve.unread_times import Consumer, Place, UnreadTimes
from kgroup.testing.simulation import CLIENT, Cluster, Faults, simulate
from protocol.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
)
from protocol.topic_partition import TopicPartition
from tests.clients.kgroup.bad_input.operator import T0, commit, produce

DAY_MS, MINUTE_MS = 86_400_000, 60_000
LOG = LogOffsets(0, 100)


def consumer(number: int, offset: int = 0) -> tuple[Consumer, Place]:
    """A group of its own on a partition of its own."""
    partition = TopicPartition("t", number)
    return (f"g{number}", partition), (partition, offset)


def ask(unread: UnreadTimes, lagging: dict[Consumer, Place], most: int) -> set[int]:
    """Return the partitions that are asked for in a look, in which nobody responds."""
    unread.keep(lagging, {})
    return {partition.partition for partition, _ in unread.choose(lagging, most, 1)}


@pytest.mark.fault("tool-F4")
def test_consumers_whose_leader_does_not_respond_leave_turns_to_all_others() -> None:
    lagging = dict(consumer(number) for number in range(10))
    unread = UnreadTimes()
    looks = [ask(unread, lagging, 3) for _ in range(4)]
    assert set().union(*looks) == set(range(10))


@pytest.mark.fault("strangers-49")
def test_what_may_not_be_read_is_known_until_it_may_be_or_is_not_asked_for() -> None:
    lagging = dict(consumer(number) for number in range(2))
    p0, p1 = (partition for _, partition in lagging)
    unread = UnreadTimes()
    unread.note({p0: 0, p1: 0}, FirstRecords(refused={p0, p1}), {})
    unread.note({p0: 0}, FirstRecords(timestamps={p0: 5}), {})
    assert unread.refused == {p1}
    unread.keep(dict([consumer(0)]), {})
    assert unread.refused == frozenset()


@pytest.mark.fault("tool-F4")
def test_groups_that_move_on_with_each_look_take_turns_with_those_that_do_not() -> None:
    unread = UnreadTimes()
    looks = [
        ask(unread, dict(consumer(number, look * (number < 5)) for number in range(10)), 3)
        for look in range(4)
    ]
    assert set().union(*looks) == set(range(10))


def test_groups_at_several_places_of_a_partition_are_asked_for_within_a_bound() -> None:
    lagging: dict[Consumer, Place] = {(f"g{n}", T0): (T0, n) for n in range(10)}
    unread = UnreadTimes()
    looks = [set(unread.choose(lagging, 100, 4)) for _ in range(3)]
    assert [len(look) for look in looks] == [4, 4, 4]
    assert set().union(*looks) == {(T0, n) for n in range(10)}


@pytest.mark.fault("tool-F4")
def test_no_record_is_an_answer_until_the_log_has_grown() -> None:
    lagging: dict[Consumer, Place] = {("g", T0): (T0, 5)}
    unread = UnreadTimes()

    def is_asked(log: LogOffsets) -> bool:
        unread.keep(lagging, {T0: log})
        chosen = unread.choose(lagging, 10, 10)
        if chosen:
            unread.note({T0: 5}, FirstRecords(without={T0}), {T0: log})
        return bool(chosen)

    assert [is_asked(LOG), is_asked(LOG), is_asked(LogOffsets(0, 101))] == [True, False, True]


def test_a_record_without_a_time_is_asked_for_once() -> None:
    lagging: dict[Consumer, Place] = {("g", T0): (T0, 5)}
    unread = UnreadTimes()
    unread.choose(lagging, 10, 10)
    unread.note({T0: 5}, FirstRecords(untimed={T0}), {T0: LOG})
    unread.keep(lagging, {T0: LogOffsets(0, 101)})
    assert not unread.choose(lagging, 10, 10)
    assert unread.since_ms == {}


async def delete_records(admin: Admin, partition: TopicPartition, before: int) -> None:
    """Move the start of a partition's log, as retention does."""
    asked = DeleteRecordsRequestPartition(partition_index=partition.partition, offset=before)
    topic = DeleteRecordsRequestTopic(name=partition.topic, partitions=[asked])
    await admin.cluster.refresh([partition.topic])
    leader = admin.cluster.brokers[admin.cluster.view.leaders[partition]]
    connection = await admin.cluster.connection(leader)
    response = await connection.call(DeleteRecordsRequest(topics=[topic], timeout_ms=5000))
    assert [p.error_code for t in response.topics for p in t.partitions] == [0]


@pytest.mark.fault("tool-F4")
def test_a_group_that_retention_has_overtaken_and_its_neighbours_have_their_times(
    tmp_path: Path,
) -> None:
    async def scene(cluster: Cluster, faults: Faults) -> list[dict[str, int | None]]:
        async def work() -> list[dict[str, int | None]]:
            await produce(cluster, T0, [b"x"] * 40)
            await commit(cluster, "overtaken", {T0: 2})
            await commit(cluster, "other", {T0: 12})
            async with Admin(CLIENT | {"bootstrap.servers": cluster.bootstrap}) as admin:
                await delete_records(admin, T0, 10)
                monitor = Monitor(Sessions(admin), tmp_path / "history", DAY_MS, 1)
                looks = []
                for offset in (20, 21, 22):
                    await commit(cluster, "alive", {T0: offset})
                    await asyncio.sleep(60)
                    await monitor.look()
                    looks.append(
                        {g: monitor.partitions(g)[0]["time_lag_ms"] for g in monitor.groups}
                    )
                monitor.close()
                return looks

        return await cluster.client("serve").run(work)

    looks = simulate(scene, seed=1, brokers=1, topics={"t": 1})
    assert len(looks) == 3
    for look in looks:
        assert look.keys() == {"overtaken", "other", "alive"}
        assert all(ms is not None and ms >= MINUTE_MS for ms in look.values())
