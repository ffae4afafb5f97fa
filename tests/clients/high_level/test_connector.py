"""The high-level consumer end to end: a real broker and a real ZooKeeper."""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence, Set
from typing import Any

import pytest

from clients import blocking
from clients.errors import ConsumerTimeout, MessageStreamsExist, OffsetOutOfRange
from clients.high_level.connector import ConsumerConnector
from clients.high_level.streams import MessageAndMetadata, MessageStream
from clients.producer.producer import Producer
from clients.serializers import str_decoder
from groups.zookeeper.filters import Whitelist
from groups.zookeeper.member import (
    ConsumerIdInUse,
    ConsumerRebalanceFailed,
    MalformedMember,
    StrategyConflict,
)
from offsets.store import CommitFailed
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.cluster import DevCluster
from tests.stage.waiting import DEADLINE_S, until, until_equal
from zk.session import KazooSession
from zk.znodes import ConsumerOffset, ConsumerRegistration, PartitionOwner

SILENCE_MS = 700
PATIENT = 50
"""Attempts to rebalance, for members on a busy machine."""


class TopicStage:
    """A topic of its own, and consumers of a group with the topic's name."""

    def __init__(self, cluster: DevCluster, name: str, partitions: int = 2) -> None:
        self.cluster = cluster
        self.name = name
        self.partitions = partitions
        result = cluster.run(
            *("kbroker", "topics", "create", name),
            *("--partitions", str(partitions), "--replication-factor", "1"),
        )
        assert result.returncode == 0, result.stderr

    async def produce(self, count: int, topic: str | None = None, **settings: str) -> list[str]:
        """Send messages v0, v1, ..., one partition after the other."""
        settings = {"bootstrap.servers": self.cluster.address("bootstrap"), **settings}
        values = [f"v{i}" for i in range(count)]
        async with Producer(settings) as producer:
            sent = [
                await producer.send(topic or self.name, v.encode(), partition=i % self.partitions)
                for i, v in enumerate(values)
            ]
            await asyncio.gather(*sent)
        return values

    def connector(self, **settings: Any) -> ConsumerConnector:
        return ConsumerConnector(
            {
                "zookeeper.connect": self.cluster.address("zookeeper"),
                "group.id": self.name,
                "auto_offset_reset": "smallest",
                "consumer_timeout_ms": SILENCE_MS,
                "rebalance_backoff_ms": 200,
                "rebalance_max_retries": PATIENT,
                "auto_commit_interval_ms": 600_000,
                **settings,
            }
        )

    async def zookeeper(self) -> KazooSession:
        session = KazooSession(self.cluster.address("zookeeper"))
        await session.start()
        return session

    async def owners(self) -> dict[int, str]:
        session = await self.zookeeper()
        paths = [PartitionOwner.path(self.name, self.name, p) for p in range(self.partitions)]
        owners = {
            p: ((await session.get(path))[0] or b"").decode()
            for p, path in enumerate(paths)
            if await session.exists(path)
        }
        await session.close()
        return owners

    async def committed(self) -> dict[int, int]:
        session = await self.zookeeper()
        paths = [ConsumerOffset.path(self.name, self.name, p) for p in range(self.partitions)]
        offsets = {
            p: ConsumerOffset.decode((await session.get(path))[0]).offset
            for p, path in enumerate(paths)
            if await session.exists(path)
        }
        await session.close()
        return offsets


async def drain(*streams: MessageStream, count: int) -> list[MessageAndMetadata]:
    """Take so many messages, and more until each stream has been silent."""
    messages: list[MessageAndMetadata] = []
    ends = time.monotonic() + DEADLINE_S

    async def drain_stream(stream: MessageStream) -> None:
        with contextlib.suppress(ConsumerTimeout):
            async for message in stream:
                messages.append(message)

    while True:
        await asyncio.gather(*map(drain_stream, streams))
        if len(messages) >= count:
            return messages
        assert time.monotonic() < ends, f"{len(messages)} of {count} messages came"


def values(messages: Sequence[MessageAndMetadata]) -> list[str]:
    return sorted(message.value for message in messages)


