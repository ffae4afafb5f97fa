"""DescribeProducers: what the leader of a partition remembers of its producers (KIP-664).

A tool finds transactions by it that no coordinator ends any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any

from broker.cluster.metadata_cache import MetadataCache
from broker.network.deferred import Deferred
from broker.network.dispatch import Outcome
from broker.network.fair_line import owner_of
from broker.network.long_answers import AnswerBytes, LongAnswer
from broker.network.request_context import RequestContext, refused_topics
from broker.replication.replica_manager import ReplicaManager
from core_log.producers.producer_state import NONE, Producer
from protocol.acls import Operation
from protocol.errors import ApiError, ErrorCode
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersResponsePartition,
    DescribeProducersResponseProducer,
    DescribeProducersResponseTopic,
    error_response,
)
from protocol.topic_name import is_legal
from protocol.topic_partition import TopicPartition

PRODUCERS_A_TURN = 1000
"""Producers and partitions that are described in one turn of the loop."""


def handle(
    replicas: ReplicaManager,
    cache: MetadataCache,
    deferred: Deferred,
    timeout_ms: int,
    request: DescribeProducersRequest,
    context: RequestContext,
) -> Outcome:
    """Describe the producers of each partition that is led here, in turns of the loop."""
    topics: list[DescribeProducersResponseTopic] = []
    steps = _describe(replicas, cache, request, topics, context)

    def describe_more() -> Outcome | None:
        count = sum(1 for _ in islice(steps, PRODUCERS_A_TURN))
        return None if count == PRODUCERS_A_TURN else DescribeProducersResponse(topics=topics)

    def respond_late() -> Outcome:
        return error_response(request, ErrorCode.REQUEST_TIMED_OUT)

    return deferred.respond_in_turns(describe_more, timeout_ms, respond_late, owner_of(context))


def _describe(
    replicas: ReplicaManager,
    cache: MetadataCache,
    request: DescribeProducersRequest,
    topics: list[DescribeProducersResponseTopic],
    context: RequestContext,
) -> Iterator[None]:
    """Add the topics of the request to `topics`, in steps of one partition or producer."""
    # Of all of them: one partition may be named very often (fault strangers-8).
    size = AnswerBytes()
    for topic in request.topics:
        partitions = LongAnswer(DescribeProducersResponse, context.api_version, size)
        refused = refused_topics(context, Operation.READ, (topic.name,))
        for index in topic.partition_indexes:
            yield
            described = LongAnswer(DescribeProducersResponse, context.api_version)
            error: ApiError | None = None
            try:
                for producer_id, producer in _producers(
                    replicas, cache, refused, TopicPartition(topic.name, index)
                ):
                    # To encode 150,000 at the end would take a turn of 0.2 s.
                    described.add([_describe_producer(producer_id, producer)])
                    yield
            except ApiError as refusal:
                error = refusal
            active: Any = described.array()
            answer = DescribeProducersResponsePartition(
                partition_index=index,
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else error.code.meaning,
                active_producers=active,
            )
            # To encode all of them at the end would take a turn for itself.
            partitions.add([answer])
        encoded: Any = partitions.array()
        topics.append(DescribeProducersResponseTopic(name=topic.name, partitions=encoded))


def _producers(
    replicas: ReplicaManager,
    cache: MetadataCache,
    refused: Collection[str],
    topic_partition: TopicPartition,
) -> list[tuple[int, Producer]]:
    """Return the producers of a partition that is led here. Raises ApiError."""
    topic = topic_partition.topic
    if not is_legal(topic):
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, topic)
    if topic in refused:
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic)
    if cache.partition_state(topic_partition) is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(topic_partition))
    partition = replicas.partition(topic_partition)
    partition.require_leader()
    return list(partition.log.producers.producers.items())


def _describe_producer(producer_id: int, producer: Producer) -> DescribeProducersResponseProducer:
    return DescribeProducersResponseProducer(
        producer_id=producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.batches[-1].last_sequence if producer.batches else NONE,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.transaction_start,
    )
