"""Logs whose disk has failed: the controller gets one report, and each response names them."""

from __future__ import annotations

import asyncio
import errno

from broker.cluster.log_failures import LogFailures
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import NOW_MS, Replicas, leader_and_isr
from zk.admin_znodes import LogDirEvent
from zk.memory import MemoryZooKeeper

T0 = TopicPartition("t", 0)
BROKER = 4
FULL = OSError(errno.ENOSPC, "No space left on device")


def reports_after(*rounds: list[TopicPartition]) -> list[bytes | None]:
    """Return the notifications after reports, before each of which these logs fail."""

    async def run() -> list[bytes | None]:
        session = MemoryZooKeeper().session()
        await session.start()
        await session.ensure_path(LogDirEvent.directory())
        replicas = Replicas().lead("t", 3, replicas=(0, 1)).lead("u")
        failures = LogFailures(session, BROKER)
        for failing in rounds:
            for partition in failing:
                replicas.manager.log(partition).guard.fail("the disk is gone")
            await failures.report(replicas.manager.partitions.values())
        names, _ = await session.children(LogDirEvent.directory())
        return [(await session.get(f"{LogDirEvent.directory()}/{name}"))[0] for name in names]

    return asyncio.run(run())


def test_while_all_is_well_nothing_is_reported() -> None:
    assert reports_after([], []) == []


def test_logs_that_fail_together_are_reported_once() -> None:
    assert reports_after([T0, TopicPartition("t", 1)], []) == [LogDirEvent(BROKER).encode()]


def test_one_that_fails_later_is_reported_too() -> None:
    assert len(reports_after([T0], [TopicPartition("t", 2)])) == 2


def test_one_that_has_no_other_replica_stays_where_it_can_be_read() -> None:
    assert reports_after([TopicPartition("u", 0)]) == []


def test_when_a_disk_has_room_again_it_is_reported_again() -> None:
    async def run() -> list[int]:
        session = MemoryZooKeeper().session()
        await session.start()
        await session.ensure_path(LogDirEvent.directory())
        replicas = Replicas().lead("t", replicas=(0, 1))
        failures, guard = LogFailures(session, BROKER), replicas.manager.log(T0).guard
        counts = []
        for step in (
            lambda: guard.refuse(FULL),
            guard.clear_lack_of_room,
            failures.note_room,
            lambda: None,
        ):
            step()
            await failures.report(replicas.manager.partitions.values())
            names, _ = await session.children(LogDirEvent.directory())
            counts.append(len(names))
        return counts

    assert asyncio.run(run()) == [1, 1, 2, 2]


def test_replica_that_refused_and_was_stopped_takes_the_same_epoch_with_room_again() -> None:
    replicas = Replicas().lead("t", leader=1, isr=(1,), replicas=(0, 1))
    guard = replicas.manager.log(T0).guard
    again = leader_and_isr("t", leader=1, isr=(1,), replicas=(0, 1))

    def codes() -> list[int]:
        response = replicas.roles.become_leader_or_follower(again, NOW_MS)
        return [error.error_code for error in response.partition_errors]

    assert codes() == [ErrorCode.STALE_CONTROLLER_EPOCH]
    guard.refuse(FULL)
    assert codes() == [ErrorCode.KAFKA_STORAGE_ERROR]
    replicas.roles.stop([T0], delete=False).run()
    assert replicas.fetchers.following == {}
    guard.clear_lack_of_room()
    assert codes() == [ErrorCode.NONE]
    assert replicas.fetchers.following == {T0: 1}
    assert codes() == [ErrorCode.STALE_CONTROLLER_EPOCH]


def test_response_names_the_failed_log_even_to_a_stale_leader_and_isr() -> None:
    replicas = Replicas().lead("t", 2, replicas=(0, 1))
    replicas.manager.log(T0).guard.fail("the disk is gone")
    response = replicas.roles.become_leader_or_follower(
        leader_and_isr("t", 2, replicas=(0, 1)), NOW_MS
    )
    assert [error.error_code for error in response.partition_errors] == [
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.STALE_CONTROLLER_EPOCH,
    ]


def test_report_that_zookeeper_refuses_is_repeated() -> None:
    async def run() -> list[int]:
        zookeeper = MemoryZooKeeper()
        session = zookeeper.session()
        await session.start()
        await session.ensure_path(LogDirEvent.directory())
        replicas = Replicas().lead("t", replicas=(0, 1))
        failures, guard = LogFailures(session, BROKER), replicas.manager.log(T0).guard

        async def counts_of_two_rounds() -> list[int]:
            counts = []
            for refused in ({LogDirEvent.directory()}, set[str]()):
                zookeeper.read_only = refused
                await failures.report(replicas.manager.partitions.values())
                counts.append(len((await session.children(LogDirEvent.directory()))[0]))
            return counts

        guard.refuse(FULL)
        failing = await counts_of_two_rounds()
        guard.clear_lack_of_room()
        failures.note_room()
        return failing + await counts_of_two_rounds()

    assert asyncio.run(run()) == [0, 1, 1, 2]
