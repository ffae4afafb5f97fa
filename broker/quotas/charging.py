"""Charge a request to its client's quotas, when its response is there.

The response goes out at once, and says for how long the client should be silent. The connection is
not read for so long, whatever the client does (KIP-219). Of a fetch above its quota the records are
left out, and do not count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from broker.network.dispatch import BROKER_APIS, Dispatched, NoResponse
from broker.network.request_context import RequestContext
from broker.quotas.client_quotas import ClientQuotas, QuotaKind
from protocol.api_key import ApiKey
from protocol.encoding import Encoded
from protocol.errors import ErrorCode
from protocol.header import encode_response
from protocol.messages.fetch import FetchResponse
from protocol.messages.metadata import MetadataResponse

FIRST_METADATA_WITH_THROTTLE_TIME = 3

UNCHARGED_APIS = BROKER_APIS | {ApiKey.WRITE_TXN_MARKERS}
"""Brokers do them for the cluster. The last one administrators send too."""

PERCENT_PER_NS = 1e-7
"""Percent of a second that a nanosecond is."""


@attrs.define(eq=False)
class RequestBill:
    """The bill of one request. `monotonic_ms` is the clock of the quotas' windows."""

    quotas: ClientQuotas
    monotonic_ms: Callable[[], int]
    _has_mutated: bool = False

    def charge(
        self,
        dispatched: Dispatched,
        *,
        request: Any,
        context: RequestContext,
        size: int,
        spent_ns: int,
    ) -> Dispatched:
        """Return the response with what its client is told, and must bear (`Bill`)."""
        now_ms = self.monotonic_ms()
        user, client_id = context.principal.name, context.client_id
        record = self.quotas.record
        key = dispatched.header.api_key
        throttle_ms = 0

        if not _is_exempt(dispatched, request):
            percent = spent_ns * PERCENT_PER_NS
            excess_ms = record(QuotaKind.REQUEST, user, client_id, percent, now_ms)
            throttle_ms = min(excess_ms, self.quotas.window_ms)

        if key == ApiKey.PRODUCE:
            excess_ms = record(QuotaKind.PRODUCE, user, client_id, size, now_ms)
            throttle_ms = max(throttle_ms, excess_ms)
        elif self._has_mutated:
            debt_ms = self.quotas.mutation_debt_ms(user, client_id, now_ms)
            throttle_ms = max(throttle_ms, debt_ms)

        response = dispatched.outcome
        if isinstance(response, FetchResponse) and request.replica_id < 0:
            sent = _encoded_bytes(dispatched)
            excess_ms = record(QuotaKind.FETCH, user, client_id, sent, now_ms)
            throttle_ms = max(throttle_ms, excess_ms)
            if throttle_ms:
                # What is left out does not count.
                record(QuotaKind.FETCH, user, client_id, -sent, now_ms)
                response = FetchResponse(session_id=_session_of(request), responses=[])

        if not throttle_ms:
            return dispatched
        response = _with_throttle_time(response, dispatched.header.api_version, throttle_ms)
        return dispatched._replace(outcome=response, throttle_ms=throttle_ms)

    def take_mutations(self, context: RequestContext, partitions: int, *, is_strict: bool) -> bool:
        """Take the cost of so many new or deleted partitions; return False where it is refused."""
        self._has_mutated = True
        return self.quotas.take_mutations(
            context.principal.name,
            context.client_id,
            partitions,
            self.monotonic_ms(),
            is_strict=is_strict,
        )

    def most_fetched_bytes(self, context: RequestContext, limit: int) -> int:
        """Return how many bytes a response may have to be within the sender's quota."""
        user, client_id = context.principal.name, context.client_id
        return self.quotas.most_bytes(QuotaKind.FETCH, user, client_id, limit)


def _is_exempt(dispatched: Dispatched, request: Any) -> bool:
    """Return whether the time of the request is not its client's to pay for."""
    response = dispatched.outcome
    if isinstance(response, NoResponse) or getattr(request, "replica_id", -1) >= 0:
        return True
    refused = getattr(response, "error_code", 0) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return dispatched.header.api_key in UNCHARGED_APIS and not refused


def _encoded_bytes(dispatched: Dispatched) -> int:
    key, version, correlation_id, _ = dispatched.header
    encoded, _ = encode_response(key, version, correlation_id, dispatched.outcome)
    return int.from_bytes(encoded[:4], "big")


def _session_of(request: Any) -> int:
    """Return the session of a request that goes on; a new one is not begun by an empty response."""
    return request.session_id if request.session_epoch > 0 else 0


def _with_throttle_time(response: Any, version: int, throttle_ms: int) -> Any:
    """Return the response with the time in its field, where it has one."""
    if isinstance(response, Encoded):
        # Metadata has it in front.
        if response.kind is MetadataResponse and version >= FIRST_METADATA_WITH_THROTTLE_TIME:
            return Encoded(response.kind, throttle_ms.to_bytes(4, "big") + response.body[4:])
        return response
    if hasattr(response, "throttle_time_ms"):
        return attrs.evolve(response, throttle_time_ms=throttle_ms)
    return response
