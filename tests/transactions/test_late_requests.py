"""Requests that arrive when their transaction is over: what the protocol leaves open, as findings.

A transaction is known to its coordinator, and to that of a group, by producer id and epoch, and the
next one of the same producer has the same. Without KIP-890 (Kafka 4.0) neither can tell a request
of the last transaction from one of this. Kafka 2.8.2 and ours do the same, and so the judge says
the same of both:

- a late EndTxn ends the next transaction, with the decision of the one before;
- a late TxnOffsetCommit belongs to the next transaction: a group goes back.

A client in good order does not wait for that to happen: it needs a connection that it has given up,
and whose last request arrives after the response to the next attempt, and after the first requests
of the next transaction. Our producer keeps such a request out: by another epoch, and by the marker
of an empty transaction in it (`clients/producer/transactions/decide.py`). The second half shows
that all brokers understand that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from uuid import uuid4

import attrs
import pytest

from clients.cluster import Cluster
from clients.errors import BrokerError
from clients.fetch_requests import Isolation
from clients.group_metadata import ConsumerGroupMetadata
from clients.producer.producer import Producer
from clients.producer.transactions.transactions import PURPOSE
from clients.transport.connection import Connection
from offsets.requests import fetch_offsets_request, fetch_results
from protocol.errors import ErrorCode
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.interop.traffic import new_topic
from tests.stage.network import Relay
from tests.stage.raw_transaction import RawTransaction, run_with_cluster
from tests.stage.stock_kafka import stock_broker
from tests.stage.waiting import until_equal
from tests.transactions import checker
from tests.transactions.checker import judge, names
from tests.transactions.history import Attempt, History, Outcome, value_of
from tests.transactions.workload import GROUP, Stage, committed_offset, consumer_of, read

SETTINGS = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}


@pytest.fixture(scope="module")
def stock(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    tree = f"{zookeeper}/late-{uuid4().hex[:8]}"
    with stock_broker(tree, tmp_path_factory.mktemp("stock"), SETTINGS) as bootstrap:
        yield bootstrap


@attrs.define(eq=False)
class Scene:
    """A topic, a producer, and what it did."""

    cluster: Cluster
    stage: Stage
    partitions: list[TopicPartition]
    producer: RawTransaction

    @property
    def history(self) -> History:
        return self.stage.history

    async def write(self, attempt: Attempt, *partitions: TopicPartition) -> None:
        """Write an amount to each partition."""
        for partition in partitions:
            place = len(attempt.writes)
            value = value_of(attempt.number, place)
            await self.producer.add(partition)
            offset = await self.producer.write(partition, value, int(time.time() * 1000))
            attempt.writes[value] = partition, offset

    async def read(self, isolation: Isolation) -> dict[TopicPartition, dict[int, bytes]]:
        """Read all partitions, until nothing more comes."""
        found = {}
        for partition in self.partitions:
            rows: dict[int, bytes] = {}
            position, next_offset = -1, 0
            async with await consumer_of(self.stage, partition) as consumer:
                while position < next_offset:
                    position = next_offset
                    more, next_offset = await read(consumer, partition, position, isolation)
                    rows.update(more)
            found[partition] = rows
        return found

    async def judge(self) -> list[str]:
        self.history.committed = await self.read(Isolation.READ_COMMITTED)
        self.history.everything = await self.read(Isolation.READ_UNCOMMITTED)
        return names(judge(self.history))


async def tell(bootstrap: str, scenario: Callable[[Scene], Awaitable[None]]) -> None:
    topic = await new_topic(bootstrap, partitions=2)
    stage = Stage(bootstrap, {}, lambda who, what: None)
    partitions = [TopicPartition(topic, number) for number in range(2)]

    async def run(cluster: Cluster) -> None:
        producer = await RawTransaction.begin(cluster, topic)
        await scenario(Scene(cluster, stage, partitions, producer))

    await run_with_cluster(bootstrap, run)


async def test_a_late_commit_ends_the_next_transaction_in_its_middle(either: str) -> None:
    async def scenario(scene: Scene) -> None:
        first = scene.history.begin("p", ())
        await scene.write(first, *scene.partitions)
        await scene.producer.end(commits=True)
        first.outcome = Outcome.COMMITTED

        second = scene.history.begin("p", ())
        await scene.write(second, scene.partitions[0])
        await scene.producer.end(commits=True)  # that of the first one, once more
        await scene.write(second, scene.partitions[1])
        await scene.producer.end(commits=False)

        await until_equal(scene.judge, [checker.ABORTED_READ, checker.TORN])

    await tell(either, scenario)


async def test_a_late_abort_takes_a_part_of_the_next_transaction(either: str) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.write(scene.history.begin("p", ()), *scene.partitions)
        await scene.producer.end(commits=False)

        second = scene.history.begin("p", ())
        await scene.write(second, scene.partitions[0])
        await scene.producer.end(commits=False)  # that of the first one, once more
        await scene.write(second, scene.partitions[1])
        await scene.producer.end(commits=True)
        second.outcome = Outcome.COMMITTED

        await until_equal(scene.judge, [checker.TORN, checker.LOST_WRITE])

    await tell(either, scenario)


async def test_late_offsets_take_a_group_back(either: str) -> None:
    async def scenario(scene: Scene) -> None:
        source = scene.partitions[0]

        async def commit(*offsets: int) -> None:
            attempt = scene.history.begin("p", ())
            await scene.producer.add_group(GROUP)
            for offset in offsets:
                await scene.producer.commit_offset(GROUP, source, offset)
            await scene.producer.end(commits=True)
            attempt.outcome = Outcome.COMMITTED
            attempt.offsets[source] = offsets[0]
            scene.history.observed.append({source: await committed_offset(scene.cluster, source)})

        await commit(5)
        await commit(7)
        await commit(9, 7)  # that of the second one, once more

        assert scene.history.observed == [{source: 5}, {source: 7}, {source: 7}]
        assert await scene.judge() == [checker.WRONG_OFFSETS]

    await tell(either, scenario)


# ---- another epoch

FORMER = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
"""What a request of a former epoch hears."""


@pytest.mark.parametrize("commits", [False, True])
async def test_an_end_of_the_last_epoch_ends_nothing(either: str, commits: bool) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.write(scene.history.begin("p", ()), *scene.partitions)
        await scene.producer.end(commits=commits)
        former = await scene.producer.renew()

        await scene.producer.add(scene.partitions[0])
        with pytest.raises(BrokerError) as refused:
            await former.end(commits=commits)
        assert refused.value.code in FORMER

    await tell(either, scenario)


async def test_a_marker_of_another_epoch_keeps_late_offsets_out(either: str) -> None:
    async def scenario(scene: Scene) -> None:
        producer, (first, second) = scene.producer, scene.partitions
        await producer.add_group(GROUP)
        await producer.commit_offset(GROUP, first, 5)
        await producer.end(commits=False)
        former = await producer.renew()

        # What comes before the marker is dropped by it, what comes later is refused.
        await former.commit_offset(GROUP, first, 5)
        await producer.add_group(GROUP)
        await producer.end(commits=False)

        async def is_refused() -> bool:
            try:
                await former.commit_offset(GROUP, first, 5)
            except BrokerError as error:
                return error.code in FORMER
            return False

        await until_equal(is_refused, True)

        await producer.add_group(GROUP)
        await producer.commit_offset(GROUP, second, 7)
        await producer.end(commits=True)
        await until_equal(lambda: committed_offset(scene.cluster, second), 7)
        assert await committed_offset(scene.cluster, first) == -1

    await tell(either, scenario)


async def test_a_marker_of_another_epoch_ends_what_a_late_batch_has_opened(either: str) -> None:
    async def scenario(scene: Scene) -> None:
        producer, partition = scene.producer, scene.partitions[0]
        await producer.add(partition)
        await producer.write(partition, b"1", int(time.time() * 1000))
        await producer.end(commits=False)
        former = await producer.renew()

        await former.write(partition, b"late", int(time.time() * 1000))
        await producer.add(partition)
        await producer.end(commits=False)

        # Its readers come to the end, and nothing is left to come.
        async def stable() -> int:
            async with await consumer_of(scene.stage, partition) as consumer:
                _, end = await read(consumer, partition, 3, Isolation.READ_COMMITTED)
                return end

        await until_equal(stable, 4)
        with pytest.raises(BrokerError) as refused:
            await former.write(partition, b"later", int(time.time() * 1000))
        assert refused.value.code in FORMER

    await tell(either, scenario)


# ---- our producer


@pytest.mark.fault("groups-2")
@pytest.mark.parametrize("commits", [False, True])
async def test_offsets_that_a_relay_held_up_count_in_no_later_transaction(
    either: str, commits: bool
) -> None:
    """The producer loses its connection, and what it sent arrives in the next transaction."""
    relay = await Relay.open(either)
    topic = await new_topic(either, partitions=2)
    partitions = [TopicPartition(topic, number) for number in range(2)]
    group_id = f"held-{topic}"
    group = ConsumerGroupMetadata(group_id)
    settings = {"bootstrap.servers": either, "transactional.id": topic, "retry.backoff.ms": 20}
    cluster = Cluster(either)

    async with Producer(settings) as producer:
        # A connection that is opened now goes by the relay, and later ones directly.
        connections = producer._cluster._connections
        direct = connections._connect

        async def by_the_relay(host: str, port: int, **given: Any) -> Connection:
            connections._connect = direct
            relayed_host, _, relayed_port = relay.address.rpartition(":")
            return await direct(relayed_host, int(relayed_port), **given)

        connection = connections._slots[_address(either)][PURPOSE].connection
        assert connection is not None
        await connection.close()
        connections._connect = by_the_relay

        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({partitions[0]: OffsetAndMetadata(1)}, group)
        relay.hold_up()
        sending = asyncio.create_task(
            producer.send_offsets_to_transaction(
                dict.fromkeys(partitions, OffsetAndMetadata(10)), group
            )
        )
        await until_equal(lambda: _value(relay.held_bytes > 0), True)
        relay.lose_clients()
        await sending
        await (producer.commit_transaction if commits else producer.abort_transaction)()

        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({partitions[0]: OffsetAndMetadata(12)}, group)
        sent = relay.held_bytes
        relay.let_go()
        await until_equal(lambda: _value(not relay.to_clients and bool(sent)), True)
        await producer.commit_transaction()

        # Another one shows that nothing is left undecided.
        async with producer.transaction():
            await producer.send_offsets_to_transaction(
                {partitions[0]: OffsetAndMetadata(13)}, group
            )

    committed = [await _committed(cluster, group_id, partition) for partition in partitions]
    assert committed == [13, 10 if commits else -1]
    await cluster.close()
    await relay.end()


async def _value(value: bool) -> bool:
    return value


def _address(bootstrap: str) -> tuple[str, int]:
    host, _, port = bootstrap.rpartition(":")
    return host, int(port)


async def _committed(cluster: Cluster, group_id: str, partition: TopicPartition) -> int:
    request = fetch_offsets_request(group_id, [partition], require_stable=True)
    found: list[int] = []

    async def is_decided() -> bool:
        results = fetch_results(await cluster.call_coordinator(group_id, request))
        found[:] = [results[partition].offset]
        return results[partition].error is ErrorCode.NONE

    await until_equal(is_decided, True)
    return found[0]
