"""Offsets in ZooKeeper."""

from collections import Counter
from typing import Any

import pytest

from offsets.store import CoordinatorStore
from offsets.store_errors import CommitFailed, OffsetFetchFailed
from offsets.zookeeper_store import ZooKeeperStore
from protocol.errors import ErrorCode
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.offsets.store.stores import GROUP, P0, P1, U0, Coordinator, at, play
from zk.memory import MemorySession


def test_an_offset_in_zookeeper_is_decimal_text_where_kafka_keeps_it() -> None:
    async def scene(zk: MemorySession, store: ZooKeeperStore) -> None:
        await store.commit(GROUP, at(p0=42))
        content, stat = await zk.get("/consumers/g/offsets/t/0")
        assert content == b"42"
        assert stat.ephemeral_owner == 0
        assert await store.fetch(GROUP, [P0, P1]) == at(p0=42)

    play(scene)


def test_zookeeper_keeps_offsets_of_many_partitions_some_of_them_new() -> None:
    async def scene(zk: MemorySession, store: ZooKeeperStore) -> None:
        await store.commit(GROUP, at(p0=1))
        await store.commit(GROUP, at(p0=2, p1=3, u0=4))
        assert await ZooKeeperStore(zk).fetch(GROUP, [P0, P1, U0]) == at(p0=2, p1=3, u0=4)

    play(scene)


class Counted:
    """A session that counts its calls."""

    def __init__(self, session: MemorySession) -> None:
        self._session = session
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        if name in ("get_many", "multi", "ensure_path", "set", "create", "get"):
            self.calls[name] += 1
        return getattr(self._session, name)


def test_a_thousand_offsets_are_read_and_written_in_a_request_each() -> None:
    async def scene(zk: MemorySession, _: ZooKeeperStore) -> None:
        counted = Counted(zk)
        store = ZooKeeperStore(counted)  # type: ignore[arg-type]
        partitions = [TopicPartition("t", p) for p in range(1000)]
        await store.commit(GROUP, dict.fromkeys(partitions, OffsetAndMetadata(1)))
        assert counted.calls == {"get_many": 2, "multi": 2, "ensure_path": 1}
        counted.calls.clear()
        await store.commit(GROUP, dict.fromkeys(partitions, OffsetAndMetadata(2)))
        assert counted.calls == {"multi": 1}
        assert len(await store.fetch(GROUP, partitions)) == 1000
        assert counted.calls == {"multi": 1, "get_many": 1}

    play(scene)


def test_nodes_that_others_made_or_deleted_meanwhile_are_written_all_the_same() -> None:
    async def scene(zk: MemorySession, store: ZooKeeperStore) -> None:
        await store.commit(GROUP, at(p0=1, p1=1))
        await zk.delete("/consumers/g/offsets/t/0")
        await zk.create("/consumers/g/offsets/u/0", b"9", make_parents=True)
        await store.commit(GROUP, at(p0=2, p1=2, u0=2))
        assert await ZooKeeperStore(zk).fetch(GROUP, [P0, P1, U0]) == at(p0=2, p1=2, u0=2)

    play(scene)


def test_an_offset_is_not_written_in_a_later_session_than_it_was_committed_in() -> None:
    async def scene(zk: MemorySession, _: ZooKeeperStore) -> None:
        class Expiring(Counted):
            """A session that expires while it lists nodes."""

            async def get_many(self, paths: list[str]) -> Any:
                contents = await self._session.get_many(paths)
                zk._zookeeper.expire(zk)
                return contents

        store = ZooKeeperStore(Expiring(zk))  # type: ignore[arg-type]
        with pytest.raises(CommitFailed) as failure:
            await store.commit(GROUP, at(p0=5))
        assert failure.value.retriable
        assert await zk.exists("/consumers/g/offsets/t/0") is None

    play(scene)