async def open_streams(
    connector: ConsumerConnector, counts: Mapping[str, int]
) -> dict[str, list[MessageStream]]:
    return await connector.create_message_streams(counts, str_decoder, str_decoder)


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


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_messages_come_out_one_by_one(dev_cluster: DevCluster, codec: str) -> None:
    stage = TopicStage(dev_cluster, f"compressed-{codec}")

    async def scene() -> None:
        settings = {"compression.type": codec, "linger.ms": "50"}
        sent = await stage.produce(400, **settings)
        async with stage.connector() as connector:
            (stream,) = (await open_streams(connector, {stage.name: 1}))[stage.name]
            await connector.commit_offsets({TopicPartition(stage.name, 0): OffsetAndMetadata(57)})
            assert values(await drain(stream, count=len(sent))) == sorted(sent)

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("reset", "stored", "expected"),
    [
        ("smallest", 10_000, 10),
        ("smallest", -1, 10),
        ("largest", 10_000, 0),
        ("largest", -1, 0),
        ("largest", 4, 6),
    ],
)
def test_an_offset_out_of_range_is_reset(
    dev_cluster: DevCluster, reset: str, stored: int, expected: int
) -> None:
    stage = TopicStage(dev_cluster, f"reset-{reset}{stored}", partitions=1)

    async def scene() -> None:
        await stage.produce(10)
        session = await stage.zookeeper()
        path = ConsumerOffset.path(stage.name, stage.name, 0)
        await session.create(path, b"%d" % stored, make_parents=True)
        await session.close()
        async with stage.connector(auto_offset_reset=reset) as connector:
            (stream,) = (await open_streams(connector, {stage.name: 1}))[stage.name]
            assert len(await drain(stream, count=expected)) == expected

            async def committed() -> dict[int, int]:
                await connector.commit_offsets()
                return await stage.committed()

            await until_equal(committed, {0: 10})
        assert await stage.committed() == {0: 10}

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


def test_a_topic_that_is_deleted_while_it_is_consumed_leaves_the_others_alone(
    dev_cluster: DevCluster,
) -> None:
    doomed, kept = TopicStage(dev_cluster, "doomed"), TopicStage(dev_cluster, "kept")

    async def scene() -> None:
        await doomed.produce(10)
        async with kept.connector(auto_commit_interval_ms=100) as connector:
            streams = await open_streams(connector, {"doomed": 1, "kept": 1})
            assert len(await drain(streams["doomed"][0], count=10)) == 10
            zookeeper = await doomed.zookeeper()
            offsets = ConsumerOffset.path("kept", "doomed", 0)
            while not await zookeeper.exists(offsets):
                await asyncio.sleep(0.02)
            gone = await asyncio.to_thread(
                doomed.cluster.run, "kbroker", "topics", "delete", "doomed"
            )
            assert gone.returncode == 0, gone.stderr
            await until(
                lambda: "doomed" not in connector.metrics.owned_partitions_count_by_topic,
                "the topic is given up",
            )
            while await zookeeper.exists(PartitionOwner.path("kept", "doomed", 0)):
                await asyncio.sleep(0.02)
            await zookeeper.close()
            sent = await kept.produce(10)
            assert values(await drain(streams["kept"][0], count=10)) == sorted(sent)
            assert connector.metrics.rebalance_error is None

    asyncio.run(asyncio.wait_for(scene(), DEADLINE_S))


def test_an_offset_that_is_no_number_is_named_and_holds_up_its_partition_alone(
    dev_cluster: DevCluster,
) -> None:
    stage = TopicStage(dev_cluster, "nonsense")

    async def scene() -> None:
        await stage.produce(10)
        path = ConsumerOffset.path("nonsense", "nonsense", 0)
        session = await stage.zookeeper()
        await session.create(path, b"forty-two", make_parents=True)
        async with stage.connector(rebalance_max_retries=4) as connector:
            with pytest.raises(ConsumerRebalanceFailed, match=f"{path}: b'forty-two' is not a dec"):
                await open_streams(connector, {"nonsense": 1})
            assert path in (connector.metrics.rebalance_error or "")
            other = TopicPartition("nonsense", 1)
            await until(
                lambda: connector.metrics.consumer_lag.keys() == {other}, "the other topic alone"
            )
            await session.set(path, b"3")
            await until(
                lambda: connector.metrics.rebalance_error is None, "a rebalance without error"
            )
            assert connector.metrics.owned_partitions_count == 2
        await session.close()

    asyncio.run(scene())


