"""Commands of somebody without any right: their errors name the one that the request needs."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from broker.kbroker.command import main as kbroker
from broker.network.authorization import Resource
from broker.network.session import Principal
from clients.errors import BrokerError
from clients.kgroup.command import main as kgroup
from protocol.acls import Operation, ResourceType
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.needs import NEEDS, REFUSALS
from tests.stage.authorizer import AskingAuthorizer
from tests.stage.broker import Site

GRANTED: set[Operation] = set()


def may(principal: Principal, operation: Operation, resource: Resource) -> bool:
    # The broker itself.
    return operation is Operation.CLUSTER_ACTION or operation in GRANTED


@pytest.fixture(autouse=True)
def nothing_is_granted() -> Iterator[None]:
    yield
    GRANTED.clear()


@asynccontextmanager
async def bootstrap(tmp_path: Path) -> AsyncIterator[str]:
    site = Site(tmp_path, authorizer=AskingAuthorizer(may))
    settings = {"offsets_topic_replication_factor": "1", "offsets_topic_num_partitions": "1"}
    async with site.running(1, **settings) as broker:
        yield broker.bootstrap


async def typed(bootstrap: str, line: str) -> Result:
    program, *args = line.split()
    main = {"kbroker": kbroker, "kgroup": kgroup}[program]
    environment = {**os.environ, "KGROUP_BOOTSTRAP_SERVER": bootstrap}
    return await asyncio.to_thread(CliRunner().invoke, main, args, env=environment)


RIGHTS = {
    "kbroker acls list": "DESCRIBE on the cluster",
    "kbroker acls add --allow-principal User:b --operation Read --topic t": "ALTER on the cluster",
    "kbroker users list": "DESCRIBE on the cluster",
    "kbroker users delete bob": "DESCRIBE on the cluster",
    "kbroker quotas describe": "DESCRIBE_CONFIGS on the cluster",
    "kbroker quotas alter --user b --add request_percentage=9": "ALTER_CONFIGS on the cluster",
    "kbroker reassign list": "DESCRIBE on the cluster",
    "kbroker elect preferred --all": "ALTER on the cluster",
    "kbroker configs describe --topic t": "DESCRIBE_CONFIGS on the topic",
    "kbroker configs describe --broker 1": "DESCRIBE_CONFIGS on the cluster",
    "kbroker configs alter --topic t --add retention.ms=1": "ALTER_CONFIGS on the topic",
    "kbroker topics create t": "CREATE on the topic, or on the cluster",
    "kbroker topics delete t": "DELETE on the topic",
    "kbroker transactions describe t": "DESCRIBE on the transactional id",
    "kgroup describe g": "DESCRIBE on the group",
    "kgroup describe g --members": "DESCRIBE on the group",
    "kgroup reset g --topic t --to-earliest": "DESCRIBE on the group",
    "kgroup delete g": "DELETE on the group",
    "kgroup kick g --all": "DESCRIBE on the group",
    "kgroup offsets --topic t": "DESCRIBE on the topic",
}


async def test_each_command_names_the_right_to_ask_for(tmp_path: Path) -> None:
    async with bootstrap(tmp_path) as address:
        for line, right in RIGHTS.items():
            result = await typed(address, line)
            named = result.stderr.strip().rpartition("; ask for ")[2]
            assert (line, result.exit_code, named) == (line, 1, right)


async def test_json_has_it_too(tmp_path: Path) -> None:
    async with bootstrap(tmp_path) as address:
        result = await typed(address, "kgroup delete g -o json")
        (error,) = json.loads(result.stdout)["errors"]
        assert error["error"] == "GROUP_AUTHORIZATION_FAILED"
        assert error["message"].endswith("; ask for DELETE on the group")


async def test_the_right_to_find_a_coordinator_is_not_enough(tmp_path: Path) -> None:
    GRANTED.add(Operation.DESCRIBE)
    async with bootstrap(tmp_path) as address:
        result = await typed(address, "kgroup delete g")
        assert result.stderr.endswith("; ask for DELETE on the group\n")


def test_every_refusal_of_every_api_has_a_right() -> None:
    for api, needs in NEEDS.items():
        for need in needs:
            text = str(BrokerError(need.error, "it", ApiKey(api)))
            assert " ask for " in text, ApiKey(api)
    assert str(BrokerError(ErrorCode.NOT_CONTROLLER, "it", ApiKey.CREATE_TOPICS)) == (
        "NOT_CONTROLLER: it"
    )
    assert str(BrokerError(REFUSALS[ResourceType.TOPIC], "it")) == "TOPIC_AUTHORIZATION_FAILED: it"


def test_a_right_that_makes_up_for_another_is_named() -> None:
    error = BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "", ApiKey.INIT_PRODUCER_ID)
    assert str(error).endswith("; ask for IDEMPOTENT_WRITE on the cluster, or WRITE on any topic")
