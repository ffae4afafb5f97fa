"""Offsets in both stores at once."""

from typing import Any

import pytest

from offsets.store import CoordinatorStore, DualStore, Offsets
from offsets.store_errors import CommitFailed, OffsetFetchFailed
from offsets.zookeeper_store import ZooKeeperStore
from protocol.errors import ErrorCode
from protocol.topic_partition import OffsetAndMetadata
from tests.offsets.store.stores import GROUP, P0, P1, U0, Coordinator, at, play
from zk.memory import MemorySession
from zk.migration_znodes import OffsetStorage


def test_dual_commit_writes_both() -> None:
    async def scene(zk: MemorySession, store: ZooKeeperStore) -> None:
        coordinator = Coordinator()
        await DualStore(coordinator.store, store).commit(GROUP, at(p0=3))
        assert coordinator.committed == at(p0=3)
        assert await store.fetch(GROUP, [P0]) == at(p0=3)

    play(scene)


def test_dual_commit_writes_to_zookeeper_only_what_kafka_took() -> None:
    async def scene(zk: MemorySession, store: ZooKeeperStore) -> None:
        coordinator = Coordinator()
        coordinator.codes[P1] = ErrorCode.NOT_COORDINATOR
        with pytest.raises(CommitFailed) as failure:
            await DualStore(coordinator.store, store).commit(GROUP, at(p0=3, p1=4))
        assert failure.value.errors.keys() == {P1}
        assert await store.fetch(GROUP, [P0, P1]) == at(p0=3)

    play(scene)


def test_dual_fetch_takes_the_larger_offset_and_kafkas_metadata() -> None:
    async def scene(zk: MemorySession, store: ZooKeeperStore) -> None:
        await store.commit(GROUP, at(p0=10, p1=2))
        kafka = {P0: OffsetAndMetadata(5, "note"), P1: OffsetAndMetadata(7, "other")}
        coordinator = Coordinator(kafka | at(u0=1))
        found = await DualStore(coordinator.store, store).fetch(GROUP, [P0, P1, U0])
        assert found == {
            P0: OffsetAndMetadata(10, "note"),
            P1: OffsetAndMetadata(7, "other"),
            U0: OffsetAndMetadata(1),
        }

    play(scene)


def test_dual_fetch_is_in_doubt_when_one_store_is() -> None:
    async def scene(zk: MemorySession, store: ZooKeeperStore) -> None:
        await store.commit(GROUP, at(p0=10, p1=2))
        coordinator = Coordinator(at(p0=1))
        coordinator.codes[P1] = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        with pytest.raises(OffsetFetchFailed) as failure:
            await DualStore(coordinator.store, store).fetch(GROUP, [P0, P1])
        assert failure.value.errors == {P1: "COORDINATOR_LOAD_IN_PROGRESS"}
        assert failure.value.offsets == at(p0=10)

    play(scene)


@pytest.mark.parametrize(
    ("leader", "expected"), [(None, 10), (OffsetStorage.ZOOKEEPER, 10), (OffsetStorage.KAFKA, 5)]
)
def test_a_store_that_leads_is_read_alone_and_otherwise_the_larger_counts(
    leader: OffsetStorage | None, expected: int
) -> None:
    async def scene(zk: MemorySession, store: ZooKeeperStore) -> None:
        await store.commit(GROUP, at(p0=10))
        dual = DualStore(Coordinator(at(p0=5)).store, store, leader)
        assert await dual.fetch(GROUP, [P0]) == at(p0=expected)

    play(scene)


def test_a_leader_that_knows_nothing_is_believed_whatever_the_other_kept() -> None:
    async def scene(zk: MemorySession, store: ZooKeeperStore) -> None:
        dual = DualStore(Coordinator(at(p0=5)).store, store, OffsetStorage.ZOOKEEPER)
        assert await dual.fetch(GROUP, [P0]) == {}

    play(scene)


def test_only_a_leader_in_doubt_puts_a_fetch_in_doubt() -> None:
    async def scene(zk: MemorySession, store: ZooKeeperStore) -> None:
        await store.commit(GROUP, at(p0=10))
        coordinator = Coordinator(at(p0=5))
        coordinator.codes[P0] = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        leading = DualStore(coordinator.store, store, OffsetStorage.ZOOKEEPER)
        assert await leading.fetch(GROUP, [P0]) == at(p0=10)
        with pytest.raises(OffsetFetchFailed):
            await DualStore(coordinator.store, store, OffsetStorage.KAFKA).fetch(GROUP, [P0])

    play(scene)


def test_stores_that_differ_are_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(zk: MemorySession, store: ZooKeeperStore) -> None:
        await store.commit(GROUP, at(p0=10, p1=7))
        await DualStore(Coordinator(at(p0=5, p1=7)).store, store).fetch(GROUP, [P0, P1, U0])

    play(scene)
    assert [record.message for record in caplog.records] == [
        "group g: t-0 is DIVERGED: 5 in Kafka, 10 in ZooKeeper"
    ]


@pytest.mark.parametrize(("kafka", "zookeeper"), [(100, 80), (80, 100), (100, 100), (None, 100)])
@pytest.mark.parametrize("to", [50, 90, 120])
def test_whoever_reads_during_a_reset_sees_the_old_offset_or_the_new(
    kafka: int | None, zookeeper: int, to: int
) -> None:
    read: list[int] = []

    async def scene(zk: MemorySession, store: ZooKeeperStore) -> None:
        await store.commit(GROUP, at(p0=zookeeper))
        coordinator = Coordinator({} if kafka is None else at(p0=kafka))

        async def call(request: Any) -> Any:
            response = await coordinator.call(request)
            await look()
            return response

        async def look() -> None:
            dual = DualStore(coordinator.store, ZooKeeperStore(zk))
            read.append((await dual.fetch(GROUP, [P0]))[P0].offset)

        await DualStore(CoordinatorStore(call), store).reset(GROUP, at(p0=to))
        assert coordinator.committed == await store.fetch(GROUP, [P0]) == at(p0=to)
        await look()

    play(scene)
    assert set(read) <= {max(kafka or 0, zookeeper), to}
    assert read[-1] == to


def test_a_reset_that_the_first_store_refuses_does_not_reach_the_second() -> None:
    async def scene(zk: MemorySession, store: ZooKeeperStore) -> None:
        await store.commit(GROUP, at(p0=100))
        coordinator = Coordinator(at(p0=80))
        dual = DualStore(RefusingStore(coordinator.store), store)
        with pytest.raises(CommitFailed):
            await dual.reset(GROUP, at(p0=50))
        assert await store.fetch(GROUP, [P0]) == at(p0=100)

    play(scene)


class RefusingStore:
    """A store that reads as another does, and refuses commits."""

    def __init__(self, store: CoordinatorStore) -> None:
        self.fetch = store.fetch

    async def commit(self, group: str, offsets: Offsets) -> None:
        if offsets:
            raise CommitFailed(dict.fromkeys(offsets, ErrorCode.NOT_COORDINATOR))


def test_what_was_forgotten_is_written_again_though_it_has_not_changed() -> None:
    async def scene(zk: MemorySession, store: ZooKeeperStore) -> None:
        await store.commit(GROUP, at(p0=10))
        await zk.set("/consumers/g/offsets/t/0", b"3")
        store.forget()
        await store.commit(GROUP, at(p0=10))
        assert (await zk.get("/consumers/g/offsets/t/0"))[0] == b"10"

    play(scene)
