"""Producer ids: each is given out once, whatever happens to brokers, writes and sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Any

import attrs
import pytest

from broker.cluster.producer_ids import (
    LAST_PRODUCER_ID,
    ProducerIds,
    ProducerIdsExhausted,
    block_after,
)
from broker.handlers import init_producer_id
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from groups.runtime.memory_partition_log import MemoryPartitionLog
from groups.transactions.config import TransactionsConfig
from groups.transactions.coordinator import TransactionCoordinator
from protocol.errors import ApiError, ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.broker.spawning import Spawned
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import STARTUP_PATHS, ProducerIdBlock, ZnodeError

CONTEXT = RequestContext(1, "client", "PLAINTEXT", "127.0.0.1:1", 0)


@attrs.define(eq=False)
class Ids:
    """The ids of one broker on a ZooKeeper that it may share."""

    zookeeper: MemoryZooKeeper = attrs.field(factory=MemoryZooKeeper)
    broker_id: int = 0
    spawned: Spawned = attrs.field(factory=Spawned)
    touched: list[Hashable] = attrs.field(factory=list)
    session: MemorySession = attrs.field(init=False)
    ids: ProducerIds = attrs.field(init=False)

    async def start(self) -> Ids:
        self.session = self.zookeeper.session()
        await self.session.start()
        for path in STARTUP_PATHS:
            await self.session.ensure_path(path)
        self.ids = ProducerIds(self.session, self.broker_id, self.spawned, self.touched.append)
        return self

    async def take(self, count: int = 1) -> list[int]:
        """Return so many ids; wait for blocks where necessary."""
        taken: list[int] = []
        while len(taken) < count:
            found = self.ids.take()
            if found is None:
                await self.spawned.ended()
            else:
                taken.append(found)
        return taken

    async def stored(self) -> bytes | None:
        return (await self.session.get(ProducerIdBlock.path()))[0]


def test_the_first_block_begins_with_0_and_is_written_as_kafka_does() -> None:
    async def scenario() -> None:
        world = await Ids(broker_id=3).start()
        assert await world.take(2) == [0, 1]
        assert await world.stored() == (
            b'{"version":1,"broker":3,"block_start":"0","block_end":"999"}'
        )

    asyncio.run(scenario())


def test_blocks_follow_one_another_and_the_next_is_fetched_ahead_of_need() -> None:
    async def scenario() -> None:
        world = await Ids().start()
        assert await world.take(500) == list(range(500))
        assert len(world.touched) == 1
        await world.take(1)
        await world.spawned.ended()
        assert len(world.touched) == 2
        assert [world.ids.take() for _ in range(1400)] == list(range(501, 1901))

    asyncio.run(scenario())


def test_ids_that_are_prepared_are_at_hand_and_none_of_them_is_lost() -> None:
    async def scenario() -> None:
        world = await Ids().start()
        for _ in range(50):
            world.ids.prepare()
        await world.spawned.ended()
        world.ids.prepare()
        assert world.ids.take() == 0
        assert len(world.touched) == 1

    asyncio.run(scenario())


def test_brokers_never_give_the_same_id() -> None:
    async def scenario() -> None:
        zookeeper = MemoryZooKeeper()
        one, two = await Ids(zookeeper, 1).start(), await Ids(zookeeper, 2).start()
        assert one.ids.take() is two.ids.take() is None  # both ask at the same time
        await asyncio.gather(one.spawned.ended(), two.spawned.ended())
        taken = await one.take(1500) + await two.take(1500)
        assert len(set(taken)) == 3000

    asyncio.run(scenario())


def test_a_broker_that_starts_again_gives_other_ids() -> None:
    async def scenario() -> None:
        zookeeper = MemoryZooKeeper()
        await (await Ids(zookeeper).start()).take()
        assert await (await Ids(zookeeper).start()).take() == [1000]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("latest", "error"),
    [
        (ProducerIdBlock(0, 0, LAST_PRODUCER_ID - 999).encode(), ProducerIdsExhausted),
        (b"nonsense", ZnodeError),
    ],
)
def test_where_no_block_can_follow_none_is_made_up(latest: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        block_after(latest, 0)


def test_the_last_block_ends_with_the_largest_id() -> None:
    latest = ProducerIdBlock(0, 0, LAST_PRODUCER_ID - 1000).encode()
    assert block_after(latest, 0).last == LAST_PRODUCER_ID


def test_an_unreadable_node_is_asked_once_for_each_try() -> None:
    async def scenario() -> None:
        world = await Ids().start()
        await world.session.set(ProducerIdBlock.path(), b"nonsense")
        assert world.ids.take() is None
        await world.spawned.ended()
        assert world.touched == []  # who waits is not told to ask at once again

    asyncio.run(scenario())


def test_in_a_closed_session_nobody_who_waits_is_woken_to_ask_again() -> None:
    async def scenario() -> None:
        world = await Ids().start()
        await world.session.close()
        assert world.ids.take() is None
        await world.spawned.ended()
        assert world.touched == []

    asyncio.run(scenario())


# ---- the handler


def init(world: Ids, request: InitProducerIdRequest) -> Any:
    """Ask a broker that coordinates no transactions."""
    transactions = TransactionCoordinator(
        MemoryPartitionLog(),
        TransactionsConfig(),
        num_partitions=lambda: 0,
        take_producer_id=world.ids.take,
        now_ms=lambda: 0,
        spawn=world.spawned,
    )
    return init_producer_id.handle(world.ids, transactions, 1000, request, CONTEXT)


def test_a_producer_waits_for_the_block_and_no_other_one_does() -> None:
    async def scenario() -> None:
        world = await Ids().start()
        wait = init(world, InitProducerIdRequest())
        assert isinstance(wait, Wait)
        assert wait.keys == (world.ids,)
        await world.spawned.ended()
        assert world.touched == [world.ids]
        first = wait.try_complete(False)
        assert first == InitProducerIdResponse(producer_id=0, producer_epoch=0)
        second = init(world, InitProducerIdRequest())
        assert second == InitProducerIdResponse(producer_id=1, producer_epoch=0)

    asyncio.run(scenario())


def test_a_producer_that_resumes_gets_another_id_and_half_of_one_is_refused() -> None:
    async def scenario() -> None:
        world = await Ids().start()
        (taken,) = await world.take(1)
        resuming = InitProducerIdRequest(producer_id=taken, producer_epoch=3)
        given = init(world, resuming)
        assert given == InitProducerIdResponse(producer_id=taken + 1, producer_epoch=0)
        for half in (
            InitProducerIdRequest(producer_id=taken),
            InitProducerIdRequest(producer_epoch=3),
        ):
            with pytest.raises(ApiError) as refused:
                init(world, half)
            assert refused.value.code == ErrorCode.INVALID_REQUEST

    asyncio.run(scenario())


def test_without_zookeeper_a_producer_gets_a_retriable_error() -> None:
    async def scenario() -> None:
        world = await Ids().start()
        wait = init(world, InitProducerIdRequest())
        assert isinstance(wait, Wait)
        answer = wait.try_complete(True)
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert answer.producer_id == -1
        await world.spawned.ended()

    asyncio.run(scenario())


def test_a_transactional_producer_is_sent_to_its_coordinator() -> None:
    async def scenario() -> None:
        world = await Ids().start()
        asked = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000)
        with pytest.raises(ApiError) as refused:
            init(world, asked)
        assert refused.value.code == ErrorCode.NOT_COORDINATOR

    asyncio.run(scenario())


def test_a_node_that_is_gone_is_not_made_again_and_ids_come_when_it_is_restored() -> None:
    """A new node would start at 0, and ids would be given out twice."""

    async def scenario() -> None:
        world = await Ids().start()
        assert await world.take() == [0]
        other = await Ids(world.zookeeper, broker_id=1).start()
        content = await world.stored()
        await world.session.delete(ProducerIdBlock.path())
        assert other.ids.take() is None
        await other.spawned.ended()
        assert other.ids.take() is None
        assert await world.session.exists(ProducerIdBlock.path()) is None
        await other.spawned.ended()
        await world.session.create(ProducerIdBlock.path(), content)
        assert await other.take() == [1000]

    asyncio.run(scenario())
