"""LeaderAndIsr tells a broker which partitions it leads and which it follows.

v1 marks new partitions. v2 adds the broker epoch (KIP-380) and groups the partitions by topic.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import BOOL, INT16, INT32, INT64, STRING, Array, message, nested, wire


@nested
class LeaderAndIsrRequestPartitionState:
    """A partition state of LeaderAndIsrRequest."""

    topic_name: str = wire(STRING, until=1, default="")
    partition_index: int = wire(INT32)
    controller_epoch: int = wire(INT32)
    leader: int = wire(INT32)
    leader_epoch: int = wire(INT32)
    isr: Sequence[int] = wire(Array(INT32))
    partition_epoch: int = wire(INT32)
    replicas: Sequence[int] = wire(Array(INT32))
    is_new: bool = wire(BOOL, since=1, default=False)


@nested
class LeaderAndIsrRequestTopicState:
    """A topic state of LeaderAndIsrRequest."""

    topic_name: str = wire(STRING)
    partition_states: Sequence[LeaderAndIsrRequestPartitionState] = wire(
        Array(LeaderAndIsrRequestPartitionState)
    )


@nested
class LeaderAndIsrRequestLiveLeader:
    """A live leader of LeaderAndIsrRequest."""

    broker_id: int = wire(INT32)
    host_name: str = wire(STRING)
    port: int = wire(INT32)


@message(api=ApiKey.LEADER_AND_ISR, versions="0-2", flexible="4+")
class LeaderAndIsrRequest:
    """Lead or follow each partition. `partition_epoch` is the version of its state znode."""

    controller_id: int = wire(INT32)
    controller_epoch: int = wire(INT32)
    # czxid of the broker's znode: a request for the broker's former session is refused.
    broker_epoch: int = wire(INT64, since=2, default=-1)
    ungrouped_partition_states: Sequence[LeaderAndIsrRequestPartitionState] = wire(
        Array(LeaderAndIsrRequestPartitionState), until=1, default=()
    )
    topic_states: Sequence[LeaderAndIsrRequestTopicState] = wire(
        Array(LeaderAndIsrRequestTopicState), since=2, default=()
    )
    live_leaders: Sequence[LeaderAndIsrRequestLiveLeader] = wire(
        Array(LeaderAndIsrRequestLiveLeader)
    )


@nested
class LeaderAndIsrResponsePartitionError:
    """A partition error of LeaderAndIsrResponse."""

    topic_name: str = wire(STRING)
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@message(api=ApiKey.LEADER_AND_ISR, versions="0-2", flexible="4+")
class LeaderAndIsrResponse:
    """The result for each partition."""

    error_code: int = wire(INT16)
    partition_errors: Sequence[LeaderAndIsrResponsePartitionError] = wire(
        Array(LeaderAndIsrResponsePartitionError)
    )


def error_response(request: LeaderAndIsrRequest, code: ErrorCode) -> LeaderAndIsrResponse:
    """Refuse the whole request."""
    return LeaderAndIsrResponse(
        error_code=code,
        partition_errors=[
            LeaderAndIsrResponsePartitionError(
                topic_name=topic, partition_index=state.partition_index, error_code=code
            )
            for topic, state in partition_states(request)
        ],
    )


def partition_states(
    request: LeaderAndIsrRequest,
) -> list[tuple[str, LeaderAndIsrRequestPartitionState]]:
    """List (topic, state) of all partitions, grouped by topic in this version or not."""
    ungrouped = [(state.topic_name, state) for state in request.ungrouped_partition_states]
    grouped = [
        (topic.topic_name, state)
        for topic in request.topic_states
        for state in topic.partition_states
    ]
    return ungrouped + grouped
