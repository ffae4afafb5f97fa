"""FindCoordinator through its handler."""

import pytest

from broker.cluster.internal_topics import InternalTopic, internal_topics
from broker.cluster.metadata_cache import MetadataCache
from broker.handlers import find_coordinator
from broker.network.request_context import RequestContext
from groups.transactions.config import TransactionsConfig
from offsets.config import OffsetsConfig
from offsets.topic import partition_for, topic_properties
from protocol.errors import ApiError, ErrorCode
from protocol.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataRequestEndpoint,
    UpdateMetadataRequestLiveBroker,
    UpdateMetadataRequestPartitionState,
    UpdateMetadataRequestTopicState,
)

OFFSETS = OffsetsConfig(topic_num_partitions=4, topic_replication_factor=1)
TRANSACTIONS = TransactionsConfig(
    topic_num_partitions=4, topic_replication_factor=2, topic_min_isr=1
)
TOPICS = internal_topics(OFFSETS, TRANSACTIONS)
CONTEXT = RequestContext(2, "client", "PLAINTEXT", "127.0.0.1:1", 0)
Created = tuple[str, int, int, dict[str, str]]


class Topics:
    """A creator that notes topics, or raises `refusal`."""

    def __init__(self, refusal: ErrorCode | None = None) -> None:
        self.refusal = refusal
        self.created: list[Created] = []

    def create(self, topic: InternalTopic) -> None:
        if self.refusal is not None:
            raise ApiError(self.refusal, "too few brokers")
        settings = dict(topic.properties)
        self.created.append((topic.name, topic.partitions, topic.replication_factor, settings))


def cache_with(*leaders: int, topic: str = OFFSETS_TOPIC) -> MetadataCache:
    """Fill a cache: brokers 0 and 1; partition i of the topic is led by the i-th of `leaders`."""
    cache = MetadataCache()
    brokers = [
        UpdateMetadataRequestLiveBroker(
            id=number,
            endpoints=[
                UpdateMetadataRequestEndpoint(
                    port=9092 + number,
                    host=f"host{number}",
                    listener="PLAINTEXT",
                    security_protocol=0,
                )
            ],
        )
        for number in range(2)
    ]
    states = [
        UpdateMetadataRequestPartitionState(
            partition_index=partition,
            controller_epoch=1,
            leader=leader,
            leader_epoch=0,
            isr=[leader],
            zk_version=0,
            replicas=[leader],
        )
        for partition, leader in enumerate(leaders)
    ]
    topics = [UpdateMetadataRequestTopicState(topic_name=topic, partition_states=states)]
    cache.update(
        UpdateMetadataRequest(
            controller_id=0,
            controller_epoch=1,
            topic_states=topics if leaders else [],
            live_brokers=brokers,
        )
    )
    return cache


def find(
    cache: MetadataCache, topics: Topics, group: str = "g", key_type: int = 0
) -> FindCoordinatorResponse:
    request = FindCoordinatorRequest(key=group, key_type=key_type)
    return find_coordinator.handle(cache, topics.create, TOPICS, request, CONTEXT)


def refusal(cache: MetadataCache, topics: Topics, key_type: int = 0) -> ErrorCode:
    refused = find(cache, topics, key_type=key_type)
    assert (refused.node_id, refused.host, refused.port) == (-1, "", -1)
    return ErrorCode(refused.error_code)


def test_coordinator_is_the_leader_of_the_partition_the_group_hashes_to() -> None:
    leaders = (0, 1, 1, 0)
    for group in ("a", "b", "c", "d"):
        response = find(cache_with(*leaders), Topics(), group)
        leader = leaders[partition_for(group, 4)]
        assert (response.node_id, response.host, response.port) == (
            leader,
            f"host{leader}",
            9092 + leader,
        )
        assert response.error_code == ErrorCode.NONE


def test_first_question_creates_the_topic_and_is_told_to_come_again() -> None:
    topics = Topics()
    assert refusal(cache_with(), topics) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert topics.created == [(OFFSETS_TOPIC, 4, 1, topic_properties(OFFSETS))]


def test_topic_that_cannot_be_created_is_no_error_of_the_asker() -> None:
    topics = Topics(ErrorCode.INVALID_REPLICATION_FACTOR)
    assert refusal(cache_with(), topics) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    reason = find(cache_with(), topics).error_message
    assert reason == "__consumer_offsets cannot be created: too few brokers"


def test_partition_without_a_live_leader_has_no_coordinator() -> None:
    topics = Topics()
    assert refusal(cache_with(-1, -1, -1, -1), topics) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert refusal(cache_with(9, 9, 9, 9), topics) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert topics.created == []


def test_first_transactional_producer_creates_the_topic_of_transactions() -> None:
    topics = Topics()
    not_available = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert refusal(cache_with(0, 0, 0, 0), topics, key_type=1) is not_available
    settings = {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }
    assert topics.created == [(TRANSACTIONS_TOPIC, 4, 2, settings)]


def test_coordinator_of_a_transactional_id_leads_the_partition_it_hashes_to() -> None:
    leaders = (0, 1, 1, 0)
    cache = cache_with(*leaders, topic=TRANSACTIONS_TOPIC)
    for name in ("a", "b", "c", "d"):
        response = find(cache, Topics(), name, key_type=1)
        assert response.error_code == ErrorCode.NONE
        assert response.node_id == leaders[partition_for(name, 4)]


def test_keys_that_are_neither_groups_nor_transactions_are_invalid() -> None:
    with pytest.raises(ApiError) as refused:
        find(cache_with(0, 0, 0, 0), Topics(), key_type=2)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
