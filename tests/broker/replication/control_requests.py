"""Control requests to a broker's replicas, and the waits that they wake."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import attrs

from protocol.errors import ErrorCode
from protocol.messages.leader_and_isr import LeaderAndIsrResponse
from protocol.messages.stop_replica import (
    StopReplicaRequest,
    StopReplicaRequestTopic,
    StopReplicaResponse,
)
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import NOW_MS, Replicas, batch, leader_and_isr


def lead_or_follow(world: Replicas, *args: Any, **kwargs: Any) -> LeaderAndIsrResponse:
    """Send a LeaderAndIsr; in leader epoch 0 the topic is new, unless it says otherwise."""
    kwargs.setdefault("is_new", not kwargs.get("epoch"))
    request = leader_and_isr(*args, **kwargs)
    response = world.roles.become_leader_or_follower(request, NOW_MS)
    world.check()
    return response


def stop(
    replicas: Replicas,
    *partitions: TopicPartition,
    delete: bool = False,
) -> StopReplicaResponse:
    response = replicas.roles.stop_replicas(
        StopReplicaRequest(
            controller_id=0,
            controller_epoch=1,
            delete_partitions=delete,
            topics=[
                StopReplicaRequestTopic(name=tp.topic, partition_indexes=[tp.partition])
                for tp in partitions
            ],
        )
    )
    for tp in partitions:
        if tp in replicas.manager.partitions:
            replicas.manager.partition(tp).check()
    return response


def codes(response: LeaderAndIsrResponse | StopReplicaResponse) -> list[ErrorCode]:
    """Return the error of the whole response, then of each partition."""
    parts: Sequence[Any] = response.partition_errors
    return [ErrorCode.of(e.error_code) for e in (response, *parts)]


def append(replicas: Replicas, tp: TopicPartition, *values: bytes) -> None:
    replicas.write(tp, batch(*values), 1_000)


@attrs.define(eq=False)
class NotedWaits:
    """Notes the waits that are woken."""

    woken: list[tuple[Any, ...]] = attrs.field(factory=list)

    def wake_at_end(self, tp: TopicPartition) -> None:
        self.woken.append(("end", tp))

    def wake_at_watermark(self, tp: TopicPartition, high_watermark: int) -> None:
        self.woken.append(("watermark", tp, high_watermark))

    def wake_at_durable_end(self, tp: TopicPartition, durable_end_offset: int) -> None:
        self.woken.append(("durable end", tp, durable_end_offset))

    def wake_at_start(self, tp: TopicPartition) -> None:
        self.woken.append(("start", tp))

    def wake_all(self, *partitions: TopicPartition) -> None:
        self.woken += [("all", tp) for tp in partitions]

    def wake_followers(self, replicas: Container[int]) -> None:
        self.woken.append(("followers", replicas))
