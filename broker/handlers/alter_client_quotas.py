"""AlterClientQuotas: write quotas to ZooKeeper, from any broker (KIP-546)."""

from __future__ import annotations

from functools import partial

from broker.network.addresses import resolve
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
from zk.znodes import DEFAULT


def handle(
    zk: ZkSession,
    deferred: Deferred,
    timeout_ms: int,
    request: AlterClientQuotasRequest,
    context: RequestContext,
) -> Wait:
    """Respond when all quotas that could be written are; brokers take them a little later."""
    results: list[AlterClientQuotasResponseEntry] = []

    def late() -> AlterClientQuotasResponse:
        unknown = error_response(request, ErrorCode.REQUEST_TIMED_OUT).entries
        # Those that are written are no failure because others are late (fault scale-S4).
        unknown = [*results, *unknown[len(results) :]]
        return AlterClientQuotasResponse(entries=unknown)

    return deferred.respond(_alter_all(zk, deferred, request, results), timeout_ms, late)


async def _alter_all(
    zk: ZkSession,
    deferred: Deferred,
    request: AlterClientQuotasRequest,
    results: list[AlterClientQuotasResponseEntry],
) -> AlterClientQuotasResponse:
    """Alter them one after the other. `results` has those that are done."""
    for entry in request.entries:
        code, message = ErrorCode.NONE, None
        try:
            await _alter(zk, deferred, entry, validate_only=request.validate_only)
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
    zk: ZkSession,
    deferred: Deferred,
    entry: AlterClientQuotasRequestEntry,
    *,
    validate_only: bool,
) -> None:
    entity = read_entity([(part.entity_type, part.entity_name) for part in entry.entity])
    if entity.ip not in (None, DEFAULT):
        await _require_host(deferred, str(entity.ip))
    set_to = {op.key: None if op.remove else op.value for op in entry.ops}
    change = partial(apply_change, keys=quota_keys(entity), set_to=set_to)
    await alter_client(zk, entity, change, validate_only=validate_only)


async def _require_host(deferred: Deferred, host: str) -> None:
    """Raise ApiError unless brokers will find an address for the host."""
    try:
        await deferred.in_thread(partial(resolve, host))
    except OSError as error:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"{host} is not a valid IP or resolvable host."
        ) from error
