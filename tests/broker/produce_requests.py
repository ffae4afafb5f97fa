"""Requests to produce, handled without a network."""

from __future__ import annotations

from typing import Any

from broker.handlers import produce
from protocol.errors import ErrorCode
from protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from tests.broker.replication.replicas import (
    Replicas,
    context,
)


def request(*parts: tuple[str, int, bytes | None], acks: int = 1) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            ProduceRequestTopic(
                name=topic,
                partition_data=[ProduceRequestPartition(index=index, records=records)],
            )
            for topic, index, records in parts
        ],
    )


def handle(replicas: Replicas, produce_request: ProduceRequest, version: int = 7) -> Any:
    return produce.handle(
        replicas.manager, replicas.cache, replicas.deferred, produce_request, context(version)
    )


def codes(response: ProduceResponse) -> list[ErrorCode]:
    return [ErrorCode.of(p.error_code) for t in response.responses for p in t.partition_responses]
