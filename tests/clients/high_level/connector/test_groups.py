"""Members of a group on a real broker and ZooKeeper: who shares, who is refused."""

import asyncio
from collections.abc import Mapping, Set

import pytest

from clients.errors import ConsumerTimeout, MessageStreamsExist
from groups.zookeeper.membership_errors import ConsumerIdInUse, MalformedMember, StrategyConflict
from protocol.topic_partition import TopicPartition
from tests.clients.high_level.connector.topic_stage import TopicStage, drain, open_streams, values
from tests.stage.cluster import DevCluster
from tests.stage.waiting import until, until_equal
from zk.znodes import ConsumerRegistration


def test_members_come_and_share_and_nothing_is_lost_or_read_twice(dev_cluster: DevCluster) -> None:
    stage = TopicStage(dev_cluster, "basic")

    async def scene() -> None:
        async with stage.connector(consumer_id="consumer1") as first:
            (stream,) = (await open_streams(first, {"basic": 1}))["basic"]
            for _ in range(2):
                with pytest.raises(ConsumerTimeout):
                    await anext(stream)
            assert await stage.owners() == dict.fromkeys([0, 1], "basic_consumer1-0")
            sent = await stage.produce(20)
            assert values(await drain(stream, count=len(sent))) == sorted(sent)
            await first.commit_offsets()
            assert await stage.committed() == {0: 10, 1: 10}

            async with stage.connector(consumer_id="consumer2") as second:
                (other,) = (await open_streams(second, {"basic": 1}))["basic"]
                shared = {0: "basic_consumer1-0", 1: "basic_consumer2-0"}
                await until_equal(stage.owners, shared)
                sent = await stage.produce(20)
                assert values(await drain(stream, other, count=20)) == sorted(sent)
                await second.commit_offsets()

                async with stage.connector(consumer_id="consumer3") as third:
                    assert await open_streams(third, {}) == {}
                    sent = await stage.produce(20)
                    assert values(await drain(stream, other, count=20)) == sorted(sent)
                with pytest.raises(MessageStreamsExist):
                    await open_streams(first, {"basic": 1})

    asyncio.run(scene())


@pytest.mark.parametrize("storage", ["zookeeper", "kafka", "both"])
def test_who_comes_next_goes_on_where_the_last_one_stopped(
    dev_cluster: DevCluster, storage: str
) -> None:
    stage = TopicStage(dev_cluster, f"resume-{storage}")
    settings = {
        "offsets_storage": "zookeeper" if storage == "zookeeper" else "kafka",
        "dual_commit_enabled": storage == "both",
    }

    async def scene() -> None:
        sent = await stage.produce(30)
        async with stage.connector(**settings) as connector:
            (stream,) = (await open_streams(connector, {stage.name: 1}))[stage.name]
            seen = [(await anext(stream)).value for _ in range(12)]
        async with stage.connector(**settings) as connector:
            (stream,) = (await open_streams(connector, {stage.name: 1}))[stage.name]
            rest = [message.value for message in await drain(stream, count=30 - 11)]
        assert set(seen) | set(rest) == set(sent)
        # the last one handed out was not done with when the connector shut down
        assert set(seen) & set(rest) == {seen[-1]}
        assert (await stage.committed() == {0: 15, 1: 15}) == (storage != "kafka")

    asyncio.run(scene())


def test_a_listener_is_told_of_what_is_owned_and_of_the_whole_assignment(
    dev_cluster: DevCluster,
) -> None:
    stage = TopicStage(dev_cluster, "listened")

    class Listener:
        def __init__(self) -> None:
            self.owned: list[Mapping[str, Set[int]]] = []
            self.assignments: list[Mapping[TopicPartition, str]] = []

        def before_releasing_partitions(self, partition_ownership: Mapping[str, Set[int]]) -> None:
            self.owned.append(partition_ownership)

        async def before_starting_fetchers(
            self, consumer_id: str, global_partition_assignment: Mapping[TopicPartition, str]
        ) -> None:
            self.assignments.append(global_partition_assignment)

    async def scene() -> None:
        first_listener, second_listener = Listener(), Listener()
        async with stage.connector(consumer_id="c1") as first:
            first.set_consumer_rebalance_listener(first_listener)
            await open_streams(first, {"listened": 1})
            assert first_listener.owned == [{}]
            async with stage.connector(consumer_id="c2") as second:
                second.set_consumer_rebalance_listener(second_listener)
                await open_streams(second, {"listened": 1})
                await until(lambda: len(first_listener.assignments) == 2, "a second assignment")
                assert first_listener.owned == [{}, {"listened": {0, 1}}]
                assert first_listener.assignments[-1] == second_listener.assignments[-1]
                assert set(second_listener.assignments[-1].values()) == {
                    "listened_c1-0",
                    "listened_c2-0",
                }
                with pytest.raises(MessageStreamsExist):
                    second.set_consumer_rebalance_listener(second_listener)

    asyncio.run(scene())


