"""Responses that hold ranges of files, on a connection."""

from __future__ import annotations

from broker.network.dispatch import Handler
from core_log.storage import FileRange
from protocol.api_key import ApiKey
from protocol.header import encode_request, read_response
from protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
)
from tests.broker.served import Client, echo


def files(*ranges: FileRange | bytes) -> dict[ApiKey, Handler]:
    """Return handlers: a fetch gets these ranges as its partitions, other requests are echoed."""
    response = FetchResponse(
        responses=[
            FetchResponseTopic(
                topic="t",
                partitions=[
                    FetchResponsePartition(
                        partition_index=index, error_code=0, high_watermark=index, records=records
                    )
                    for index, records in enumerate(ranges)
                ],
            )
        ]
    )
    return {ApiKey.FETCH: lambda request, context: response, ApiKey.FIND_COORDINATOR: echo}


def fetch(correlation_id: int) -> bytes:
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
    return encode_request(ApiKey.FETCH, 11, correlation_id, None, request)


async def fetched(client: Client) -> tuple[int, list[bytes]]:
    correlation_id, response = read_response(ApiKey.FETCH, 11, await client.receive())
    return correlation_id, [bytes(p.records) for t in response.responses for p in t.partitions]