def test_the_store_says_how_many_offsets_it_has_written() -> None:
    async def scene(zk: MemorySession, _: ZooKeeperStore) -> None:
        written: list[int] = []
        store = ZooKeeperStore(zk, on_written=written.append)
        await store.commit(GROUP, at(p0=1, p1=1))
        await store.commit(GROUP, at(p0=1, p1=2))
        coordinator = Coordinator()
        coordinator.codes[P1] = ErrorCode.NOT_COORDINATOR
        kafka = CoordinatorStore(coordinator.call, on_written=written.append)
        with pytest.raises(CommitFailed):
            await kafka.commit(GROUP, at(p0=1, p1=2))
        assert written == [2, 1, 1]

    play(scene)


def test_a_negative_offset_is_never_committed() -> None:
    async def scene(zk: MemorySession, store: ZooKeeperStore) -> None:
        coordinator = Coordinator()
        for kind_of_store in (store, coordinator.store):
            await kind_of_store.commit(GROUP, at(p0=-1))
        assert await zk.exists("/consumers/g/offsets/t/0") is None
        assert coordinator.requests == []

    play(scene)


def test_an_unchanged_offset_is_not_written_to_zookeeper_again() -> None:
    async def scene(zk: MemorySession, store: ZooKeeperStore) -> None:
        await store.commit(GROUP, at(p0=7))
        await store.commit(GROUP, at(p0=7))
        _, stat = await zk.get("/consumers/g/offsets/t/0")
        assert stat.version == 0
        await zk.set("/consumers/g/offsets/t/0", b"9")
        await store.fetch(GROUP, [P0])
        await store.commit(GROUP, at(p0=7))
        assert await store.fetch(GROUP, [P0]) == at(p0=7)

    play(scene)


def test_an_offset_of_minus_one_that_an_old_consumer_wrote_is_no_commit() -> None:
    async def scene(zk: MemorySession, store: ZooKeeperStore) -> None:
        await zk.create("/consumers/g/offsets/t/0", b"-1", make_parents=True)
        assert await store.fetch(GROUP, [P0]) == {}

    play(scene)


def test_an_unreadable_offset_node_is_named_and_does_not_hide_the_others() -> None:
    async def scene(zk: MemorySession, store: ZooKeeperStore) -> None:
        await store.commit(GROUP, at(p0=5))
        await zk.create("/consumers/g/offsets/t/1", b"five")
        with pytest.raises(OffsetFetchFailed, match="/consumers/g/offsets/t/1") as failure:
            await store.fetch(GROUP, [P0, P1])
        assert failure.value.errors.keys() == {P1}
        assert failure.value.offsets == at(p0=5)

    play(scene)


def test_without_zookeeper_an_offset_is_unknown_and_a_commit_may_be_tried_again() -> None:
    async def scene(zk: MemorySession, store: ZooKeeperStore) -> None:
        await store.commit(GROUP, at(p0=5))
        zookeeper = zk._zookeeper
        zookeeper.suspend(zk)
        with pytest.raises(OffsetFetchFailed):
            await store.fetch(GROUP, [P0])
        with pytest.raises(CommitFailed) as failure:
            await store.commit(GROUP, at(p0=6))
        assert failure.value.retriable
        zookeeper.resume(zk)
        await store.commit(GROUP, at(p0=6))
        assert await store.fetch(GROUP, [P0]) == at(p0=6)

    play(scene)


def test_a_commit_of_doubtful_outcome_is_written_again() -> None:
    async def scene(zk: MemorySession, store: ZooKeeperStore) -> None:
        await store.commit(GROUP, at(p0=5))
        zk._zookeeper.lose_reply(zk)
        with pytest.raises(CommitFailed):
            await store.commit(GROUP, at(p0=6))
        zk._zookeeper.resume(zk)
        await zk.set("/consumers/g/offsets/t/0", b"1")
        await store.commit(GROUP, at(p0=6))
        assert await store.fetch(GROUP, [P0]) == at(p0=6)

    play(scene)
