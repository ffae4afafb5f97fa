"""OffsetFetch reads the positions that groups have committed.

v0 reads them from ZooKeeper, later versions from `__consumer_offsets`. v2 adds an error of the
whole request, and from then on a null list of topics means all topics. v3 adds the throttle time,
v5 leader epochs (KIP-320), v7 `require_stable` (KIP-447), v8 several groups at once (KIP-709). v4
adds no field (KIP-219), v6 is v5 in the flexible encoding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import BOOL, INT16, INT32, INT64, STRING, Array, message, nested, wire


@nested
class OffsetFetchRequestTopic:
    """A topic of OffsetFetchRequest."""

    name: str = wire(STRING)
    partition_indexes: Sequence[int] = wire(Array(INT32))


@nested
class OffsetFetchRequestGroup:
    """A group of OffsetFetchRequest; null topics ask for all that it has committed."""

    group_id: str = wire(STRING)
    topics: Sequence[OffsetFetchRequestTopic] | None = wire(
        Array(OffsetFetchRequestTopic), nullable=8
    )


@message(api=ApiKey.OFFSET_FETCH, versions="0-8", sent="0-7", flexible="6+")
class OffsetFetchRequest:
    """Ask for the committed offsets of partitions: those of one group, from v8 on of several.

    With `require_stable` an offset that is being committed gets UNSTABLE_OFFSET_COMMIT. Our clients
    ask for one group at a time.
    """

    group_id: str = wire(STRING, until=7, default="")
    topics: Sequence[OffsetFetchRequestTopic] | None = wire(
        Array(OffsetFetchRequestTopic), until=7, default=(), nullable=2
    )
    groups: Sequence[OffsetFetchRequestGroup] = wire(
        Array(OffsetFetchRequestGroup), since=8, default=()
    )
    require_stable: bool = wire(BOOL, since=7, default=False)


@nested
class OffsetFetchResponsePartition:
    """A partition of OffsetFetchResponse."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, since=5, default=-1)  # -1: not known
    metadata: str | None = wire(STRING, nullable=0)
    error_code: int = wire(INT16)


@nested
class OffsetFetchResponseTopic:
    """A topic of OffsetFetchResponse."""

    name: str = wire(STRING)
    partitions: Sequence[OffsetFetchResponsePartition] = wire(Array(OffsetFetchResponsePartition))


@nested
class OffsetFetchResponseGroup:
    """A group of OffsetFetchResponse, with an error of its own."""

    group_id: str = wire(STRING)
    topics: Sequence[OffsetFetchResponseTopic] = wire(Array(OffsetFetchResponseTopic))
    error_code: int = wire(INT16, default=0)


@message(api=ApiKey.OFFSET_FETCH, versions="0-8", flexible="6+")
class OffsetFetchResponse:
    """The committed offset of each partition, or -1 if there is none."""

    throttle_time_ms: int = wire(INT32, since=3, default=0)
    topics: Sequence[OffsetFetchResponseTopic] = wire(
        Array(OffsetFetchResponseTopic), until=7, default=()
    )
    error_code: int = wire(INT16, since=2, until=7, default=0)
    groups: Sequence[OffsetFetchResponseGroup] = wire(
        Array(OffsetFetchResponseGroup), since=8, default=()
    )


def error_response(request: OffsetFetchRequest, code: ErrorCode) -> OffsetFetchResponse:
    """Refuse the whole request.

    v0 and v1 carry the error for each partition, later versions once, from v8 on for each group.
    """
    return OffsetFetchResponse(
        error_code=code,
        topics=[
            refused_topic(topic.name, topic.partition_indexes, code)
            for topic in request.topics or ()
        ],
        groups=[
            OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=code)
            for group in request.groups
        ],
    )


def refused_topic(
    name: str, partition_indexes: Iterable[int], code: ErrorCode
) -> OffsetFetchResponseTopic:
    """Return the same error for every partition of a topic."""
    return OffsetFetchResponseTopic(
        name=name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=index, committed_offset=-1, metadata="", error_code=code
            )
            for index in partition_indexes
        ],
    )
