"""Produce appends records to partitions.

v0 to v2 carry message formats 0 and 1, later versions format 2 (KIP-98). v1 adds the throttle
time, v2 the time of the append (KIP-32), v3 the transactional id, v5 the log start offset
(KIP-107), v7 zstd (KIP-110), v8 what is wrong with which record (KIP-467). v4 adds only an error
code, v6 nothing, v9 is v8 in the flexible encoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT16, INT32, INT64, RECORDS, STRING, Array, message, nested, wire


@nested
class ProduceRequestPartition:
    """The records for one partition; from v3 on exactly one batch of format 2."""

    index: int = wire(INT32)
    records: Any = wire(RECORDS, nullable=0)


@nested
class ProduceRequestTopic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partition_data: Sequence[ProduceRequestPartition] = wire(Array(ProduceRequestPartition))


@message(api=ApiKey.PRODUCE, versions="0-9", flexible="9+")
class ProduceRequest:
    """Append records to each partition; `acks` is 0, 1 or -1 (all in-sync replicas)."""

    transactional_id: str | None = wire(STRING, since=3, default=None, nullable=3)
    acks: int = wire(INT16)
    timeout_ms: int = wire(INT32)
    topic_data: Sequence[ProduceRequestTopic] = wire(Array(ProduceRequestTopic))


@nested
class ProduceResponseRecordError:
    """An error of one record in a refused batch."""

    batch_index: int = wire(INT32)
    batch_index_error_message: str | None = wire(STRING, default=None, nullable=8)


@nested
class ProduceResponsePartition:
    """The offset of the first record, or the error.

    `log_append_time_ms` is -1 if the topic keeps the producer's timestamps (CreateTime).
    `error_message` is the common cause of `record_errors`.
    """

    index: int = wire(INT32)
    error_code: int = wire(INT16)
    base_offset: int = wire(INT64)
    log_append_time_ms: int = wire(INT64, since=2, default=-1)
    log_start_offset: int = wire(INT64, since=5, default=-1)
    record_errors: Sequence[ProduceResponseRecordError] = wire(
        Array(ProduceResponseRecordError), since=8, default=()
    )
    error_message: str | None = wire(STRING, since=8, default=None, nullable=8)


@nested
class ProduceResponseTopic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partition_responses: Sequence[ProduceResponsePartition] = wire(Array(ProduceResponsePartition))


@message(api=ApiKey.PRODUCE, versions="0-9", flexible="9+")
class ProduceResponse:
    """The result for each partition."""

    responses: Sequence[ProduceResponseTopic] = wire(Array(ProduceResponseTopic))
    throttle_time_ms: int = wire(INT32, since=1, default=0)


def error_response(request: ProduceRequest, code: ErrorCode) -> ProduceResponse | None:
    """Return the same error for every partition of `request`; None with acks=0."""
    if request.acks == 0:
        return None  # the client reads no response

    return ProduceResponse(
        responses=[
            ProduceResponseTopic(
                name=topic.name,
                partition_responses=[
                    ProduceResponsePartition(index=partition.index, error_code=code, base_offset=-1)
                    for partition in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )
