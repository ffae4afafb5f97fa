"""The admin client: which broker it asks, how often, and how it reads the responses."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import numpy as np
import pytest

from clients.admin import LATEST_TIME, Admin, ConfigResource, ListedOffset, NewTopic
from clients.errors import BrokerError, ConnectionRefused, DeadlineExceeded, NoBrokersAvailable
from protocol.api_key import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages import (
    alter_configs,
    create_topics,
    delete_groups,
    incremental_alter_configs,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
)
from protocol.messages.create_topics import CreateTopicsResponse, CreateTopicsResponseTopic
from protocol.messages.delete_topics import DeleteTopicsResponse, DeleteTopicsResponseResult
from protocol.messages.describe_configs import (
    DescribeConfigsResponse,
    DescribeConfigsResponseConfig,
    DescribeConfigsResponseResult,
)
from protocol.messages.describe_groups import DescribeGroupsResponse, group_error
from protocol.messages.find_coordinator import FindCoordinatorResponse
from protocol.messages.list_groups import ListGroupsResponse, ListGroupsResponseGroup
from protocol.messages.list_offsets import (
    ListOffsetsResponse,
)
from protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.clients.admin.running_admin import P0, P1, P2, ends, with_admin
from tests.clients.scripted_broker import HANG_UP, ScriptedBroker


def test_offsets_are_asked_of_each_leader_in_one_request() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        offsets = await admin.list_offsets(dict.fromkeys((P0, P1, P2), LATEST_TIME))
        assert {p: listed.offset for p, listed in offsets.items()} == {P0: 1, P1: 1, P2: 2}
        assert (
            len(broker_1.asked(ApiKey.LIST_OFFSETS))
            == len(broker_2.asked(ApiKey.LIST_OFFSETS))
            == 1
        )

    with_admin(scenario)


def test_leaders_that_were_just_read_are_not_read_again_until_one_has_moved() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        def reads() -> int:
            return len(broker_1.asked(ApiKey.METADATA)) + len(broker_2.asked(ApiKey.METADATA))

        await admin.list_offsets({P0: LATEST_TIME, P2: LATEST_TIME})
        before = reads()
        await admin.list_offsets({P0: LATEST_TIME, P2: LATEST_TIME})
        assert reads() == before

        # The broker that led says so, and the one that leads now is asked.
        broker_1.leaders[P2] = broker_2.leaders[P2] = 1
        refused = partial(ends, offset=-1, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        broker_2.answers[ApiKey.LIST_OFFSETS] = refused
        assert (await admin.list_offsets({P2: LATEST_TIME}))[P2].offset == 1
        assert reads() == before + 1

    with_admin(scenario, retry_backoff_ms=500)


def test_only_the_partition_whose_leader_moved_is_asked_again() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        def moved(request: Any) -> ListOffsetsResponse:
            broker_1.leaders[P2] = broker_2.leaders[P2] = 1
            return ends(request, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER)

        broker_2.answers[ApiKey.LIST_OFFSETS] = moved
        offsets = await admin.list_offsets(dict.fromkeys((P0, P2), LATEST_TIME))
        assert {p: listed.offset for p, listed in offsets.items()} == {P0: 1, P2: 1}
        again = broker_1.asked(ApiKey.LIST_OFFSETS)[1]
        assert [p.partition_index for p in again.topics[0].partitions] == [2]

    with_admin(scenario)


def test_partition_that_cannot_answer_has_its_error_and_the_others_their_offsets() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        broker_1.leaders[P1] = broker_2.leaders[P1] = -1
        nowhere = TopicPartition("nope", 0)
        offsets = await admin.list_offsets(
            dict.fromkeys((P0, P1, nowhere), LATEST_TIME), timeout_ms=30
        )
        assert offsets[P0] == ListedOffset(1, -1, -1)
        assert offsets[P1].error is ErrorCode.LEADER_NOT_AVAILABLE
        assert str(offsets[P1].failure("t-1")) == "LEADER_NOT_AVAILABLE: t-1: it has no leader"
        assert offsets[nowhere].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    with_admin(scenario)


async def test_partition_without_a_leader_says_which_brokers_have_to_start() -> None:
    reason = "t-0: it has no leader, as no broker that was in sync is there; start broker 7 or 9"
    short = {"default_api_timeout_ms": 30, "request_timeout_ms": 30, "retry_backoff_ms": 1}
    async with ScriptedBroker({"t": 1}) as broker, Admin(broker.bootstrap, **short) as admin:
        broker.leaders[P0], broker.in_sync[P0] = -1, [7, 9]
        listed = (await admin.list_offsets({P0: LATEST_TIME}))[P0]
        assert str(listed.failure(P0)) == f"LEADER_NOT_AVAILABLE: {reason}"
        producers = await admin.producers_of_each_partition([P0])
        assert str(producers[P0]) == f"LEADER_NOT_AVAILABLE: {reason}"
        with pytest.raises(DeadlineExceeded, match=reason):
            await admin.cluster.leader(P0)


def test_topics_are_created_by_the_controller_even_when_it_has_just_moved() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        def not_controller(request: Any) -> CreateTopicsResponse:
            broker_1.answers[ApiKey.METADATA] = broker_2.metadata
            return create_topics.error_response(request, ErrorCode.NOT_CONTROLLER)

        broker_1.answers[ApiKey.CREATE_TOPICS] = not_controller
        broker_2.answers[ApiKey.CREATE_TOPICS] = lambda request: CreateTopicsResponse(
            topics=[
                CreateTopicsResponseTopic(name="new", error_code=0, error_message=None),
                CreateTopicsResponseTopic(name="t", error_code=36, error_message="it exists"),
            ]
        )
        new = NewTopic("new", 3, 2, {"cleanup.policy": "compact"})
        results = await admin.create_topics([new, NewTopic("t", assignments={0: [1, 2]})])
        assert results["new"] is None
        assert str(results["t"]) == "TOPIC_ALREADY_EXISTS: it exists"
        first, second = broker_2.asked(ApiKey.CREATE_TOPICS)[0].topics
        assert (first.num_partitions, first.replication_factor) == (3, 2)
        assert [(c.name, c.value) for c in first.configs] == [("cleanup.policy", "compact")]
        assert (second.num_partitions, second.replication_factor) == (-1, -1)
        assert [tuple(a.broker_ids) for a in second.assignments] == [(1, 2)]

    with_admin(scenario)


@pytest.mark.fault("strangers-182")
def test_settings_are_text_numbers_or_truth_values_as_with_stock_clients() -> None:
    values = {"a": "x", "b": 600000, "c": True, "d": 0.5, "e": np.int64(7)}
    texts = {"a": "x", "b": "600000", "c": "true", "d": "0.5", "e": "7"}

    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        topic = ConfigResource.topic("t")
        broker_1.answers[ApiKey.CREATE_TOPICS] = lambda request: CreateTopicsResponse(
            topics=[CreateTopicsResponseTopic(name="t", error_code=0, error_message=None)]
        )
        for api_key, message in (
            (ApiKey.ALTER_CONFIGS, alter_configs),
            (ApiKey.INCREMENTAL_ALTER_CONFIGS, incremental_alter_configs),
        ):
            broker_1.answers[api_key] = partial(message.error_response, code=ErrorCode.NONE)
        await admin.create_topics([NewTopic("t", configs=values)])
        await admin.alter_configs({topic: values})
        await admin.incremental_alter_configs({topic: values | {"f": None}})

        (created,) = broker_1.asked(ApiKey.CREATE_TOPICS)[0].topics
        (altered,) = broker_1.asked(ApiKey.ALTER_CONFIGS)[0].resources
        (changed,) = broker_1.asked(ApiKey.INCREMENTAL_ALTER_CONFIGS)[0].resources
        assert {c.name: c.value for c in created.configs} == texts
        assert {c.name: c.value for c in altered.configs} == texts
        assert {c.name: c.value for c in changed.configs} == texts | {"f": None}
        with pytest.raises(TypeError, match=r"the value of a setting, b'x', must be a str or a n"):
            await admin.alter_configs({topic: {"a": b"x"}})  # type: ignore[dict-item]

    with_admin(scenario)


def test_deletion_says_of_each_topic_whether_it_went() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        broker_1.answers[ApiKey.DELETE_TOPICS] = lambda request: DeleteTopicsResponse(
            responses=[
                DeleteTopicsResponseResult(name="t", error_code=0),
                DeleteTopicsResponseResult(name="u", error_code=3),
            ]
        )
        results = await admin.delete_topics(["t", "u"])
        assert results["t"] is None
        assert results["u"] is not None
        assert results["u"].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    with_admin(scenario)


def test_the_whole_is_described_by_one_answer_of_one_broker() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        await admin.list_topics()
        before = [len(broker.asked(ApiKey.METADATA)) for broker in (broker_1, broker_2)]
        cluster, topics = await admin.describe_all()
        assert [broker.node_id for broker in cluster.brokers] == [1, 2]
        assert [p.leader for p in topics["t"].partitions.values()] == [1, 1, 2]
        after = [len(broker.asked(ApiKey.METADATA)) for broker in (broker_1, broker_2)]
        assert sum(after) == sum(before) + 1

    with_admin(scenario)


def test_topics_are_listed_and_described() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        assert await admin.list_topics() == ["t"]
        described = (await admin.describe_topics(["t"]))["t"]
        assert [p.leader for p in described.partitions.values()] == [1, 1, 2]
        with pytest.raises(ApiError, match="UNKNOWN_TOPIC_OR_PARTITION: nope"):
            await admin.describe_topics(["nope"])

    with_admin(scenario)


def leaderless(broker: ScriptedBroker, name: str) -> Callable[[Any], MetadataResponse]:
    """Answer Metadata with LEADER_NOT_AVAILABLE for a topic, as after its automatic creation."""
    created = MetadataResponseTopic(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE, name=name, partitions=[]
    )

    def answer(request: Any) -> MetadataResponse:
        response = broker.metadata(request)
        others = [topic for topic in response.topics if topic.name != name]
        return attrs.evolve(response, topics=[*others, created])

    return answer


def test_a_topic_with_an_error_is_listed_and_described_as_it_was() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        before = await admin.describe_topics()
        for broker in (broker_1, broker_2):
            broker.answers[ApiKey.METADATA] = leaderless(broker, "t")
        assert await admin.list_topics() == ["t"]
        assert await admin.describe_topics() == before

        for broker in (broker_1, broker_2):
            broker.answers[ApiKey.METADATA] = leaderless(broker, "new")
        assert await admin.list_topics() == ["new", "t"]
        assert await admin.describe_topics() == before

    with_admin(scenario)


def test_a_topics_error_is_raised_at_once_even_if_it_may_pass() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        for broker in (broker_1, broker_2):
            broker.answers[ApiKey.METADATA] = leaderless(broker, "t")
        with pytest.raises(BrokerError, match="LEADER_NOT_AVAILABLE: t"):
            await admin.describe_topics(["t"])
        assert len(broker_1.asked(ApiKey.METADATA)) + len(broker_2.asked(ApiKey.METADATA)) == 1

    with_admin(scenario)


def test_groups_of_all_brokers_are_listed_together() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        def listing(*names: str) -> ListGroupsResponse:
            groups = [ListGroupsResponseGroup(group_id=n, protocol_type="consumer") for n in names]
            return ListGroupsResponse(error_code=0, groups=groups)

        loading = list_groups.error_response
        answers = [
            lambda r: loading(r, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 2),
            lambda r: listing("c", "a"),
        ]
        broker_1.answers[ApiKey.LIST_GROUPS] = lambda r: answers.pop(0)(r)
        broker_2.answers[ApiKey.LIST_GROUPS] = lambda r: listing("b")
        groups = await admin.list_groups()
        assert [(g.group_id, g.coordinator.node_id) for g in groups] == [
            ("a", 1),
            ("b", 2),
            ("c", 1),
        ]

    with_admin(scenario)


def test_groups_are_listed_of_the_brokers_there_are_by_then() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        groups = [ListGroupsResponseGroup(group_id="a", protocol_type="consumer")]
        broker_1.answers[ApiKey.LIST_GROUPS] = lambda r: ListGroupsResponse(
            error_code=0, groups=groups
        )
        await broker_2.__aexit__()
        asking = asyncio.create_task(admin.list_groups())
        await broker_1.received(ApiKey.LIST_GROUPS, 2)
        del broker_1.peers[2]
        assert [group.group_id for group in await asking] == ["a"]

    with_admin(scenario)


def test_who_only_looks_asks_a_broker_that_is_dead_once_for_all_that_it_may_know() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        groups = [ListGroupsResponseGroup(group_id="a", protocol_type="consumer")]
        broker_1.answers[ApiKey.LIST_GROUPS] = lambda r: ListGroupsResponse(
            error_code=0, groups=groups
        )
        broker_1.answers[ApiKey.FIND_COORDINATOR] = lambda r: FindCoordinatorResponse(
            error_code=0, node_id=2, host="127.0.0.1", port=broker_2.port
        )
        await broker_2.__aexit__()
        async with Admin(broker_1.bootstrap, waits_for_dead=False) as looking:
            listed = {
                broker.node_id: result
                for broker, result in (await looking.groups_of_each_broker()).items()
            }
            assert isinstance(listed[1], list)
            assert isinstance(listed[2], ConnectionRefused)
            assert len(broker_1.asked(ApiKey.LIST_GROUPS)) == 1

            described = await looking.describe_each_group(["b"])
            assert isinstance(described["b"], ConnectionRefused)
            assert len(broker_1.asked(ApiKey.FIND_COORDINATOR)) == 1

            offsets = await looking.list_offsets(dict.fromkeys((P0, P2), LATEST_TIME))
            assert offsets[P0].offset == 1
            assert offsets[P2].error is ErrorCode.NETWORK_EXCEPTION
            assert f"127.0.0.1:{broker_2.port}: connection refused" in str(offsets[P2].failure())
            assert len(broker_1.asked(ApiKey.LIST_OFFSETS)) == 1

    with_admin(scenario)


@pytest.mark.parametrize(
    ("waits", "error"), [(False, NoBrokersAvailable), (True, DeadlineExceeded)]
)
def test_who_only_looks_does_not_wait_where_nobody_listens_at_any_address(
    waits: bool, error: type[Exception]
) -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        await broker_1.__aexit__()
        await broker_2.__aexit__()
        settings = {
            "bootstrap.servers": f"{broker_1.bootstrap},{broker_2.bootstrap}",
            "default.api.timeout.ms": 200,
        }
        async with Admin(settings, waits_for_dead=waits) as looking:
            # No log, no question: nobody need be there.
            assert await looking.list_offsets({}) == {}
            for call in (
                looking.describe_cluster(),
                looking.list_groups(),
                looking.list_offsets({P0: LATEST_TIME}),
                looking.group_offsets("g"),
            ):
                with pytest.raises(error, match="connection refused"):
                    await call

    with_admin(scenario)


def test_the_next_controller_is_asked_when_the_one_before_is_gone() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        deleted = DeleteTopicsResponse(
            responses=[DeleteTopicsResponseResult(name="t", error_code=0)]
        )
        broker_2.answers[ApiKey.DELETE_TOPICS] = lambda request: deleted
        # Broker 2 still says that broker 1 is the controller.
        broker_2.answers[ApiKey.METADATA] = broker_1.metadata
        assert (await admin.describe_cluster()).controller_id == 1
        await broker_1.__aexit__()
        asking = asyncio.create_task(admin.delete_topics(["t"]))
        await broker_2.received(ApiKey.METADATA, 3)
        broker_2.answers[ApiKey.METADATA] = broker_2.metadata
        assert await asking == {"t": None}

    with_admin(scenario)


def test_groups_are_described_by_their_coordinator() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        broker_1.answers[ApiKey.DESCRIBE_GROUPS] = lambda request: DescribeGroupsResponse(
            groups=[group_error(group, ErrorCode.NONE, "Dead") for group in request.groups]
        )
        described = await admin.describe_groups(["g", "h"])
        assert {g: d.group.group_state for g, d in described.items()} == {"g": "Dead", "h": "Dead"}

    with_admin(scenario)


def test_offsets_of_a_group_leave_out_partitions_without_a_commit() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        committed = [
            offset_fetch.OffsetFetchResponsePartition(
                partition_index=index, committed_offset=offset, metadata="m", error_code=0
            )
            for index, offset in enumerate((5, -1))
        ]
        broker_1.answers[ApiKey.OFFSET_FETCH] = lambda request: offset_fetch.OffsetFetchResponse(
            topics=[offset_fetch.OffsetFetchResponseTopic(name="t", partitions=committed)]
        )
        assert await admin.group_offsets("g") == {P0: OffsetAndMetadata(5, "m")}
        assert broker_1.asked(ApiKey.OFFSET_FETCH)[0].topics is None

    with_admin(scenario)


def test_commit_for_a_group_follows_its_coordinator_and_raises_what_it_refuses() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        codes = [ErrorCode.NOT_COORDINATOR, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
        broker_1.answers[ApiKey.OFFSET_COMMIT] = lambda request: offset_commit.error_response(
            request, codes.pop(0)
        )
        await admin.commit_group_offsets("g", {P0: OffsetAndMetadata(5)})
        assert len(broker_1.asked(ApiKey.FIND_COORDINATOR)) == 2
        with pytest.raises(ApiError, match="UNKNOWN_MEMBER_ID: commit of group g for t-0"):
            await admin.commit_group_offsets("g", {P0: OffsetAndMetadata(5)})

    with_admin(scenario)


@pytest.mark.fault("strangers-144")
def test_what_is_committed_is_not_committed_again_with_what_is_not() -> None:
    """It went over what others had committed meanwhile, ten times a second."""

    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        loading = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE]
        asked: list[list[int]] = []

        def answer(request: offset_commit.OffsetCommitRequest) -> Any:
            response = offset_commit.error_response(request, ErrorCode.NONE)
            (topic,) = response.topics
            asked.append([partition.partition_index for partition in topic.partitions])
            for partition in topic.partitions:
                if partition.partition_index == P1.partition:
                    partition.error_code = loading.pop(0)
            return response

        broker_1.answers[ApiKey.OFFSET_COMMIT] = answer
        await admin.commit_group_offsets("g", dict.fromkeys((P0, P1), OffsetAndMetadata(5)))
        assert asked == [[P0.partition, P1.partition], [P1.partition]]

    with_admin(scenario)


@pytest.mark.fault("strangers-153")
def test_offsets_of_a_topic_that_is_not_there_are_refused_without_waiting_for_it() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        asked: list[list[int]] = []

        def answer(request: offset_commit.OffsetCommitRequest) -> Any:
            asked.append([each.partition_index for each in request.topics[0].partitions])
            response = offset_commit.error_response(request, ErrorCode.NONE)
            for each in response.topics[0].partitions:
                if each.partition_index == P1.partition:
                    each.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return response

        broker_1.answers[ApiKey.OFFSET_COMMIT] = answer
        offsets = dict.fromkeys((P0, P1), OffsetAndMetadata(5))
        verdicts = await admin.alter_group_offsets("g", offsets)
        refused = verdicts[P1]
        assert refused is not None
        assert (verdicts[P0], refused.code) == (None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert asked == [[P0.partition, P1.partition], [P1.partition]]

    with_admin(scenario)


def test_offsets_of_a_topic_that_the_coordinator_just_hears_of_are_committed() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        codes = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]
        broker_1.answers[ApiKey.OFFSET_COMMIT] = lambda request: offset_commit.error_response(
            request, codes.pop(0)
        )
        await admin.commit_group_offsets("g", {P0: OffsetAndMetadata(5)})
        assert not codes

    with_admin(scenario)


def test_groups_are_deleted_one_by_one_and_each_has_its_own_verdict() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        codes = {"g": ErrorCode.NONE, "full": ErrorCode.NON_EMPTY_GROUP}
        broker_1.answers[ApiKey.DELETE_GROUPS] = lambda request: delete_groups.error_response(
            request, codes[request.groups_names[0]]
        )
        deleted = await admin.delete_groups(["g", "full", "g"])
        assert {g: error and error.code for g, error in deleted.items()} == {
            "g": None,
            "full": ErrorCode.NON_EMPTY_GROUP,
        }
        assert len(broker_1.asked(ApiKey.DELETE_GROUPS)) == 2

    with_admin(scenario)


@pytest.mark.parametrize(
    ("first", "verdict"),
    [
        (ErrorCode.NOT_COORDINATOR, None),
        (ErrorCode.REQUEST_TIMED_OUT, None),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.GROUP_ID_NOT_FOUND),
        (HANG_UP, None),
    ],
)
def test_group_not_found_by_a_second_attempt_was_deleted_if_the_first_may_have_been_done(
    first: Any, verdict: ErrorCode | None
) -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        codes = [first, ErrorCode.GROUP_ID_NOT_FOUND, first, ErrorCode.GROUP_ID_NOT_FOUND]

        def answer(error_response: Callable[..., Any], request: Any) -> Any:
            code = codes.pop(0)
            return code if code is HANG_UP else error_response(request, code)

        broker_1.answers[ApiKey.DELETE_GROUPS] = partial(answer, delete_groups.error_response)
        broker_1.answers[ApiKey.OFFSET_DELETE] = partial(answer, offset_delete.error_response)
        error = (await admin.delete_groups(["g"]))["g"]
        assert (error and error.code) == verdict
        if verdict is None:
            assert await admin.delete_group_offsets("g", [P0]) == {P0: None}
        else:
            with pytest.raises(ApiError, match="GROUP_ID_NOT_FOUND: g"):
                await admin.delete_group_offsets("g", [P0])

    with_admin(scenario)


def test_offsets_deleted_have_a_verdict_for_each_partition() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        results = [
            offset_delete.OffsetDeleteResponsePartition(partition_index=index, error_code=code)
            for index, code in enumerate((0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC))
        ]
        broker_1.answers[ApiKey.OFFSET_DELETE] = lambda request: offset_delete.OffsetDeleteResponse(
            topics=[offset_delete.OffsetDeleteResponseTopic(name="t", partitions=results)]
        )
        deleted = await admin.delete_group_offsets("g", [P1, P0])
        assert deleted[P0] is None
        assert str(deleted[P1]) == "GROUP_SUBSCRIBED_TO_TOPIC: t-1"
        asked = broker_1.asked(ApiKey.OFFSET_DELETE)[0]
        assert [p.partition_index for p in asked.topics[0].partitions] == [0, 1]

    with_admin(scenario)


def test_settings_of_a_broker_are_asked_of_itself() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        def described(request: Any) -> DescribeConfigsResponse:
            config = DescribeConfigsResponseConfig(
                name="n", value="v", read_only=False, is_default=False, is_sensitive=False
            )
            return DescribeConfigsResponse(
                results=[
                    DescribeConfigsResponseResult(
                        error_code=0,
                        error_message=None,
                        resource_type=r.resource_type,
                        resource_name=r.resource_name,
                        configs=[config],
                    )
                    for r in request.resources
                ]
            )

        broker_1.answers[ApiKey.DESCRIBE_CONFIGS] = broker_2.answers[ApiKey.DESCRIBE_CONFIGS] = (
            described
        )
        broker = ConfigResource.broker(2)
        topic = ConfigResource.topic("t")
        configs = await admin.describe_configs([broker, topic])
        assert [c.name for c in configs[broker]] == [c.name for c in configs[topic]] == ["n"]
        asked = [r.resource_name for r in broker_2.asked(ApiKey.DESCRIBE_CONFIGS)[0].resources]
        assert asked == ["2"]

    with_admin(scenario)


@pytest.mark.fault("scale-C4")
def test_each_question_of_an_admin_names_what_it_is_about_and_nothing_of_before() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        names = [f"t{number}" for number in range(10)]
        broker_1.topics |= dict.fromkeys(names, 1)
        broker_2.topics |= dict.fromkeys(names, 1)
        for name in names:
            await admin.describe_topics([name])
        await admin.describe_cluster()
        requests = [*broker_1.asked(ApiKey.METADATA), *broker_2.asked(ApiKey.METADATA)]
        asked = sorted(topic.name for request in requests for topic in request.topics)
        assert asked == names

    with_admin(scenario)


@pytest.mark.fault("scale-C1")
def test_two_closes_of_an_admin_client_wait_for_what_is_kept_beside_it() -> None:
    async def scenario() -> None:
        admin = Admin("localhost:9")
        may_end = asyncio.Event()
        admin.kept.push_async_callback(may_end.wait)
        first = asyncio.create_task(admin.close())
        second = asyncio.create_task(admin.close())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not first.done()
        assert not second.done(), "it took the connections from under the first one"
        may_end.set()
        await asyncio.gather(first, second)

    asyncio.run(scenario())
