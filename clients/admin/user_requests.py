"""Make the admin client's requests about users of SCRAM, and read the responses (KIP-554).

Passwords are salted here, so that no broker sees them.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence

from clients.admin.descriptions import (
    ScramCredentialInfo,
    ScramDeletion,
    ScramUpsertion,
    UserChange,
)
from clients.admin.verdicts import Verdicts, make_verdict, raise_for
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsRequestDeletion,
    AlterUserScramCredentialsRequestUpsertion,
    AlterUserScramCredentialsResponse,
)
from protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequestUser,
    DescribeUserScramCredentialsResponse,
)
from protocol.sasl.scram import NONCE_BITS, SCRAM_MECHANISMS, nonce_of

_NAME_OF_NUMBER: Mapping[int, str] = {
    mechanism.wire_number: name for name, mechanism in SCRAM_MECHANISMS.items()
}


def describe_request(users: Iterable[str] | None) -> DescribeUserScramCredentialsRequest:
    """Ask for these users, or for all."""
    names = None
    if users is not None:
        names = [DescribeUserScramCredentialsRequestUser(name=name) for name in users]
    return DescribeUserScramCredentialsRequest(users=names)


def described_users(
    response: DescribeUserScramCredentialsResponse,
) -> dict[str, tuple[ScramCredentialInfo, ...]]:
    """Return the credentials of each user that has any. Raises BrokerError."""
    raise_for(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        response.error_code,
        response.error_message or "users",
    )
    users = {}
    for result in response.results:
        if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        raise_for(
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
            result.error_code,
            result.error_message or result.user,
        )
        users[result.user] = tuple(
            ScramCredentialInfo(_NAME_OF_NUMBER[info.mechanism], info.iterations)
            for info in result.credential_infos
            if info.mechanism in _NAME_OF_NUMBER
        )
    return users


def alter_request(changes: Sequence[UserChange]) -> AlterUserScramCredentialsRequest:
    """Ask for these changes. This computes for milliseconds a password."""
    return AlterUserScramCredentialsRequest(
        deletions=[
            AlterUserScramCredentialsRequestDeletion(
                name=change.user, mechanism=SCRAM_MECHANISMS[change.mechanism].wire_number
            )
            for change in changes
            if isinstance(change, ScramDeletion)
        ],
        upsertions=[
            _salt_password(change) for change in changes if isinstance(change, ScramUpsertion)
        ],
    )


def _salt_password(upsertion: ScramUpsertion) -> AlterUserScramCredentialsRequestUpsertion:
    mechanism = SCRAM_MECHANISMS[upsertion.mechanism]
    salt = nonce_of(secrets.randbits(NONCE_BITS)).encode()
    return AlterUserScramCredentialsRequestUpsertion(
        name=upsertion.user,
        mechanism=mechanism.wire_number,
        iterations=upsertion.iterations,
        salt=salt,
        salted_password=mechanism.salt_password(upsertion.password, salt, upsertion.iterations),
    )


def altered_users(response: AlterUserScramCredentialsResponse) -> Verdicts[str]:
    """Return the verdict on each user."""
    return {
        result.user: make_verdict(
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            result.error_code,
            result.error_message or result.user,
        )
        for result in response.results
    }
