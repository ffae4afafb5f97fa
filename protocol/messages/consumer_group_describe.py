"""ConsumerGroupDescribe reads the state and the members of groups of the protocol `consumer`.

In such groups the coordinator assigns partitions (KIP-848). Brokers from 3.7 on have them; ours
have none. Topic ids are read as two halves.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import BOOL, INT16, INT32, INT64, STRING, Array, message, nested, wire


@message(api=ApiKey.CONSUMER_GROUP_DESCRIBE, versions="0", served="none", flexible="0+")
class ConsumerGroupDescribeRequest:
    """Ask for groups by id."""

    group_ids: Sequence[str] = wire(Array(STRING))
    include_authorized_operations: bool = wire(BOOL, default=False)


@nested
class ConsumerGroupDescribeTopicPartitions:
    """Partitions of one topic."""

    topic_id_most: int = wire(INT64)
    topic_id_least: int = wire(INT64)
    topic_name: str = wire(STRING)
    partitions: Sequence[int] = wire(Array(INT32))


@nested
class ConsumerGroupDescribeAssignment:
    """The partitions of a member."""

    topic_partitions: Sequence[ConsumerGroupDescribeTopicPartitions] = wire(
        Array(ConsumerGroupDescribeTopicPartitions)
    )


@nested
class ConsumerGroupDescribeResponseMember:
    """A member. `target_assignment` is what it will have when all have given up what they lose."""

    member_id: str = wire(STRING)
    instance_id: str | None = wire(STRING, nullable=0, default=None)
    rack_id: str | None = wire(STRING, nullable=0, default=None)
    member_epoch: int = wire(INT32)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    subscribed_topic_names: Sequence[str] = wire(Array(STRING))
    subscribed_topic_regex: str | None = wire(STRING, nullable=0, default=None)
    assignment: ConsumerGroupDescribeAssignment = wire(ConsumerGroupDescribeAssignment)
    target_assignment: ConsumerGroupDescribeAssignment = wire(ConsumerGroupDescribeAssignment)


@nested
class ConsumerGroupDescribeResponseGroup:
    """A group, or GROUP_ID_NOT_FOUND for one of another protocol."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0, default=None)
    group_id: str = wire(STRING)
    group_state: str = wire(STRING)
    group_epoch: int = wire(INT32)
    assignment_epoch: int = wire(INT32)
    assignor_name: str = wire(STRING)
    members: Sequence[ConsumerGroupDescribeResponseMember] = wire(
        Array(ConsumerGroupDescribeResponseMember)
    )
    authorized_operations: int = wire(INT32, default=-(2**31))


@message(api=ApiKey.CONSUMER_GROUP_DESCRIBE, versions="0", flexible="0+")
class ConsumerGroupDescribeResponse:
    """The groups."""

    throttle_time_ms: int = wire(INT32, default=0)
    groups: Sequence[ConsumerGroupDescribeResponseGroup] = wire(
        Array(ConsumerGroupDescribeResponseGroup)
    )


def error_response(
    request: ConsumerGroupDescribeRequest, code: ErrorCode
) -> ConsumerGroupDescribeResponse:
    """Return the error for each group."""
    return ConsumerGroupDescribeResponse(
        groups=[
            ConsumerGroupDescribeResponseGroup(
                error_code=code,
                group_id=group_id,
                group_state="",
                group_epoch=-1,
                assignment_epoch=-1,
                assignor_name="",
                members=[],
            )
            for group_id in request.group_ids
        ]
    )
