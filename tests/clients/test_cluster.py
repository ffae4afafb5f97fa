"""Metadata, connections and coordinators against scripted brokers."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import attrs
import pytest

from clients.cluster import Cluster
from clients.cluster_view import MOST_OLDER
from clients.config import ClusterConfig
from clients.doubts import DOUBT_S, FORGET_S, LONGEST_PAUSE_S, SETTLED_S
from clients.errors import ConnectionFailed, DeadlineExceeded, NoBrokersAvailable
from clients.transport.connection import Connection
from clients.transport.connections import Connect
from protocol.api_key import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from protocol.topic_partition import TopicPartition
from tests.clients.scripted_broker import HANG_UP, ScriptedBroker
from tests.stage.clock import ImpatientLoop, run_in_own_time

P0 = TopicPartition("t", 0)


def cluster_of(
    broker: ScriptedBroker, *more: str, connect: Connect = Connection.open, **settings: Any
) -> Cluster:
    servers = (broker.bootstrap, *more)
    settings = {"retry_backoff_ms": 1, "reconnect_backoff_ms": 1, **settings}
    config = ClusterConfig(bootstrap_servers=servers, **settings)
    return Cluster(servers, config=config, connect=connect)


def test_leader_is_waited_for_while_there_is_none() -> None:
    async def scenario() -> tuple[int, int]:
        async with ScriptedBroker({"t": 1}, node_id=5) as broker:
            broker.leaders[P0] = -1

            def elected_on_third_question(request: Any) -> Any:
                if len(broker.asked(ApiKey.METADATA)) == 3:
                    broker.leaders.clear()
                return broker.metadata(request)

            broker.answers[ApiKey.METADATA] = elected_on_third_question
            cluster = cluster_of(broker)
            leader = await cluster.leader(P0)
            await cluster.close()
            return leader.node_id, len(broker.asked(ApiKey.METADATA))

    assert run_in_own_time(scenario()) == (5, 3)


@pytest.mark.fault("broker-8")
def test_a_protocol_before_a_host_does_not_count_and_the_log_says_so_of_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> int:
        async with ScriptedBroker({"t": 1}, node_id=5) as broker:
            servers = [f"{name}://{broker.bootstrap}" for name in ("PLAINTEXT", "INTERNAL", "SSL")]
            cluster = Cluster(servers)
            leader = await cluster.leader(P0)
            await cluster.close()
            return leader.node_id

    assert run_in_own_time(scenario()) == 5
    (said,) = (message for message in caplog.messages if message.startswith("bootstrap.servers"))
    assert "SSL://" in said
    assert said.endswith("as security.protocol says: PLAINTEXT")


def test_leader_that_never_comes_ends_in_deadline_exceeded() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            broker.leaders[P0] = -1
            cluster = cluster_of(broker)
            with pytest.raises(DeadlineExceeded, match="leader of t-0"):
                await cluster.leader(P0, timeout_ms=30)
            await cluster.close()

    run_in_own_time(scenario())


def test_topic_that_cannot_be_is_not_asked_for_again() -> None:
    async def scenario() -> tuple[ErrorCode, int]:
        async with ScriptedBroker() as broker:
            code = ErrorCode.INVALID_TOPIC_EXCEPTION

            def invalid(request: Any) -> MetadataResponse:
                whole: MetadataResponse = broker.metadata(request)
                topic = MetadataResponseTopic(error_code=code, name="a b", partitions=[])
                return MetadataResponse(brokers=whole.brokers, topics=[topic])

            broker.answers[ApiKey.METADATA] = invalid
            cluster = cluster_of(broker)
            with pytest.raises(ApiError) as refused:
                await cluster.partitions("a b")
            await cluster.close()
            return refused.value.code, len(broker.asked(ApiKey.METADATA))

    assert run_in_own_time(scenario()) == (ErrorCode.INVALID_TOPIC_EXCEPTION, 1)


def test_callers_who_ask_at_once_share_one_refresh() -> None:
    async def scenario() -> int:
        async with ScriptedBroker({"t": 1}) as broker:
            cluster = cluster_of(broker)
            await asyncio.gather(*(cluster.refresh(["t"]) for _ in range(10)))
            await cluster.close()
            return len(broker.asked(ApiKey.METADATA))

    assert run_in_own_time(scenario()) == 1


def test_refresh_for_another_topic_is_not_satisfied_by_the_one_under_way() -> None:
    async def scenario() -> set[str]:
        async with ScriptedBroker({"t": 1, "u": 1}) as broker:
            cluster = cluster_of(broker)
            first = asyncio.create_task(cluster.refresh(["t"]))
            await broker.received(ApiKey.METADATA)
            await cluster.refresh(["u"])
            await first
            await cluster.close()
            return set(cluster.view.topics)

    assert run_in_own_time(scenario()) == {"t", "u"}


def named(broker: ScriptedBroker) -> list[list[str]]:
    """The topics that each request for metadata has named."""
    return [[topic.name for topic in request.topics] for request in broker.asked(ApiKey.METADATA)]


TOPICS = {f"t{number:03}": 1 for number in range(100)}


@pytest.mark.fault("scale-C4")
@pytest.mark.parametrize("asks_for", ["partitions", "leader", "refresh"])
def test_new_topics_one_after_the_other_are_asked_for_one_by_one(asks_for: str) -> None:
    async def scenario() -> list[list[str]]:
        async with ScriptedBroker(dict(TOPICS)) as broker:
            cluster = cluster_of(broker)
            for name in TOPICS:
                if asks_for == "partitions":
                    await cluster.partitions(name)
                elif asks_for == "leader":
                    await cluster.leader(TopicPartition(name, 0))
                else:
                    await cluster.refresh([name])
            assert cluster.view.leaders.keys() == {TopicPartition(name, 0) for name in TOPICS}
            await cluster.close()
            return named(broker)

    assert run_in_own_time(scenario()) == [[name] for name in TOPICS]


def test_new_topics_at_once_are_asked_for_together() -> None:
    async def scenario() -> list[list[str]]:
        async with ScriptedBroker(dict(TOPICS)) as broker:
            cluster = cluster_of(broker)
            await asyncio.gather(*map(cluster.partitions, TOPICS))
            await cluster.close()
            return named(broker)

    first, *rest = run_in_own_time(scenario())
    assert sorted([*first, *(name for names in rest for name in names)]) == sorted(TOPICS)
    assert len(rest) <= 1


def test_a_topic_that_is_not_there_yet_is_waited_for_alone() -> None:
    async def scenario() -> list[list[str]]:
        async with ScriptedBroker({"t": 1}) as broker:
            cluster = cluster_of(broker)
            await cluster.partitions("t")
            with pytest.raises(DeadlineExceeded):
                await cluster.partitions("later", timeout_ms=20)
            broker.topics["later"] = 2
            assert await cluster.partitions("later") == 2
            await cluster.close()
            return named(broker)

    first, *rest = run_in_own_time(scenario())
    assert first == ["t"]
    assert len(rest) > 1
    assert set(map(tuple, rest)) == {("later",)}


def test_a_refresh_that_names_none_is_one_of_all_and_not_shared_with_one_of_some() -> None:
    async def scenario() -> list[list[str]]:
        async with ScriptedBroker({"t": 1, "u": 1, "v": 1}) as broker:
            cluster = cluster_of(broker)
            await cluster.refresh(["t", "u"])
            one = asyncio.create_task(cluster.refresh(["v"]))
            await broker.received(ApiKey.METADATA, 2)
            await cluster.refresh()
            await one
            await cluster.close()
            return named(broker)

    assert run_in_own_time(scenario()) == [["t", "u"], ["v"], ["t", "u", "v"]]


def test_all_topics_are_asked_for_again_when_one_of_them_is_old_though_new_ones_come() -> None:
    async def scenario() -> list[list[str]]:
        async with ScriptedBroker({"t": 1, "u": 1, "v": 1}) as broker:
            cluster = cluster_of(broker, metadata_max_age_ms=1000)
            await cluster.partitions("t")
            await asyncio.sleep(0.6)
            await cluster.partitions("u")
            await asyncio.sleep(0.6)
            await cluster.partitions("u")
            await cluster.partitions("v")
            await cluster.close()
            return named(broker)

    assert run_in_own_time(scenario()) == [["t"], ["u"], ["t", "u"], ["v"]]


def test_unreachable_bootstrap_address_is_passed_over() -> None:
    async def scenario() -> int:
        async with ScriptedBroker() as gone:
            dead = gone.bootstrap
        async with ScriptedBroker({"t": 1}) as broker:
            cluster = cluster_of(broker, dead)
            partitions = await cluster.partitions("t")
            await cluster.close()
            return partitions

    assert run_in_own_time(scenario()) == 1


def test_a_fleet_of_clients_does_not_ask_the_same_broker_first() -> None:
    """KAFKA-890, 901: all asked the first broker of the list, and overloaded it."""

    async def scenario() -> list[int]:
        async with ScriptedBroker({"t": 1}) as first, ScriptedBroker({"t": 1}) as second:
            for _ in range(30):
                cluster = cluster_of(first, second.bootstrap)
                await cluster.refresh(["t"])
                await cluster.close()
            return [len(broker.asked(ApiKey.METADATA)) for broker in (first, second)]

    asked = run_in_own_time(scenario())
    assert sum(asked) == 30
    assert min(asked) > 0  # in all but one of a billion runs


def test_no_reachable_broker_is_said_with_each_address() -> None:
    async def scenario() -> tuple[str, str]:
        async with ScriptedBroker() as gone:
            pass
        cluster = cluster_of(gone)
        with pytest.raises(NoBrokersAvailable) as failed:
            await cluster.refresh()
        return gone.bootstrap, str(failed.value)

    address, text = run_in_own_time(scenario())
    assert address in text


def test_coordinator_not_available_is_asked_again_and_the_answer_remembered() -> None:
    async def scenario() -> tuple[int, int]:
        async with ScriptedBroker() as broker:
            right_answer = broker.answers[ApiKey.FIND_COORDINATOR]
            not_yet = FindCoordinatorResponse(
                error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, node_id=-1, host="", port=-1
            )
            answers = [lambda r: not_yet, right_answer, right_answer]
            broker.answers[ApiKey.FIND_COORDINATOR] = lambda r: answers.pop(0)(r)
            cluster = cluster_of(broker)
            await cluster.coordinator("g")
            await cluster.coordinator("g")
            remembered = len(broker.asked(ApiKey.FIND_COORDINATOR))
            cluster.forget_coordinator("g")
            await cluster.coordinator("g")
            await cluster.close()
            return remembered, len(broker.asked(ApiKey.FIND_COORDINATOR))

    assert run_in_own_time(scenario()) == (2, 3)


def test_a_coordinator_that_is_gone_is_waited_out_until_another_is_named() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as gone:
            pass
        async with ScriptedBroker({}, node_id=2) as broker:
            here = broker.answers[ApiKey.FIND_COORDINATOR]
            at_gone_broker = FindCoordinatorResponse(
                error_code=0, node_id=1, host="127.0.0.1", port=gone.port
            )
            answers = [lambda r: at_gone_broker, lambda r: at_gone_broker, here]
            broker.answers[ApiKey.FIND_COORDINATOR] = lambda r: answers.pop(0)(r)
            listing = ListGroupsResponse(error_code=0, groups=[])
            broker.answers[ApiKey.LIST_GROUPS] = lambda r: listing
            cluster = cluster_of(broker)
            await cluster.call_coordinator("g", ListGroupsRequest())
            await cluster.close()
            assert answers == []

    run_in_own_time(scenario())


@pytest.mark.fault("groups-1")
def test_a_client_that_asked_for_a_coordinator_alone_finds_the_next_when_its_address_is_gone() -> (
    None
):
    async def scenario() -> int:
        async with ScriptedBroker({}, 2) as other:
            async with ScriptedBroker({}, 1) as bootstrap:
                bootstrap.peers[2] = other.port
                cluster = cluster_of(bootstrap)
                assert (await cluster.coordinator("g")).node_id == 1
            cluster.forget_coordinator("g")
            node_id = (await cluster.coordinator("g", timeout_ms=2000)).node_id
            await cluster.close()
            return node_id

    assert run_in_own_time(scenario()) == 2


@pytest.mark.fault("groups-1")
@pytest.mark.parametrize("cluster_of_other", ["A", "B", None])
def test_a_broker_that_was_down_is_asked_when_the_only_one_that_was_up_is_gone(
    cluster_of_other: str | None,
) -> None:
    async def scenario() -> None:
        async with ScriptedBroker({}, 2) as other:
            async with ScriptedBroker({}, 1) as bootstrap:
                bootstrap.cluster_id = "A"
                bootstrap.peers[2] = other.port
                cluster = cluster_of(bootstrap)
                await cluster.refresh()
                del bootstrap.peers[2]
                await cluster.refresh()
                assert cluster.brokers.keys() == {1}

            # It is back, if no other cluster has its address now.
            other.cluster_id = cluster_of_other
            if cluster_of_other == "A":
                await cluster.refresh()
                assert cluster.brokers.keys() == {2}
            else:
                with pytest.raises(NoBrokersAvailable, match="a broker of another cluster"):
                    await cluster.refresh()
                assert cluster.brokers.keys() == {1}
            await cluster.close()

    run_in_own_time(scenario())


def test_all_brokers_gone_and_back_elsewhere_are_found_where_they_are_registered() -> None:
    async def scenario() -> None:
        registered: list[str] = []

        async def find() -> list[str]:
            if not registered:
                raise NoBrokersAvailable("none is registered")
            return registered

        servers = []
        async with ScriptedBroker({"t": 1}, 1) as broker_1, ScriptedBroker({"t": 1}, 2) as broker_2:
            servers = [broker_1.bootstrap, broker_2.bootstrap]
            config = ClusterConfig(bootstrap_servers=tuple(servers))
            cluster = Cluster(servers, config=config, find_brokers=find)
            await cluster.refresh(["t"])
        asking = asyncio.create_task(cluster.retrying(partial(cluster.refresh, ["t"]), "metadata"))
        await asyncio.wait([asking], timeout=0.3)
        async with ScriptedBroker({"t": 1}, 1) as again:
            registered.append(again.bootstrap)
            async with asyncio.timeout(1.5):
                await asking
            assert (await cluster.leader(P0)).port == again.port
            await cluster.close()

    run_in_own_time(scenario())


def test_each_purpose_has_a_connection_of_its_own_that_is_kept() -> None:
    async def scenario() -> tuple[bool, bool]:
        async with ScriptedBroker() as broker:
            cluster = cluster_of(broker)
            await cluster.refresh()
            fetch, fetch_again = await asyncio.gather(
                cluster.connection(0, "fetch"), cluster.connection(0, "fetch")
            )
            commit = await cluster.connection(0, "commit")
            await cluster.close()
            return fetch is fetch_again, fetch is commit

    assert run_in_own_time(scenario()) == (True, False)


def test_lost_connection_is_replaced_when_next_asked_for() -> None:
    async def scenario() -> tuple[bool, bool]:
        async with ScriptedBroker() as broker:
            cluster = cluster_of(broker)
            await cluster.refresh()
            first = await cluster.connection(0, "x")
            broker.answers[ApiKey.FIND_COORDINATOR] = lambda r: HANG_UP
            with pytest.raises(ConnectionFailed):
                await first.call(FindCoordinatorRequest(key="g"))
            assert cluster.open_connection(0, "x") is None
            second = await cluster.connection(0, "x")
            result = first is second, second.closed
            await cluster.close()
            return result

    assert run_in_own_time(scenario()) == (False, False)


def test_a_topic_that_was_not_asked_for_yet_does_not_wait_for_the_backoff() -> None:
    async def scenario() -> int:
        async with ScriptedBroker({"t": 1}) as broker:
            cluster = cluster_of(broker, retry_backoff_ms=60_000)
            await cluster.refresh()
            await cluster.refresh(["t"])
            # What was asked for waits.
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(cluster.refresh(["t"]), 0.02)
            await cluster.close()
            return len(broker.asked(ApiKey.METADATA))

    assert run_in_own_time(scenario()) == 2


def test_broker_that_refused_is_left_alone_for_the_backoff() -> None:
    async def scenario() -> list[str]:
        async with ScriptedBroker() as gone:
            pass
        cluster = cluster_of(gone, reconnect_backoff_ms=60_000, reconnect_backoff_max_ms=60_000)
        reasons = []

        async def fail_to_connect() -> None:
            with pytest.raises(ConnectionFailed) as failed:
                await cluster.connection(cluster.bootstrap[0])
            reasons.append(failed.value.reason)

        await fail_to_connect()
        # Somebody listens now, and is not asked.
        async with await asyncio.start_server(lambda *_: None, "127.0.0.1", gone.port):
            await fail_to_connect()
        return reasons

    first, second = run_in_own_time(scenario())
    assert "nobody listens there" in first
    assert second == first


# ---- leaders that are older than others were


class Rivals:
    """Brokers that tell different leader epochs of one partition; -1: it hangs up.

    `replicas` are those of the partition, by the node id of who tells; brokers that are `away` have
    an address where nobody listens.
    """

    def __init__(self, *brokers: ScriptedBroker, away: Iterable[int] = ()) -> None:
        self.brokers = brokers
        self.away = [
            MetadataResponseBroker(node_id=node, host="127.0.0.1", port=1) for node in away
        ]
        self.replicas = [broker.node_id for broker in brokers]
        self.asked: Counter[int] = Counter()

    def tell(self, *epochs: int) -> None:
        """Have each broker tell an epoch from now on."""
        for broker, epoch in zip(self.brokers, epochs, strict=True):
            answer = HANG_UP if epoch < 0 else partial(self._answer, broker, epoch)
            broker.answers[ApiKey.METADATA] = answer

    def _answer(self, broker: ScriptedBroker, epoch: int, request: Any) -> MetadataResponse:
        self.asked[broker.node_id] += 1
        (topic,) = broker.metadata(request).topics
        told = attrs.evolve(topic.partitions[0], leader_epoch=epoch, replica_nodes=[*self.replicas])
        brokers = [b for other in self.brokers for b in other.metadata(request).brokers]
        return MetadataResponse(
            brokers=[*brokers, *self.away], topics=[attrs.evolve(topic, partitions=[told])]
        )


def play_rivals(
    scene: Callable[[Rivals, Cluster], Awaitable[None]],
    brokers: int = 2,
    *,
    epoch: int = 4,
    away: Iterable[int] = (),
    connect: Connect = Connection.open,
) -> None:
    """Play a scene, skipping waits, in which all brokers, from 1 on, have told `epoch` at first."""

    async def whole() -> None:
        async with AsyncExitStack() as stack:
            made = [
                await stack.enter_async_context(ScriptedBroker({"t": 1}, node_id=number + 1))
                for number in range(brokers)
            ]
            rivals = Rivals(*made, away=away)
            rivals.tell(*[epoch] * brokers)
            cluster = cluster_of(made[0], connect=connect)
            stack.push_async_callback(cluster.close)
            await cluster.refresh(["t"])
            await scene(rivals, cluster)

    run_in_own_time(whole(), 10 * DOUBT_S, ImpatientLoop)


async def look_often(cluster: Cluster) -> None:
    """Refresh until each broker is asked."""
    for _ in range(MOST_OLDER + 1):
        await cluster.refresh(["t"])


@pytest.mark.fault("strangers-80")
@pytest.mark.fault("strangers-83")
def test_each_broker_is_asked_and_the_youngest_leader_counts() -> None:
    async def scene(rivals: Rivals, cluster: Cluster) -> None:
        assert await cluster.settle(["t"]) == {"t"}
        assert cluster.view.leader_epoch(P0) == 3

        rivals.tell(3, 4)
        await asyncio.sleep(SETTLED_S + 1)
        assert await cluster.settle(["t"]) == {"t"}
        assert cluster.view.leader_epoch(P0) == 4

        # A broker that is away may be the younger leader, however often others are asked.
        rivals.tell(3, -1)
        await asyncio.sleep(SETTLED_S + 1)
        assert not await cluster.settle(["t"])
        for _ in range(3):
            await look_often(cluster)
        assert cluster.view.leader_epoch(P0) == 4

        # It is back, and knows no more of it: the topic was created again.
        rivals.tell(3, 3)
        await asyncio.sleep(LONGEST_PAUSE_S)
        await look_often(cluster)
        assert cluster.view.leader_epoch(P0) == 3

    play_rivals(scene, epoch=3)


@pytest.mark.fault("strangers-87")
def test_a_broker_that_has_no_replica_need_not_respond() -> None:
    async def scene(rivals: Rivals, cluster: Cluster) -> None:
        rivals.tell(0, 0)
        assert await cluster.settle(["t"]) == {"t"}
        assert cluster.view.leader_epoch(P0) == 0

        rivals.replicas.append(3)
        rivals.tell(4, 4)
        await cluster.refresh(["t"])
        rivals.tell(0, 0)
        await asyncio.sleep(SETTLED_S + 1)
        assert not await cluster.settle(["t"])
        assert cluster.view.leader_epoch(P0) == 4

    play_rivals(scene, away=[3])


@pytest.mark.fault("strangers-88")
def test_a_broker_that_is_far_away_has_the_time_that_it_needs() -> None:
    """A connection that is still opened when others have responded is not given up."""

    async def open_slowly(host: str, port: int, *rest: Any, **options: Any) -> Connection:
        await asyncio.sleep(3)
        return await Connection.open(host, port, *rest, **options)

    async def scene(rivals: Rivals, cluster: Cluster) -> None:
        rivals.tell(0, 0)
        assert not await cluster.settle(["t"])
        await asyncio.sleep(3)
        assert await cluster.settle(["t"]) == {"t"}
        assert cluster.view.leader_epoch(P0) == 0

    play_rivals(scene, connect=open_slowly)


@pytest.mark.fault("strangers-86")
def test_an_older_state_counts_at_last_though_a_broker_is_out_of_reach() -> None:
    async def scene(rivals: Rivals, cluster: Cluster) -> None:
        rivals.replicas.append(2)
        await cluster.refresh(["t"])
        rivals.tell(3)
        rivals.asked.clear()
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while cluster.view.leader_epoch(P0) == 4:
            await look_often(cluster)
            await asyncio.sleep(1)
        assert DOUBT_S < loop.time() - began_s < DOUBT_S + 3 * LONGEST_PAUSE_S

        # Members that have read of the younger one hear it too, and others later do not.
        assert await cluster.settle(["t"]) == {"t"}
        await asyncio.sleep(SETTLED_S + FORGET_S)
        assert not await cluster.settle(["t"])

    play_rivals(scene, brokers=1, away=[2])


@pytest.mark.fault("strangers-92")
def test_a_doubt_that_comes_and_goes_never_lasts() -> None:
    """A broker that is cut off is asked by chance, for as long as it may take."""

    async def scene(rivals: Rivals, cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while loop.time() - began_s < 2 * DOUBT_S:
            rivals.tell(3, -1)
            await look_often(cluster)
            assert cluster.view.leader_epoch(P0) == 4
            rivals.tell(-1, 4)
            await cluster.refresh(["t"])
            await asyncio.sleep(FORGET_S / 3)

    play_rivals(scene)


def test_who_waits_for_a_broker_says_so_and_asks_the_others_less_and_less_often(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(rivals: Rivals, cluster: Cluster) -> None:
        rivals.replicas.append(2)
        await cluster.refresh(["t"])
        rivals.tell(3)
        rivals.asked.clear()
        for _ in range(500):
            assert not await cluster.settle(["t"])
            await asyncio.sleep(0.2)
        assert 10 <= rivals.asked[1] <= 15
        assert caplog.text.count("that is known when broker 2 responds") == 1

    play_rivals(scene, brokers=1, away=[2])
