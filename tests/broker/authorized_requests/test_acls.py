"""A broker with Kafka's authorizer in its settings: ACLs in ZooKeeper, and over the wire."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner, Result

from broker.authorization.acl_authorizer import AclAuthorizer
from broker.authorization.acl_index import Policy
from broker.kbroker.command import main
from broker.server import Broker
from clients.admin import Admin, NewTopic
from clients.errors import BrokerError, ConnectionFailed
from clients.transport.connection import Connection
from protocol.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from protocol.errors import ErrorCode
from protocol.messages.describe_acls import DescribeAclsRequest
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.authorized_requests.requests import fetch, metadata, offset_commit, produce
from tests.broker.authorized_requests.stage import (
    CLUSTER_FAILED,
    GROUP_FAILED,
    TOPIC_FAILED,
    errors,
)
from tests.stage.broker import Site, connected
from tests.stage.waiting import until_equal

AUTHORIZER = {"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer"}
ONE_COORDINATOR = {
    "offsets_topic_replication_factor": "1",
    "offsets_topic_num_partitions": "1",
    "group_initial_rebalance_delay_ms": "0",
}
ANYBODY = "User:ANONYMOUS"


def acl(
    kind: ResourceType,
    name: str,
    operation: Operation,
    permission: Permission = Permission.ALLOW,
    pattern: PatternType = PatternType.LITERAL,
) -> AclBinding:
    return AclBinding(
        ResourcePattern(kind, name, pattern), AclEntry(ANYBODY, operation, permission)
    )


def on_topic(operation: Operation, name: str = "t", **rest: Any) -> AclBinding:
    return acl(ResourceType.TOPIC, name, operation, **rest)


def on_cluster(operation: Operation) -> AclBinding:
    return acl(ResourceType.CLUSTER, "kafka-cluster", operation)


@attrs.define(eq=False)
class AclSite:
    """A broker, a connection to it, and what writes ACLs past it."""

    broker: Broker
    connection: Connection
    writer: AclAuthorizer

    async def allow(self, *bindings: AclBinding) -> None:
        """Add ACLs and wait until the broker decides by them."""
        assert await self.writer.add(bindings) == [None] * len(bindings)
        await self._until_followed()

    async def revoke(self, *bindings: AclBinding) -> None:
        await self.writer.remove([AclFilter.exactly(binding) for binding in bindings])
        await self._until_followed()

    async def _until_followed(self) -> None:
        followed = self.broker.acls
        assert followed is not None

        async def known() -> set[AclBinding]:
            return set(followed.find(AclFilter()))

        await until_equal(known, set(self.writer.find(AclFilter())))

    async def errors(self, request: Any, version: int | None = None) -> dict[str, ErrorCode]:
        response = await self.connection.call(request, version=version)
        return {name: code for name, code in errors(response).items() if name or code}


@asynccontextmanager
async def running(tmp_path: Path, **settings: str) -> AsyncIterator[AclSite]:
    """A broker on which anybody may act as a broker, and nothing else."""
    site = Site(tmp_path)
    session = site.zookeeper.session()
    await session.start()
    writer = AclAuthorizer(session, Policy(), asyncio.ensure_future)
    await writer.add([on_cluster(Operation.CLUSTER_ACTION)])

    started = site.running(1, **(AUTHORIZER | ONE_COORDINATOR | settings))
    async with started as broker, connected(broker) as connection:
        yield AclSite(broker, connection, writer)


async def test_acls_decide_over_the_wire_and_follow_changes(tmp_path: Path) -> None:
    async with running(tmp_path) as site:
        # Nothing is allowed, and an existing name looks like a missing one.
        assert await site.errors(produce("t")) == {"t": TOPIC_FAILED}
        assert await site.errors(metadata("t")) == {"t": TOPIC_FAILED}
        assert (await site.connection.call(MetadataRequest(topics=None))).topics == ()

        # A prefix is enough to create, and for nothing else.
        await site.allow(on_topic(Operation.CREATE, pattern=PatternType.PREFIXED))
        async with Admin(site.broker.bootstrap) as admin:
            assert await admin.create_topics([NewTopic("t", 1, 1)]) == {"t": None}
        assert await site.errors(produce("t")) == {"t": TOPIC_FAILED}

        # Writing implies describing.
        await site.allow(on_topic(Operation.WRITE))
        assert await site.errors(produce("t")) == {"t": ErrorCode.NONE}
        assert await site.errors(metadata("t")) == {"t": ErrorCode.NONE}
        assert await site.errors(fetch("t")) == {"t": TOPIC_FAILED}

        await site.allow(on_topic(Operation.READ, "*"))
        assert await site.errors(fetch("t")) == {"t": ErrorCode.NONE}
        await site.allow(on_topic(Operation.READ, permission=Permission.DENY))
        assert await site.errors(fetch("t")) == {"t": TOPIC_FAILED}
        await site.revoke(on_topic(Operation.WRITE))
        assert await site.errors(produce("t")) == {"t": TOPIC_FAILED}


async def test_a_session_of_fetches_obeys_what_changes_meanwhile(tmp_path: Path) -> None:
    async with running(tmp_path) as site:
        create, write = on_topic(Operation.CREATE, "*"), on_topic(Operation.WRITE, "*")
        await site.allow(create, write, on_topic(Operation.READ))
        async with Admin(site.broker.bootstrap) as admin:
            await admin.create_topics([NewTopic("t", 1, 1)])
        await site.connection.call(produce("t"))

        first = await site.connection.call(fetch("t", session=(0, 0)))
        assert errors(first) == {"": ErrorCode.NONE, "t": ErrorCode.NONE}
        session = first.session_id
        assert await site.errors(fetch("t", session=(session, 1))) == {"t": ErrorCode.NONE}
        await site.revoke(on_topic(Operation.READ))
        assert await site.errors(fetch("t", session=(session, 2))) == {"t": TOPIC_FAILED}
        await site.allow(on_topic(Operation.READ))
        assert await site.errors(fetch("t", session=(session, 3))) == {"t": ErrorCode.NONE}


async def test_super_users_need_no_acl(tmp_path: Path) -> None:
    async with running(tmp_path, super_users=f"User:admin;{ANYBODY}") as site:
        async with Admin(site.broker.bootstrap) as admin:
            assert await admin.create_topics([NewTopic("t", 1, 1)]) == {"t": None}
        assert await site.errors(produce("t")) == {"t": ErrorCode.NONE}


async def test_an_open_cluster_closes_with_the_first_acl_of_a_resource(tmp_path: Path) -> None:
    async with running(tmp_path, allow_everyone_if_no_acl_found="true") as site:
        # The cluster has an ACL of its own, so that topics need one to be created.
        async with Admin(site.broker.bootstrap) as admin:
            assert await admin.create_topics([NewTopic("t", 1, 1)]) == {"t": None}
        assert await site.errors(produce("t")) == {"t": ErrorCode.NONE}
        other = AclBinding(
            ResourcePattern(ResourceType.TOPIC, "t"), AclEntry("User:bob", Operation.READ)
        )
        await site.allow(other)
        assert await site.errors(produce("t")) == {"t": TOPIC_FAILED}


# ---- the APIs of ACLs


async def test_admins_create_describe_and_delete_acls(tmp_path: Path) -> None:
    async with running(tmp_path) as site, Admin(site.broker.bootstrap) as admin:
        prefixed = on_topic(Operation.READ, "p-", pattern=PatternType.PREFIXED)
        literal = on_topic(Operation.WRITE)

        # Describe is for reading them, Alter for changing them.
        with pytest.raises(BrokerError) as refused:
            await admin.describe_acls()
        assert refused.value.code is CLUSTER_FAILED
        (error,) = (await admin.create_acls([literal])).values()
        assert error is not None
        assert error.code is CLUSTER_FAILED
        with pytest.raises(BrokerError):
            await admin.delete_acls([AclFilter()])

        await site.allow(on_cluster(Operation.ALTER))
        assert await admin.create_acls([literal, prefixed]) == {literal: None, prefixed: None}
        assert literal in await admin.describe_acls()
        # At once, in this broker.
        assert await site.errors(produce("t")) == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

        match = AclFilter(ResourceType.TOPIC, "p-1", PatternType.MATCH)
        assert await admin.describe_acls(match) == [prefixed]
        exactly = AclFilter.exactly(literal)
        assert await admin.delete_acls([match, exactly]) == {
            match: {prefixed: None},
            exactly: {literal: None},
        }
        assert await admin.describe_acls(AclFilter(ResourceType.TOPIC)) == []


async def test_a_bad_acl_has_its_own_error_and_the_others_are_made(tmp_path: Path) -> None:
    async with running(tmp_path) as site, Admin(site.broker.bootstrap) as admin:
        await site.allow(on_cluster(Operation.ALTER))
        empty = on_topic(Operation.READ, "")
        foo = acl(ResourceType.CLUSTER, "foo", Operation.ALTER)
        verdicts = await admin.create_acls([empty, on_topic(Operation.READ), foo])
        codes = [error and error.code for error in verdicts.values()]
        assert codes == [ErrorCode.INVALID_REQUEST, None, ErrorCode.INVALID_REQUEST]
        assert "kafka-cluster" in str(verdicts[foo])


def describe(version: int, **words: int) -> DescribeAclsRequest:
    named = {
        "resource_type_filter": ResourceType.ANY,
        "pattern_type_filter": PatternType.LITERAL,
        "operation": Operation.ANY,
        "permission_type": Permission.ANY,
    } | words
    return DescribeAclsRequest(
        resource_name_filter=None, principal_filter=None, host_filter=None, **named
    )


async def test_version_0_knows_literal_names_alone(tmp_path: Path) -> None:
    async with running(tmp_path) as site:
        await site.allow(
            on_cluster(Operation.DESCRIBE),
            on_topic(Operation.READ),
            on_topic(Operation.READ, "p", pattern=PatternType.PREFIXED),
        )
        response = await site.connection.call(describe(0), version=0)
        assert {resource.resource_name for resource in response.resources} == {
            "t",
            "kafka-cluster",
        }
        anyhow = describe(1, pattern_type_filter=PatternType.ANY)
        response = await site.connection.call(anyhow, version=1)
        assert len(response.resources) == 3


@pytest.mark.parametrize(
    "field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"]
)
@pytest.mark.parametrize("number", [0, 99])
async def test_a_word_that_is_unknown_closes_the_connection(
    tmp_path: Path, field: str, number: int
) -> None:
    async with running(tmp_path, super_users=ANYBODY) as site:
        with pytest.raises(ConnectionFailed):
            await site.connection.call(describe(1, **{field: number}), version=1)


async def test_without_an_authorizer_there_are_no_acls(tmp_path: Path) -> None:
    async with Site(tmp_path).running(1) as broker, Admin(broker.bootstrap) as admin:
        for call in (admin.describe_acls(), admin.delete_acls([AclFilter()])):
            with pytest.raises(BrokerError) as refused:
                await call
            assert refused.value.code is ErrorCode.SECURITY_DISABLED
            assert "No Authorizer is configured on the broker" in str(refused.value)
        (error,) = (await admin.create_acls([on_topic(Operation.READ)])).values()
        assert error is not None
        assert error.code is ErrorCode.SECURITY_DISABLED


# ---- authorized operations (KIP-430)

EVERYTHING_OF_A_TOPIC = 3576
EVERYTHING_OF_THE_CLUSTER = 8096
NOT_ASKED = -(2**31)


def with_operations(*names: str, asks: bool = True) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names] or None,
        include_topic_authorized_operations=asks,
        include_cluster_authorized_operations=asks,
    )


def bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


@pytest.mark.parametrize("version", [8, 9, 10])
async def test_metadata_says_what_the_sender_may_do(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as site:
        await site.allow(*(on_topic(Operation.CREATE, name) for name in ("t", "hidden")))
        async with Admin(site.broker.bootstrap) as admin:
            await admin.create_topics([NewTopic("t", 1, 1), NewTopic("hidden", 1, 1)])
        await site.allow(on_topic(Operation.READ), on_topic(Operation.DESCRIBE_CONFIGS))
        of_topic = bits(
            Operation.READ, Operation.DESCRIBE, Operation.CREATE, Operation.DESCRIBE_CONFIGS
        )

        async def masks(request: MetadataRequest) -> tuple[int, dict[str, int]]:
            response = await site.connection.call(request, version=version)
            return response.cluster_authorized_operations, {
                topic.name: topic.topic_authorized_operations for topic in response.topics
            }

        # The cluster's are 0 to those who may not describe it; a refused topic has none.
        assert await masks(with_operations()) == (0, {"t": of_topic})
        expected = {"t": of_topic, "hidden": NOT_ASKED}
        assert await masks(with_operations("t", "hidden")) == (0, expected)
        assert await masks(with_operations("t", asks=False)) == (NOT_ASKED, {"t": NOT_ASKED})
        assert await masks(with_operations(asks=False)) == (NOT_ASKED, {"t": NOT_ASKED})

        await site.allow(on_cluster(Operation.ALTER))
        of_cluster = bits(Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION)
        cluster, _ = await masks(with_operations())
        assert cluster == of_cluster
        # From version 11 of Metadata on it is a request of its own.
        for asks, mask in ((True, of_cluster), (False, NOT_ASKED)):
            request = DescribeClusterRequest(include_cluster_authorized_operations=asks)
            described = await site.connection.call(request)
            assert described.cluster_authorized_operations == mask


async def test_without_an_authorizer_everything_may_be_done(tmp_path: Path) -> None:
    async with Site(tmp_path).running(1) as broker, connected(broker) as connection:
        async with Admin(broker.bootstrap) as admin:
            await admin.create_topics([NewTopic("t", 1, 1)])
        for request in (with_operations(), with_operations("t")):
            response = await connection.call(request, version=10)
            assert response.cluster_authorized_operations == EVERYTHING_OF_THE_CLUSTER
            (topic,) = response.topics
            assert topic.topic_authorized_operations == EVERYTHING_OF_A_TOPIC


async def test_groups_are_described_with_what_the_sender_may_do(tmp_path: Path) -> None:
    async with running(tmp_path) as site:
        request = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
        (described,) = (await site.connection.call(request)).groups
        assert described.error_code == GROUP_FAILED
        assert described.authorized_operations == NOT_ASKED


# ---- the audit log


async def test_decisions_are_logged_in_kafkas_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def logged() -> list[tuple[str, str]]:
        lines = [
            (record.levelname, record.getMessage())
            for record in caplog.records
            if record.name == "kafka.authorizer.logger"
        ]
        caplog.clear()
        return lines

    line = "Principal = User:ANONYMOUS is {} Operation = {} from host = 127.0.0.1 on resource = {}"
    async with running(tmp_path) as site:
        caplog.set_level(logging.INFO, "kafka.authorizer.logger")
        logged()
        await site.errors(produce("t"))
        assert logged() == [("INFO", line.format("Denied", "Write", "Topic:LITERAL:t"))]
        await site.errors(offset_commit("t"))
        assert logged() == [("INFO", line.format("Denied", "Read", "Group:LITERAL:g"))]
        # Left out is not refused.
        await site.connection.call(MetadataRequest(topics=None))
        assert logged() == []

        # What is allowed is logged at DEBUG, and then no request takes a short way.
        await site.allow(on_topic(Operation.WRITE))
        await site.errors(produce("t"))
        assert logged() == []
        caplog.set_level(logging.DEBUG, "kafka.authorizer.logger")
        await site.errors(produce("t"))
        assert logged() == [("DEBUG", line.format("Allowed", "Write", "Topic:LITERAL:t"))]


# ---- the command


async def run(site: AclSite, *args: str, stdin: str = "") -> Result:
    command = ["acls", *args, "-b", site.broker.bootstrap]
    return await asyncio.to_thread(CliRunner().invoke, main, command, input=stdin)


async def items(site: AclSite, *args: str) -> list[dict[str, str]]:
    result = await run(site, *args, "-o", "json")
    assert result.exit_code == 0, result.output
    listing = json.loads(result.stdout)
    assert listing["kind"] == "acls"
    found: list[dict[str, str]] = listing["items"]
    return found


async def test_the_command_adds_lists_and_removes_acls(tmp_path: Path) -> None:
    async with running(tmp_path) as site:
        refused = await run(site, "list")
        assert refused.exit_code == 1
        assert "CLUSTER_AUTHORIZATION_FAILED" in refused.stderr

        await site.allow(on_cluster(Operation.ALTER))
        line = "add --allow-principal User:alice --producer --topic flights"
        added = await items(site, *line.split())
        assert [item["operation"] for item in added] == ["WRITE", "CREATE", "DESCRIBE"]
        assert await items(site, "list", "--topic", "flights") == added
        assert await items(site, "--list", "--principal", "User:alice") == added
        table = await run(site, "list", "--topic", "flights")
        assert table.stdout.splitlines()[0].split()[:2] == ["RESOURCE-TYPE", "NAME"]

        # Without --force the command asks, and shows what it would remove.
        for answer, left in (("n\n", 3), ("y\n", 0)):
            asked = await run(site, "remove", "--topic", "flights", stdin=answer)
            assert "Remove these 3 ACLs?" in asked.stderr
            assert len(await items(site, "list", "--topic", "flights")) == left

        bad = await run(site, "add", "--allow-principal", "User:a", "--topic", "a/b")
        assert bad.exit_code == 1
        assert "invalid resource name" in bad.stderr


async def test_force_removes_without_asking(tmp_path: Path) -> None:
    async with running(tmp_path) as site:
        await site.allow(on_cluster(Operation.ALTER), on_topic(Operation.READ))
        removed = await items(site, "--remove", "--topic", "t", "--force")
        assert [item["operation"] for item in removed] == ["READ"]
        cluster = await items(site, "list", "--cluster")
        assert {item["operation"] for item in cluster} == {"CLUSTER_ACTION", "ALTER"}