def test_a_filter_takes_topics_that_come_later(dev_cluster: DevCluster) -> None:
    stage = TopicStage(dev_cluster, "wild-one")

    async def scene() -> None:
        first = await stage.produce(10)
        async with stage.connector() as connector:
            streams = await connector.create_message_streams_by_filter(
                Whitelist("wild-.*"), 2, str_decoder, str_decoder
            )
            assert values(await drain(*streams, count=10)) == sorted(first)
            later = await asyncio.to_thread(TopicStage, dev_cluster, "wild-two", 3)
            second = await later.produce(10)
            messages = await drain(*streams, count=10)
            assert values(messages) == sorted(second)
            assert {message.topic for message in messages} == {"wild-two"}

    asyncio.run(scene())


def test_a_commit_by_the_clock_needs_no_call(dev_cluster: DevCluster) -> None:
    stage = TopicStage(dev_cluster, "clock", partitions=1)

    async def scene() -> None:
        await stage.produce(10)
        async with stage.connector(auto_commit_interval_ms=100) as connector:
            (stream,) = (await open_streams(connector, {"clock": 1}))["clock"]
            await drain(stream, count=10)
            await until_equal(stage.committed, {0: 10})

    asyncio.run(scene())


def test_without_auto_commit_nothing_is_committed_even_at_the_end(dev_cluster: DevCluster) -> None:
    stage = TopicStage(dev_cluster, "manual")

    async def scene() -> None:
        await stage.produce(10)
        async with stage.connector(auto_commit_enable=False) as connector:
            (stream,) = (await open_streams(connector, {"manual": 1}))["manual"]
            assert len(await drain(stream, count=10)) == 10
        assert await stage.committed() == {}

    asyncio.run(scene())


def test_positions_of_partitions_that_stay_survive_a_rebalance_without_any_commit(
    dev_cluster: DevCluster,
) -> None:
    stage = TopicStage(dev_cluster, "retained")

    async def scene() -> None:
        await stage.produce(10)
        async with stage.connector(auto_commit_enable=False, consumer_id="a") as first:
            (stream,) = (await open_streams(first, {"retained": 1}))["retained"]
            assert len(await drain(stream, count=10)) == 10
            async with stage.connector(auto_commit_enable=False, consumer_id="b") as second:
                (other,) = (await open_streams(second, {"retained": 1}))["retained"]
                assert {m.partition for m in await drain(other, count=5)} == {1}
                assert await drain(stream, count=0) == []

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


def test_shutdown_ends_streams_that_are_waited_for_and_may_be_repeated(
    dev_cluster: DevCluster,
) -> None:
    stage = TopicStage(dev_cluster, "ended")

    async def scene() -> None:
        connector = stage.connector(consumer_timeout_ms=-1)
        streams = (await open_streams(connector, {"ended": 3}))["ended"]  # one without a partition
        reading = asyncio.ensure_future(drain(*streams, count=0))
        await asyncio.sleep(0.1)
        await asyncio.gather(connector.shutdown(), connector.shutdown())
        assert await asyncio.wait_for(reading, DEADLINE_S) == []
        assert await stage.owners() == {}

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


def test_without_a_reset_a_group_with_no_offset_is_told_so_by_its_stream(
    dev_cluster: DevCluster,
) -> None:
    stage = TopicStage(dev_cluster, "no-reset", partitions=1)

    async def scene() -> None:
        await stage.produce(10)
        async with stage.connector(auto_offset_reset="none") as connector:
            (stream,) = (await open_streams(connector, {"no-reset": 1}))["no-reset"]
            for _ in range(2):
                with pytest.raises(OffsetOutOfRange, match="no offset is committed"):
                    await anext(stream)
            assert await stage.committed() == {}

    asyncio.run(scene())


