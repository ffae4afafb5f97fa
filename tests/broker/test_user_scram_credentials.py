"""DescribeUserScramCredentials and AlterUserScramCredentials, asked over the wire (KIP-554)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.server import Broker
from broker.settings.entity_configs import USERS, alter
from clients.transport.connection import Connection
from protocol.errors import ErrorCode
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsRequestDeletion,
    AlterUserScramCredentialsRequestUpsertion,
)
from protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequestUser,
)
from protocol.sasl.scram import SHA_256, SHA_512
from tests.stage.broker import Site, connected
from tests.stage.waiting import until
from zk.znodes import EntityConfig


def deletion(name: str, mechanism: int = 1) -> AlterUserScramCredentialsRequestDeletion:
    return AlterUserScramCredentialsRequestDeletion(name=name, mechanism=mechanism)


def upsertion(
    name: str, mechanism: int = 1, iterations: int = 4096
) -> AlterUserScramCredentialsRequestUpsertion:
    scram = SHA_256 if mechanism == 1 else SHA_512
    return AlterUserScramCredentialsRequestUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=b"salt",
        salted_password=scram.salt_password("secret", b"salt", 4096),
    )


async def change(
    connection: Connection,
    *upsertions: AlterUserScramCredentialsRequestUpsertion,
    deletions: tuple[AlterUserScramCredentialsRequestDeletion, ...] = (),
) -> dict[str, ErrorCode]:
    request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
    response = await connection.call(request)
    return {result.user: ErrorCode.of(result.error_code) for result in response.results}


async def describe(
    connection: Connection, *names: str
) -> dict[str, tuple[ErrorCode, list[tuple[int, int]]]]:
    users = [DescribeUserScramCredentialsRequestUser(name=name) for name in names]
    response = await connection.call(DescribeUserScramCredentialsRequest(users=users or None))
    assert response.error_code == 0
    return {
        result.user: (
            ErrorCode.of(result.error_code),
            [(info.mechanism, info.iterations) for info in result.credential_infos],
        )
        for result in response.results
    }


async def is_controller(connection: Connection) -> bool:
    codes = await change(connection, deletions=(deletion("nobody"),))
    return codes == {"nobody": ErrorCode.RESOURCE_NOT_FOUND}


@contextlib.asynccontextmanager
async def connected_to_controller(broker: Broker) -> AsyncIterator[Connection]:
    """A connection to the only broker, once it is the controller."""
    async with connected(broker) as connection:
        await until(lambda: is_controller(connection), "the broker is the controller")
        yield connection


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def test_users_are_changed_each_by_itself(site: Site) -> None:
    async with site.running() as broker, connected_to_controller(broker) as connection:
        await alter(site.session, USERS, "CN=a, O=b", lambda old: {"producer_byte_rate": "5"})
        codes = await change(
            connection,
            upsertion("CN=a, O=b", 1),
            upsertion("CN=a, O=b", 2, 8192),
            upsertion("weak", 1, 4095),
            upsertion("twice"),
            upsertion("twice"),
            upsertion(""),
            deletions=(deletion("nobody"), deletion("CN=a, O=b", 7)),
        )
        assert codes == {
            "nobody": ErrorCode.RESOURCE_NOT_FOUND,
            "CN=a, O=b": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "weak": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "twice": ErrorCode.DUPLICATE_RESOURCE,
            "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        }
        assert await describe(connection) == {}

        both = (upsertion("CN=a, O=b", 1), upsertion("CN=a, O=b", 2, 8192))
        assert await change(connection, *both) == {"CN=a, O=b": ErrorCode.NONE}
        assert await describe(connection) == {"CN=a, O=b": (ErrorCode.NONE, [(1, 4096), (2, 8192)])}
        node = site.zookeeper.tree["/config/users/CN%3Da%2C%20O%3Db"]
        assert EntityConfig.decode(node.data).config["producer_byte_rate"] == "5"


@pytest.mark.fault("strangers-14")
async def test_named_users_are_described_in_their_order(site: Site) -> None:
    async with site.running() as broker, connected_to_controller(broker) as connection:
        await change(connection, upsertion("a"), upsertion("b"), upsertion("c"))
        described = await describe(connection, "b", "nobody", "a", "a", "")
        assert [*described.items()] == [
            ("b", (ErrorCode.NONE, [(1, 4096)])),
            ("nobody", (ErrorCode.RESOURCE_NOT_FOUND, [])),
            ("a", (ErrorCode.DUPLICATE_RESOURCE, [])),
            ("", (ErrorCode.RESOURCE_NOT_FOUND, [])),
        ]
        assert [*await describe(connection)] == ["a", "b", "c"]


async def test_a_broker_that_is_not_the_controller_refuses_changes_of_every_user(
    site: Site,
) -> None:
    async with site.running(1), site.running(2) as second, connected(second) as connection:
        codes = await change(connection, upsertion("a"), deletions=(deletion("b"),))
        assert codes == dict.fromkeys(("a", "b"), ErrorCode.NOT_CONTROLLER)
