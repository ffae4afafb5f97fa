"""`kbroker users`: over brokers, and in ZooKeeper before any broker starts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click.testing
import pytest

from broker.kbroker.command import main
from broker.kbroker.over_zookeeper import OverZooKeeper
from broker.settings.entity_configs import USERS, alter
from clients.admin import ScramDeletion, ScramUpsertion
from protocol.errors import ErrorCode
from protocol.sasl.exchange import PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from protocol.sasl.scram import SCRAM_MECHANISMS, parse_credential
from tests.stage.sasl_broker import SaslBroker
from zk.memory import MemoryZooKeeper
from zk.znodes import ConfigChange, EntityConfig


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    with SaslBroker(tmp_path_factory.mktemp("users")) as running:
        yield running


@pytest.fixture
def command_config(broker: SaslBroker, tmp_path: Path) -> str:
    file = tmp_path / "admin.properties"
    settings = broker.client(PLAIN, "INSIDE")
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(file)


def run(command_config: str, *args: str, stdin: str = "") -> click.testing.Result:
    return click.testing.CliRunner().invoke(
        main, ["users", *args, "--command-config", command_config], input=stdin
    )


def rows_of(command_config: str, user: str) -> list[tuple[str, int]]:
    listed = json.loads(run(command_config, "list", "-o", "json").stdout)
    assert (listed["kind"], listed["errors"]) == ("users", [])
    return [
        (item["mechanism"], item["iterations"]) for item in listed["items"] if item["user"] == user
    ]


def test_a_user_is_created_listed_changed_and_deleted(command_config: str) -> None:
    created = run(command_config, "create", "carol", "--password-stdin", stdin="sesame\nrest\n")
    assert (created.exit_code, created.stdout) == (0, "Created user carol (SCRAM-SHA-512).\n")
    assert rows_of(command_config, "carol") == [(SCRAM_SHA_512, 4096)]

    more = ("--mechanism", SCRAM_SHA_256, "--iterations", "8192", "--password-stdin")
    assert run(command_config, "create", "carol", *more, stdin="sesame").exit_code == 0
    assert rows_of(command_config, "carol") == [(SCRAM_SHA_256, 8192), (SCRAM_SHA_512, 4096)]

    deleted = run(command_config, "delete", "carol", "--mechanism", SCRAM_SHA_512)
    assert (deleted.exit_code, deleted.stdout) == (0, "Deleted user carol.\n")
    assert rows_of(command_config, "carol") == [(SCRAM_SHA_256, 8192)]
    assert run(command_config, "delete", "carol").exit_code == 0
    assert rows_of(command_config, "carol") == []


def test_a_user_that_does_not_exist_cannot_be_deleted(command_config: str) -> None:
    result = run(command_config, "delete", "nobody")
    assert result.exit_code == 1
    assert "user nobody does not exist" in result.stderr


@pytest.mark.parametrize(
    ("args", "stdin", "reason"),
    [
        (("carol",), "", "there is no terminal to ask for a password: --password-stdin"),
        (("carol", "--password-stdin"), "\n", "the first line of standard input is empty"),
        (("carol", "--password-stdin", "--mechanism", "PLAIN"), "p", "--mechanism"),
        (("carol", "--password-stdin", "--iterations", "1"), "p", "--iterations"),
    ],
)
def test_wrong_usage_is_named(
    command_config: str, args: tuple[str, ...], stdin: str, reason: str
) -> None:
    result = run(command_config, "create", *args, stdin=stdin)
    assert result.exit_code == 2
    assert reason in result.stderr


async def test_users_are_kept_in_zookeeper_before_any_broker_starts() -> None:
    zookeeper = MemoryZooKeeper()
    session = zookeeper.session()
    await session.start()
    cluster = OverZooKeeper(session, timeout_ms=5000)
    assert await cluster.describe_users() == {}
    changes = [
        ScramUpsertion("broker", SCRAM_SHA_256, "sesame"),
        ScramDeletion("nobody", SCRAM_SHA_256),
    ]
    verdicts = await cluster.change_users(changes)
    assert verdicts["broker"] is None
    assert verdicts["nobody"] is not None
    assert verdicts["nobody"].code is ErrorCode.RESOURCE_NOT_FOUND

    # The znode is Kafka's, and quotas beside the credential stay.
    path = EntityConfig.path(USERS, "broker")
    config = EntityConfig.decode(zookeeper.tree[path].data).config
    credential = parse_credential(config[SCRAM_SHA_256])
    mechanism = SCRAM_MECHANISMS[SCRAM_SHA_256]
    salted = mechanism.salt_password("sesame", credential.salt, 4096)
    assert credential.server_key == mechanism.hmac(salted, b"Server Key")
    changes_seen = [
        ConfigChange.decode(node.data).entity_path
        for name, node in zookeeper.tree.items()
        if name.startswith(ConfigChange.prefix())
    ]
    assert changes_seen == ["users/broker"]
    await alter(session, USERS, "broker", lambda old: {**old, "producer_byte_rate": "5"})
    await alter(session, USERS, "quota-only", lambda old: {"producer_byte_rate": "5"})
    assert [*(await cluster.describe_users())] == ["broker"]
    await cluster.change_users([ScramDeletion("broker", SCRAM_SHA_256)])
    assert EntityConfig.decode(zookeeper.tree[path].data).config == {"producer_byte_rate": "5"}
