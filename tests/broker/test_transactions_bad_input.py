"""What producers, coordinators and disks do wrong in transactions, on a broker in this process."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker.process.process_limits import wall_clock_ms
from broker.server import Broker
from clients.admin import Admin, NewTopic
from clients.cluster import Cluster
from clients.errors import BrokerError, ProducerFailed, ProducerFenced, TransactionInDoubt
from clients.fetch_requests import Isolation
from clients.group_metadata import ConsumerGroupMetadata
from clients.producer.producer import Producer
from core_log.memory_directory import Disk, MemoryDirectory
from groups.transactions.records import encode_transaction_key
from offsets.topic import partition_for
from protocol.errors import ErrorCode
from protocol.internal_topics import TRANSACTIONS_TOPIC
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from protocol.records.batch import encode_batch, read_header
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.broker.transactions import (
    commit_codes,
    commit_request,
    in_transaction,
    marker,
    marker_codes,
    produce_request,
)
from tests.stage.broker import Site, connected
from tests.stage.raw_transaction import RawTransaction, run_with_cluster
from tests.stage.topic_contents import contents
from tests.stage.waiting import until, until_equal

SETTINGS = {
    "offsets_topic_replication_factor": "1",
    "offsets_topic_num_partitions": "1",
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
    "transaction_state_log_num_partitions": "2",
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": "100",
}
T0 = TopicPartition("t", 0)
OLD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH
YEAR_MS = 365 * 86_400_000
DISKS = ("/one", "/two")


@contextlib.asynccontextmanager
async def broker_with_topic(site: Site, **more: str) -> AsyncIterator[Broker]:
    async with site.running(1, **SETTINGS, **more) as broker:
        async with Admin(broker.bootstrap) as admin:
            assert await admin.create_topics([NewTopic("t", 2, 1)]) == {"t": None}
        yield broker


def producer_of(broker: Broker, name: str = "x", **more: object) -> Producer:
    settings = {"bootstrap_servers": broker.bootstrap, "transactional_id": name, **more}
    return Producer(**settings)


async def committed_values(broker: Broker) -> list[bytes | None]:
    """Read partition 0 as a reader of committed data."""
    records = await contents(broker.bootstrap, T0, isolation=Isolation.READ_COMMITTED)
    return [record.value for record in records]


async def state_of(broker: Broker, name: str = "x") -> str:
    async with Admin(broker.bootstrap) as admin:
        return (await admin.describe_transactions([name]))[name].state


async def committed_offsets(broker: Broker, group_id: str) -> list[int]:
    async with Admin(broker.bootstrap) as admin:
        return [at.offset for at in (await admin.group_offsets(group_id)).values()]


# ---- producers


@pytest.mark.fault("groups-4")
async def test_offsets_join_a_transaction_once_their_topic_is_there_to_say_where(
    tmp_path: Path,
) -> None:
    async with broker_with_topic(Site(tmp_path)) as broker:

        async def begin(cluster: Cluster) -> RawTransaction:
            return await RawTransaction.begin(cluster, "x")

        begun = await run_with_cluster(broker.bootstrap, begin)
        request = AddOffsetsToTxnRequest(
            transactional_id="x",
            group_id="g",
            producer_id=begun.producer_id,
            producer_epoch=begun.epoch,
        )
        async with connected(broker) as connection:

            async def add_offsets() -> int:
                code: int = (await connection.call(request)).error_code
                return code

            assert await add_offsets() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            await until_equal(add_offsets, ErrorCode.NONE)


async def test_old_epoch_is_refused_by_coordinator_and_leader_and_changes_nothing(
    tmp_path: Path,
) -> None:
    async with broker_with_topic(Site(tmp_path)) as broker:
        async with producer_of(broker) as producer, producer.transaction():
            await producer.send("t", b"old", partition=0)

        async def replace(cluster: Cluster) -> RawTransaction:
            replaced = await RawTransaction.begin(cluster, "x")
            # The leader learns of the new epoch by its first record.
            current = await RawTransaction.begin(cluster, "x")
            await current.add(T0)
            await current.write(T0, b"new", wall_clock_ms())
            await current.end(commits=True)
            return replaced

        old = await run_with_cluster(broker.bootstrap, replace)
        await until_equal(partial(committed_values, broker), [b"old", b"new"])
        who: dict[str, Any] = {"producer_id": old.producer_id, "producer_epoch": old.epoch}

        async with connected(broker) as connection:
            topic = AddPartitionsToTxnTopic(name="t", partitions=[1])
            add = AddPartitionsToTxnRequest(transactional_id="x", topics=[topic], **who)
            offsets = AddOffsetsToTxnRequest(transactional_id="x", group_id="g", **who)
            end = EndTxnRequest(transactional_id="x", committed=True, **who)
            init = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000, **who)
            late = in_transaction(b"late", producer_id=old.producer_id, epoch=old.epoch)

            async def add_offsets() -> int:
                code: int = (await connection.call(offsets, version=0)).error_code
                return code

            # The topic of groups is made by the first request that needs it.
            await until_equal(add_offsets, OLD_EPOCH)
            for version, code in enumerate([OLD_EPOCH, OLD_EPOCH, ErrorCode.PRODUCER_FENCED]):
                added: Any = await connection.call(add, version=version)
                assert added.results[0].results[0].error_code == code
                assert (await connection.call(offsets, version=version)).error_code == code
                assert (await connection.call(end, version=version)).error_code == code
            assert (await connection.call(init)).error_code == ErrorCode.PRODUCER_FENCED
            produced: Any = await connection.call(produce_request(late))
            refused = produced.responses[0].partition_responses[0].error_code
            assert refused == OLD_EPOCH

        await until_equal(partial(state_of, broker), "CompleteCommit")
        assert await committed_values(broker) == [b"old", b"new"]


async def test_producers_that_share_an_id_fence_each_other_and_commit_whole_transactions(
    tmp_path: Path,
) -> None:
    async with broker_with_topic(Site(tmp_path)) as broker, contextlib.AsyncExitStack() as stack:
        expected = []
        producers = []
        for number in range(4):
            producer = await stack.enter_async_context(producer_of(broker))
            producers.append(producer)
            await producer.begin_transaction()
            for part in (b"a", b"b"):
                await producer.send_and_wait("t", b"%d%s" % (number, part), partition=0)
            # Every other one is replaced in the middle.
            if number % 2:
                await producer.commit_transaction()
                expected += [b"%da" % number, b"%db" % number]

        for number, producer in enumerate(producers[:-1]):
            if number % 2:
                await producer.begin_transaction()
                await producer.send("t", b"late", partition=0)
            with pytest.raises(ProducerFenced):
                await producer.commit_transaction()
        await until_equal(partial(committed_values, broker), expected)


async def test_partition_that_was_never_added_hangs_until_an_operator_aborts_it(
    tmp_path: Path,
) -> None:
    async with broker_with_topic(Site(tmp_path)) as broker, Admin(broker.bootstrap) as admin:

        async def write(cluster: Cluster) -> RawTransaction:
            producer = await RawTransaction.begin(cluster, "x")
            await producer.write(T0, b"never added", wall_clock_ms())
            with pytest.raises(BrokerError) as refused:
                await producer.end(commits=True)
            assert refused.value.code is ErrorCode.INVALID_TXN_STATE
            return producer

        hanging = await run_with_cluster(broker.bootstrap, write)
        async with Producer(bootstrap_servers=broker.bootstrap) as plain:
            await plain.send_and_wait("t", b"behind", partition=0)
        assert await committed_values(broker) == []
        await admin.abort_transaction(T0, hanging.producer_id, hanging.epoch)
        assert await committed_values(broker) == [b"behind"]


async def test_marker_of_an_unknown_producer_harms_nobody_and_fences_older_epochs(
    tmp_path: Path,
) -> None:
    async with broker_with_topic(Site(tmp_path)) as broker, connected(broker) as connection:
        unknown = 4711
        for commits in (True, False):
            request = WriteTxnMarkersRequest(
                markers=[marker(T0, commits=commits, producer_id=unknown, epoch=3)]
            )
            assert marker_codes(await connection.call(request)) == [ErrorCode.NONE]
        async with producer_of(broker) as producer, producer.transaction():
            await producer.send("t", b"mine", partition=0)
        await until_equal(partial(committed_values, broker), [b"mine"])

        codes = []
        for epoch in (2, 3):
            batch = in_transaction(b"theirs", producer_id=unknown, epoch=epoch)
            response: Any = await connection.call(produce_request(batch))
            codes.append(response.responses[0].partition_responses[0].error_code)
        assert codes == [OLD_EPOCH, ErrorCode.NONE]


async def test_timeout_above_the_brokers_maximum_is_refused_and_the_setting_named(
    tmp_path: Path,
) -> None:
    async with broker_with_topic(Site(tmp_path), transaction_max_timeout_ms="5000") as broker:
        async with connected(broker) as connection:
            for timeout_ms in (5001, 0, -1):
                request = InitProducerIdRequest(
                    transactional_id="x", transaction_timeout_ms=timeout_ms
                )

                async def code_of(request: InitProducerIdRequest = request) -> ErrorCode:
                    return ErrorCode.of((await connection.call(request)).error_code)

                # The coordinator is there soon.
                await until_equal(code_of, ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        with pytest.raises(ProducerFailed, match=r"above transaction\.max\.timeout\.ms"):
            await producer_of(broker, transaction_timeout_ms=5001).__aenter__()
        longest = producer_of(broker, transaction_timeout_ms=5000)
        async with longest as producer, producer.transaction():
            await producer.send("t", b"value", partition=0)


# ---- time


async def test_transaction_open_for_a_year_is_aborted_and_holds_nobody_any_more(
    tmp_path: Path,
) -> None:
    ahead_ms = 0
    site = Site(tmp_path, now_ms=lambda: wall_clock_ms() + ahead_ms)
    async with broker_with_topic(site) as broker, producer_of(broker) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"old", partition=0)
        await producer.send_offsets_to_transaction(
            {T0: OffsetAndMetadata(7)}, ConsumerGroupMetadata("g")
        )
        async with Producer(bootstrap_servers=broker.bootstrap) as plain:
            await plain.send_and_wait("t", b"behind", partition=0)
        assert await committed_values(broker) == []

        ahead_ms = YEAR_MS
        await until_equal(partial(committed_values, broker), [b"behind"])
        await until_equal(partial(state_of, broker), "CompleteAbort")
        assert await committed_offsets(broker, "g") == []
        with pytest.raises(ProducerFenced, match=r"transaction\.timeout\.ms"):
            await producer.commit_transaction()


# ---- groups


async def test_offsets_for_a_group_that_is_coordinated_nowhere_here_are_refused(
    tmp_path: Path,
) -> None:
    async with broker_with_topic(Site(tmp_path)) as broker, connected(broker) as connection:
        # Nobody has asked for a group yet: there is no topic of which a broker could lead a part.
        response: Any = await connection.call(commit_request(("t", 0, 1)))
        assert commit_codes(response) == [ErrorCode.NOT_COORDINATOR]


# ---- disks


@contextlib.asynccontextmanager
async def broker_on_two_disks(tmp_path: Path) -> AsyncIterator[tuple[Broker, dict[str, Disk]]]:
    disks = {name: Disk() for name in DISKS}
    site = Site(tmp_path)
    site.open_directory = lambda path: MemoryDirectory(path.removeprefix("/"), disks[path])
    async with broker_with_topic(site, log_dirs=",".join(DISKS)) as broker:
        yield broker, disks


def disk_of(broker: Broker, partition: TopicPartition) -> str:
    path = broker.partitions[partition].log.directory.path
    return next(name for name in DISKS if path.startswith(f"{name}/"))


async def test_marker_that_finds_a_full_disk_is_written_when_there_is_room(tmp_path: Path) -> None:
    async with broker_on_two_disks(tmp_path) as (broker, disks):
        async with producer_of(broker, "first") as first, first.transaction():
            await first.send("t", b"first", partition=0)
        await until_equal(partial(committed_values, broker), [b"first"])

        # The coordinator's log is on the other disk.
        data = disk_of(broker, T0)
        name = next(
            name
            for name in ("x", "y", "z", "payments")
            if disk_of(broker, state_partition(name)) != data
        )
        async with producer_of(broker, name) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"second", partition=0)
            disks[data].free_bytes = 10
            await producer.commit_transaction()
            assert await state_of(broker, name) == "PrepareCommit"
            assert await committed_values(broker) == [b"first"]

            disks[data].free_bytes = None
            await until_equal(partial(state_of, broker, name), "CompleteCommit")
            assert await committed_values(broker) == [b"first", b"second"]


async def test_commit_that_finds_the_coordinators_disk_full_is_decided_when_there_is_room(
    tmp_path: Path,
) -> None:
    async with (
        broker_on_two_disks(tmp_path) as (broker, disks),
        producer_of(broker, max_block_ms=500) as producer,
    ):
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"value", partition=0)
        for disk in disks.values():
            disk.free_bytes = 10
        with pytest.raises(TransactionInDoubt):
            await producer.commit_transaction()
        assert await state_of(broker) == "Ongoing"

        for disk in disks.values():
            disk.free_bytes = None

        async def is_committed() -> bool:
            with contextlib.suppress(TransactionInDoubt):
                await producer.commit_transaction()
                return True
            return False

        await until(is_committed, "the commit")
        await until_equal(partial(committed_values, broker), [b"value"])


def state_partition(name: str) -> TopicPartition:
    return TopicPartition(TRANSACTIONS_TOPIC, partition_for(name, 2))


async def test_ids_whose_log_cannot_be_read_are_refused_and_all_others_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path)
    broken, sound = (
        next(name for name in map(str, range(9)) if partition_for(name, 2) == number)
        for number in range(2)
    )
    async with broker_with_topic(site) as broker:
        for name in (broken, sound):
            async with producer_of(broker, name) as producer, producer.transaction():
                await producer.send("t", name.encode(), partition=0)
        log = broker.partitions[state_partition(broken)].log
        batch = encode_batch([(0, encode_transaction_key(broken), b"\0\7what is this", ())])
        header = read_header(batch)
        log.append(batch, header, leader_epoch=0, now_ms=wall_clock_ms(), max_timestamp=0)
        offset = log.log_end_offset - 1

    async with site.running(1, **SETTINGS) as broker:
        async with producer_of(broker, sound) as producer, producer.transaction():
            await producer.send("t", b"more", partition=0)
        await until_equal(
            partial(committed_values, broker), [broken.encode(), sound.encode(), b"more"]
        )
        async with connected(broker) as connection:
            request = InitProducerIdRequest(transactional_id=broken, transaction_timeout_ms=1000)
            response: Any = await connection.call(request)
            assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        reason = f"{state_partition(broken)} is not served"
        where = f"{state_partition(broken)} at offset {offset}: "
        assert any(reason in line and where in line for line in caplog.messages)
