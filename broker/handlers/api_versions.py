"""ApiVersions: the versions of each API that this broker serves.

A client that sends the versions of one broker to all others gets less: what stock brokers of 2.8
serve too, so that it works in a cluster of both makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from broker.network.request_context import RequestContext
from protocol.api_key import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.frozen import frozen
from protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ApiVersionsResponseKey,
    is_legal_software,
)
from protocol.registry import API

ASK_ONE_BROKER = frozenset({"kafka-python"})
"""The software that asks the first broker that it meets, and sends the others the same versions."""

LAST_OF_KAFKA: Mapping[ApiKey, int] = {
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.JOIN_GROUP: 7,
    ApiKey.LEAVE_GROUP: 4,
}
"""The last versions of Kafka 2.8, where we serve later ones."""

NOT_OF_KAFKA = frozenset({ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS})
"""The APIs that Kafka 2.8 does not serve."""


@frozen
class ServedVersions:
    """The responses: with all that is served, and with what Kafka 2.8 serves of it."""

    all: ApiVersionsResponse
    of_kafka: ApiVersionsResponse

    @classmethod
    def of(cls, keys: Iterable[ApiKey]) -> ServedVersions:
        """Build the responses, once: the versions of each API that has a handler."""
        listed = sorted(keys)
        last = {key: API[key].served.last for key in listed}
        of_kafka = {
            key: LAST_OF_KAFKA.get(key, last[key]) for key in last if key not in NOT_OF_KAFKA
        }
        return cls(_response(last), _response(of_kafka))


def _response(last_versions: Mapping[ApiKey, int]) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=[
            ApiVersionsResponseKey(
                api_key=key, min_version=API[key].served.first, max_version=last_version
            )
            for key, last_version in last_versions.items()
        ],
    )


def handle(
    served: ServedVersions, request: ApiVersionsRequest, context: RequestContext
) -> ApiVersionsResponse:
    """Respond; from v3 on the client must give a legal name and version (KIP-511)."""
    if context.api_version >= 3:
        if not is_legal_software(request):
            software = f"{request.client_software_name!r} {request.client_software_version!r}"
            raise ApiError(ErrorCode.INVALID_REQUEST, f"client software {software}")
        if request.client_software_name in ASK_ONE_BROKER:
            return served.of_kafka
    return served.all