def test_a_listener_that_raises_spoils_no_rebalance(
    dev_cluster: DevCluster, caplog: pytest.LogCaptureFixture
) -> None:
    stage = TopicStage(dev_cluster, "out-of-sorts")

    class Listener:
        def before_releasing_partitions(self, partition_ownership: Mapping[str, Set[int]]) -> None:
            raise RuntimeError("before releasing")

        async def before_starting_fetchers(
            self, consumer_id: str, global_partition_assignment: Mapping[TopicPartition, str]
        ) -> None:
            raise RuntimeError("before starting")

    async def scene() -> None:
        sent = await stage.produce(10)
        async with stage.connector() as connector:
            connector.set_consumer_rebalance_listener(Listener())
            (stream,) = (await open_streams(connector, {stage.name: 1}))[stage.name]
            assert values(await drain(stream, count=len(sent))) == sorted(sent)

    asyncio.run(scene())
    assert "RuntimeError: before releasing" in caplog.text
    assert "RuntimeError: before starting" in caplog.text


def test_members_whose_ids_differ_in_case_alone_are_two(dev_cluster: DevCluster) -> None:
    stage = TopicStage(dev_cluster, "cases")

    async def scene() -> None:
        async with (
            stage.connector(consumer_id="aa") as first,
            stage.connector(consumer_id="Aa") as second,
        ):
            await open_streams(first, {"cases": 1})
            await open_streams(second, {"cases": 1})
            await until_equal(stage.owners, {0: "cases_Aa-0", 1: "cases_aa-0"})

    asyncio.run(scene())


def test_a_stream_nobody_reads_does_not_hold_up_a_rebalance(dev_cluster: DevCluster) -> None:
    stage = TopicStage(dev_cluster, "unread")

    async def scene() -> None:
        await stage.produce(2000)
        async with stage.connector(consumer_id="a") as first:
            await open_streams(first, {"unread": 2})
            await asyncio.sleep(0.5)
            async with stage.connector(consumer_id="0") as second:
                (stream,) = (await open_streams(second, {"unread": 1}))["unread"]
                assert len(await drain(stream, count=1000)) == 1000

    asyncio.run(scene())


def test_a_consumer_id_in_use_is_a_clear_error(dev_cluster: DevCluster) -> None:
    stage = TopicStage(dev_cluster, "twin")

    async def scene() -> None:
        brief = {"zookeeper_session_timeout_ms": 2000}  # it tries for half as long again
        async with stage.connector(consumer_id="same") as first:
            await open_streams(first, {"twin": 1})
            async with stage.connector(consumer_id="same", **brief) as second:
                with pytest.raises(ConsumerIdInUse, match="twin_same"):
                    await open_streams(second, {"twin": 1})
            assert len(await stage.owners()) == 2

    asyncio.run(scene())


def test_a_malformed_neighbour_is_named_to_who_joins(dev_cluster: DevCluster) -> None:
    stage = TopicStage(dev_cluster, "neighbour")

    async def scene() -> None:
        session = await stage.zookeeper()
        path = ConsumerRegistration.path("neighbour", "broken")
        await session.create(path, b'{"version":1}', make_parents=True)
        async with stage.connector() as connector:
            with pytest.raises(MalformedMember, match=f"remove that node|{path}"):
                await open_streams(connector, {"neighbour": 1})
            assert path in (connector.metrics.rebalance_error or "")
            await session.delete(path)
            await until(lambda: connector.metrics.owned_partitions_count == 2, "it owns both")
            assert connector.metrics.rebalance_error is None
        await session.close()

    asyncio.run(scene())


def test_clustered_members_consume_together_and_send_away_who_is_not(
    dev_cluster: DevCluster,
) -> None:
    stage = TopicStage(dev_cluster, "clustered")
    strategy = {"partition_assignment_strategy": "clustered"}

    async def scene() -> None:
        sent = await stage.produce(20)
        async with stage.connector(**strategy) as first, stage.connector(**strategy) as second:
            (first_stream,) = (await open_streams(first, {"clustered": 1}))["clustered"]
            (second_stream,) = (await open_streams(second, {"clustered": 1}))["clustered"]
            assert values(await drain(first_stream, second_stream, count=20)) == sorted(sent)
            async with stage.connector() as stranger:
                with pytest.raises(StrategyConflict, match="strategy=clustered, we have range"):
                    await open_streams(stranger, {"clustered": 1})

    asyncio.run(scene())
