"""AlterClientQuotas: write quotas to ZooKeeper, from any broker (KIP-546)."""

from __future__ import annotations

from functools import partial

from broker.network.deferred import Deferred
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from broker.quotas.client_entities import apply_change, quota_keys, read_entity
from broker.settings.entity_configs import alter_client
from protocol.errors import ApiError, ErrorCode
from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntry,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntity,
    AlterClientQuotasResponseEntry,
    error_response,
)
from zk.api import ZkError, ZkSession


def handle(
    zk: ZkSession,
    deferred: Deferred,
    timeout_ms: int,
    request: AlterClientQuotasRequest,
    context: RequestContext,
) -> Wait:
    """Respond when all quotas that could be written are; brokers take them a little later."""
    late = partial(error_response, request, ErrorCode.REQUEST_TIMED_OUT)
    return deferred.respond(_alter_all(zk, request), timeout_ms, late)


async def _alter_all(zk: ZkSession, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    results = []
    for entry in request.entries:
        code, message = ErrorCode.NONE, None
        try:
            await _alter(zk, entry, validate_only=request.validate_only)
        except ApiError as error:
            code, message = error.code, error.detail
        except ZkError as error:
            code, message = ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper: {error!r}"
        results.append(
            AlterClientQuotasResponseEntry(
                error_code=code,
                error_message=message,
                entity=[
                    AlterClientQuotasResponseEntity(
                        entity_type=part.entity_type, entity_name=part.entity_name
                    )
                    for part in entry.entity
                ],
            )
        )
    return AlterClientQuotasResponse(entries=results)


async def _alter(
    zk: ZkSession, entry: AlterClientQuotasRequestEntry, *, validate_only: bool
) -> None:
    entity = read_entity([(part.entity_type, part.entity_name) for part in entry.entity])
    set_to = {op.key: None if op.remove else op.value for op in entry.ops}
    change = partial(apply_change, keys=quota_keys(entity), set_to=set_to)
    await alter_client(zk, entity, change, validate_only=validate_only)
