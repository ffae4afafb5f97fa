"""Offset stores: what is written, what is read, and what never counts as "no offset"."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from offsets.store import (
    CommitFailed,
    CoordinatorStore,
    DualStore,
    OffsetFetchFailed,
    Offsets,
)
from offsets.zookeeper_store import ZooKeeperStore
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from zk.memory import MemorySession, MemoryZooKeeper
from zk.migration_znodes import OffsetStorage

P0, P1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
GROUP = "g"


def at(**offsets: int) -> dict[TopicPartition, OffsetAndMetadata]:
    names = {"p0": P0, "p1": P1, "u0": U0}
    return {names[name]: OffsetAndMetadata(offset) for name, offset in offsets.items()}


class Coordinator:
    """A broker's responses; `codes` are errors by partition, `top` that of a whole fetch."""

    def __init__(self, committed: Offsets | None = None) -> None:
        self.committed = dict(committed or {})
        self.codes: dict[TopicPartition, ErrorCode] = {}
        self.top = ErrorCode.NONE
        self.requests: list[Any] = []
        self.forgotten = 0
        self.store = CoordinatorStore(self.call, self.forget)

    def forget(self) -> None:
        self.forgotten += 1

    async def call(self, request: Any) -> Any:
        self.requests.append(request)
        if isinstance(request, OffsetCommitRequest):
            return self._commit(request)
        assert isinstance(request, OffsetFetchRequest)
        return self._fetch(request)

    def _commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        topics = []

        for topic in request.topics:
            answers = []
            for p in topic.partitions:
                partition = TopicPartition(topic.name, p.partition_index)
                code = self.codes.get(partition, ErrorCode.NONE)
                if code is ErrorCode.NONE:
                    self.committed[partition] = OffsetAndMetadata(
                        p.committed_offset, p.committed_metadata or ""
                    )
                answers.append(
                    OffsetCommitResponsePartition(
                        partition_index=p.partition_index, error_code=code
                    )
                )
            topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=answers))

        return OffsetCommitResponse(topics=topics)

    def _fetch(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        if self.top is not ErrorCode.NONE:
            return OffsetFetchResponse(topics=[], error_code=self.top)
        nothing = OffsetAndMetadata(-1)
        return OffsetFetchResponse(
            error_code=0,
            topics=[
                OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetFetchResponsePartition(
                            partition_index=index,
                            committed_offset=self.committed.get(partition, nothing).offset,
                            metadata=self.committed.get(partition, nothing).metadata,
                            error_code=self.codes.get(partition, ErrorCode.NONE),
                        )
                        for index in topic.partition_indexes
                        for partition in [TopicPartition(topic.name, index)]
                    ],
                )
                for topic in request.topics or ()
            ],
        )


def play(
    scene: Callable[[MemorySession, ZooKeeperStore], Coroutine[Any, Any, None]],
) -> None:
    async def whole() -> None:
        session = MemoryZooKeeper().session()
        await session.start()
        await scene(session, ZooKeeperStore(session))

    asyncio.run(whole())


# --- ZooKeeper ------------------------------------------------------------------------------------


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


# --- the coordinator ------------------------------------------------------------------------------


def test_a_coordinator_is_committed_to_as_by_a_consumer_outside_of_generations() -> None:
    coordinator = Coordinator()
    offsets = {P0: OffsetAndMetadata(42, "note"), U0: OffsetAndMetadata(1)}
    asyncio.run(coordinator.store.commit(GROUP, offsets))
    (request,) = coordinator.requests
    assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == (
        GROUP,
        -1,
        "",
    )
    assert asyncio.run(coordinator.store.fetch(GROUP, [P0, P1, U0])) == offsets


def test_an_unchanged_offset_is_committed_to_the_coordinator_again() -> None:
    coordinator = Coordinator()
    for _ in range(2):
        asyncio.run(coordinator.store.commit(GROUP, at(p0=1)))
    assert len(coordinator.requests) == 2


@pytest.mark.parametrize("code", [code for code in ErrorCode if code is not ErrorCode.NONE])
def test_no_error_of_a_fetch_is_taken_for_no_offset(code: ErrorCode) -> None:
    coordinator = Coordinator(at(p0=5, p1=6))
    coordinator.codes[P1] = code
    with pytest.raises(OffsetFetchFailed) as failure:
        asyncio.run(coordinator.store.fetch(GROUP, [P0, P1]))
    assert failure.value.errors == {P1: code.name}
    assert failure.value.offsets == at(p0=5)


def test_an_error_of_the_whole_fetch_puts_every_partition_in_doubt() -> None:
    coordinator = Coordinator(at(p0=5))
    coordinator.top = ErrorCode.NOT_COORDINATOR
    with pytest.raises(OffsetFetchFailed) as failure:
        asyncio.run(coordinator.store.fetch(GROUP, [P0, P1]))
    assert failure.value.errors.keys() == {P0, P1}
    assert coordinator.forgotten


def test_a_partition_left_out_of_a_response_is_in_doubt() -> None:
    async def silence(request: Any) -> OffsetFetchResponse:
        return OffsetFetchResponse(topics=[], error_code=0)

    with pytest.raises(OffsetFetchFailed, match="left out"):
        asyncio.run(CoordinatorStore(silence).fetch(GROUP, [P0]))


def test_a_fetch_of_nothing_does_not_ask_for_everything() -> None:
    coordinator = Coordinator(at(p0=5))
    assert asyncio.run(coordinator.store.fetch(GROUP, [])) == {}
    assert coordinator.requests == []


def test_a_commit_that_failed_in_part_names_the_part() -> None:
    coordinator = Coordinator()
    coordinator.codes[P1] = ErrorCode.OFFSET_METADATA_TOO_LARGE
    with pytest.raises(CommitFailed) as failure:
        asyncio.run(coordinator.store.commit(GROUP, at(p0=1, p1=2)))
    assert failure.value.errors == {P1: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert not failure.value.retriable
    assert coordinator.committed == at(p0=1)
    assert not coordinator.forgotten


def test_a_group_with_members_at_its_coordinator_refuses_our_commit_for_good() -> None:
    async def scene() -> None:
        coordinator = Coordinator()
        coordinator.codes[P0] = ErrorCode.UNKNOWN_MEMBER_ID
        with pytest.raises(CommitFailed, match="UNKNOWN_MEMBER_ID") as failure:
            await coordinator.store.commit(GROUP, at(p0=5))
        assert not failure.value.retriable

    asyncio.run(scene())


def test_a_broker_that_is_not_the_coordinator_is_forgotten() -> None:
    coordinator = Coordinator()
    coordinator.codes[P0] = ErrorCode.NOT_COORDINATOR
    with pytest.raises(CommitFailed) as failure:
        asyncio.run(coordinator.store.commit(GROUP, at(p0=1)))
    assert failure.value.retriable
    assert coordinator.forgotten == 1


# --- both -----------------------------------------------------------------------------------------


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
