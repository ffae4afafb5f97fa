"""AlterUserScramCredentials: create, replace and delete credentials of users (KIP-554).

The controller serves it, so that changes come one after another. Other brokers follow the
notification; this one has read the credentials when it responds.
"""

from __future__ import annotations

from functools import partial

from broker.authentication.scram_changes import apply_changes, changes_of, check_changes
from broker.authentication.scram_users import ScramUsers
from broker.controller.controller import Controller
from broker.network.authorization import CLUSTER
from broker.network.deferred import Deferred
from broker.network.dispatch import Outcome
from broker.network.request_context import RequestContext, require_authorized
from broker.settings.entity_configs import alter_client
from protocol.acls import Operation
from protocol.errors import ApiError, ErrorCode
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResponseResult,
    error_response,
)
from zk.api import ZkError, ZkSession
from zk.znodes import ClientEntity


def handle(
    controller: Controller,
    zk: ZkSession,
    users: ScramUsers | None,
    deferred: Deferred,
    timeout_ms: int,
    request: AlterUserScramCredentialsRequest,
    context: RequestContext,
) -> Outcome:
    """Respond when the credentials are written, and effective on this broker."""
    if not controller.is_active:
        return error_response(request, ErrorCode.NOT_CONTROLLER)
    # As in Kafka another broker does not say whether the sender may do this.
    require_authorized(context, Operation.ALTER, CLUSTER)
    results: list[AlterUserScramCredentialsResponseResult] = []

    def late() -> AlterUserScramCredentialsResponse:
        unknown = error_response(request, ErrorCode.REQUEST_TIMED_OUT).results
        # Those that are written are no failure because others are late (fault scale-S4).
        known = {result.user for result in results}
        unwritten = [result for result in unknown if result.user not in known]
        return AlterUserScramCredentialsResponse(results=[*results, *unwritten])

    return deferred.respond(_alter_all(zk, users, request, results), timeout_ms, late)


async def _alter_all(
    zk: ZkSession,
    users: ScramUsers | None,
    request: AlterUserScramCredentialsRequest,
    results: list[AlterUserScramCredentialsResponseResult],
) -> AlterUserScramCredentialsResponse:
    """Alter one user after the other. `results` has those that are done."""
    for user, changes in changes_of(request).items():
        code = ErrorCode.NONE
        message = None
        try:
            check_changes(changes)
            await alter_client(zk, ClientEntity(user=user), partial(apply_changes, changes))
        except ApiError as error:
            code = error.code
            message = error.detail
        except ZkError as error:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            message = f"ZooKeeper: {error!r}"
        else:
            # Take the change at once; other brokers follow the notification.
            if users is not None:
                await users.read(user)
        results.append(
            AlterUserScramCredentialsResponseResult(
                user=user, error_code=code, error_message=message
            )
        )
    return AlterUserScramCredentialsResponse(results=results)