def test_what_another_member_owns_cannot_be_committed(dev_cluster: DevCluster) -> None:
    stage = TopicStage(dev_cluster, "not-ours")

    async def scene() -> None:
        async with stage.connector(consumer_id="a") as first:
            await open_streams(first, {"not-ours": 1})
            async with stage.connector(consumer_id="b") as second:
                await open_streams(second, {"not-ours": 1})
                await until(lambda: first.metrics.owned_partitions_count == 1, "the first owns one")
                both = {TopicPartition("not-ours", p): OffsetAndMetadata(7) for p in (0, 1)}
                with pytest.raises(CommitFailed, match="not-ours_b does not own them") as failure:
                    await second.commit_offsets(both)
                assert failure.value.errors.keys() == {TopicPartition("not-ours", 0)}
                assert await stage.committed() == {1: 7}

    asyncio.run(scene())


def test_a_consumer_says_in_numbers_what_it_does(dev_cluster: DevCluster) -> None:
    stage = TopicStage(dev_cluster, "counted")

    async def scene() -> None:
        await stage.produce(20)
        async with stage.connector(consumer_id="a", num_consumer_fetchers=2) as connector:
            (stream,) = (await open_streams(connector, {"counted": 1}))["counted"]
            await drain(stream, count=20)
            await connector.commit_offsets()
            metrics = connector.metrics

        assert metrics.owned_partitions_count_by_topic == {"counted": 2}
        assert metrics.zookeeper_commits_per_sec.count == 2
        assert metrics.kafka_commits_per_sec.count == 0
        assert metrics.rebalance_rate_and_time.count == 1
        assert metrics.rebalance_error is None
        assert metrics.messages_per_sec["counted"].count == 20
        assert metrics.consumer_lag == {TopicPartition("counted", p): 0 for p in (0, 1)}
        assert metrics.fetch_queue_size == {("counted", "counted_a-0"): 0}
        assert sum(rate.count for rate in metrics.requests_per_sec.values()) >= 2

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


def test_brokers_may_be_named_instead_of_looked_up(dev_cluster: DevCluster) -> None:
    stage = TopicStage(dev_cluster, "named-brokers")

    async def scene() -> None:
        sent = await stage.produce(10)
        bootstrap = dev_cluster.address("bootstrap")
        async with stage.connector(bootstrap_servers=bootstrap) as connector:
            (stream,) = (await open_streams(connector, {stage.name: 1}))[stage.name]
            assert values(await drain(stream, count=len(sent))) == sorted(sent)

    asyncio.run(scene())


def test_less_than_one_stream_is_refused(dev_cluster: DevCluster) -> None:
    async def scene() -> None:
        connector = ConsumerConnector({"group.id": "g", "zookeeper.connect": "localhost:1"})
        with pytest.raises(ValueError, match="'t': 0 streams"):
            await open_streams(connector, {"t": 0})

    asyncio.run(scene())


def test_the_blocking_twin_iterates_and_commits(dev_cluster: DevCluster) -> None:
    stage = TopicStage(dev_cluster, "blocking")
    sent = asyncio.run(stage.produce(10))
    settings = {
        "zookeeper.connect": dev_cluster.address("zookeeper"),
        "group.id": "blocking",
        "auto.offset.reset": "smallest",
        "consumer.timeout.ms": SILENCE_MS,
    }

    with blocking.ConsumerConnector(settings) as connector:
        (stream,) = connector.create_message_streams({"blocking": 1})["blocking"]
        seen: list[str] = []
        ends = time.monotonic() + DEADLINE_S
        while len(seen) < len(sent) and time.monotonic() < ends:
            with contextlib.suppress(ConsumerTimeout):
                for message in stream:
                    seen.append(message.value.decode())
        connector.commit_offsets()
        assert sorted(seen) == sorted(sent)
        assert connector.metrics.owned_partitions_count == 2
        assert asyncio.run(stage.committed()) == {0: 5, 1: 5}
