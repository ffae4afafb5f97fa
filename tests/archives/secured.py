"""A cluster of `kbroker dev --secure`: who may log in, what they may do, and what they wrote."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from clients.admin import (
    AclBinding,
    AclEntry,
    AclFilter,
    Admin,
    NewTopic,
    Operation,
    ResourcePattern,
    ResourceType,
)
from clients.high_level.connector import ConsumerConnector
from clients.producer.producer import Producer
from protocol.settings import parse_properties
from protocol.topic_partition import TopicPartition
from tests.stage.cluster import DevCluster
from tests.stage.topic_contents import contents

DIRECTORIES = ("broker-0", "secure")
TOPIC, GROUP = "kept", "readers"
MESSAGES = 10
CAROL, PASSWORD = "carol", "of-a-test"


def arguments() -> tuple[str, ...]:
    """The options of `kbroker dev`."""
    settings = {
        "offsets.topic.num.partitions": "3",
        "log.index.size.max.bytes": "4096",
        "log.cleaner.enable": "false",
        "offsets.retention.minutes": str(2**31 - 1),
    }
    return ("--secure", *(word for pair in settings.items() for word in ("--set", "=".join(pair))))


def settings_of(cluster: DevCluster, user: str) -> dict[str, str]:
    """The settings by which a user logs in."""
    return parse_properties((cluster.directory / "secure" / f"{user}.properties").read_text())


def fill(cluster: DevCluster) -> None:
    """Alice writes and reads what ACLs allow; carol is a user whom an administrator made."""
    asyncio.run(_fill(settings_of(cluster, "admin"), settings_of(cluster, "alice")))
    admin = ("--command-config", str(cluster.directory / "secure" / "admin.properties"))
    for words, stdin in (
        (("users", "create", CAROL, "--password-stdin"), f"{PASSWORD}\n"),
        (("quotas", "alter", "--add", "producer_byte_rate=100000000", "--user", CAROL), ""),
        (("configs", "alter", "--topic", TOPIC, "--add", "retention.ms=-1"), ""),
    ):
        done = cluster.run("kbroker", *words, *admin, stdin=stdin)
        assert done.returncode == 0, done.stdout + done.stderr


async def _fill(as_admin: Mapping[str, str], as_alice: Mapping[str, str]) -> None:
    async with Admin(as_admin) as admin:
        created = await admin.create_topics([NewTopic(TOPIC, 1, 1)])
        assert created == {TOPIC: None}
        allowed = await admin.create_acls(
            AclBinding(ResourcePattern(kind, name), AclEntry(f"User:{user}", operation))
            for kind, name, operation, user in (
                (ResourceType.TOPIC, TOPIC, Operation.WRITE, "alice"),
                (ResourceType.TOPIC, TOPIC, Operation.READ, "alice"),
                (ResourceType.GROUP, GROUP, Operation.READ, "alice"),
                (ResourceType.TOPIC, TOPIC, Operation.DESCRIBE, CAROL),
            )
        )
        assert set(allowed.values()) == {None}

    async with Producer({**as_alice, "acks": "all"}) as producer:
        for number in range(MESSAGES):
            await producer.send_and_wait(TOPIC, b"%d" % number)
    member = {"group.id": GROUP, "membership": "coordinator", "auto.offset.reset": "earliest"}
    async with ConsumerConnector({**as_alice, **member}) as connector:
        (stream,) = (await connector.create_message_streams({TOPIC: 1}))[TOPIC]
        for _ in range(4):
            await anext(stream)
        await connector.commit_offsets()


def look(cluster: DevCluster) -> dict[str, Any]:
    """Return everything that a user would miss."""
    return asyncio.run(_look(settings_of(cluster, "admin"), settings_of(cluster, "alice")))


async def _look(as_admin: dict[str, str], as_alice: dict[str, str]) -> dict[str, Any]:
    partition = TopicPartition(TOPIC, 0)
    bootstrap = as_alice.pop("bootstrap.servers")
    read = await contents(bootstrap, partition, **as_alice)

    async with Admin(as_admin) as admin:
        committed = (await admin.group_offsets(GROUP))[partition]
        users = await admin.describe_user_scram_credentials()
        acls = await admin.describe_acls(AclFilter())
        quotas = await admin.describe_client_quotas()
    return {
        "records": [(record.value or b"").decode() for record in read],
        "committed": committed.offset,
        "users": {
            user: [[credential.mechanism, credential.iterations] for credential in credentials]
            for user, credentials in sorted(users.items())
        },
        "acls": sorted(
            [acl.resource.name, acl.entry.principal, str(acl.entry.operation)] for acl in acls
        ),
        "quotas": sorted([str(entity), limits] for entity, limits in quotas.items()),
    }


def check_logins(cluster: DevCluster) -> None:
    """Carol may log in by her password, and see what she may; not what alice may."""
    as_carol = settings_of(cluster, "alice")
    (jaas,) = [key for key in as_carol if key.endswith("jaas.config")]
    as_carol[jaas] = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{CAROL}" password="{PASSWORD}";'
    )

    async def describe() -> list[str]:
        async with Admin(as_carol) as admin:
            return sorted(await admin.list_topics())

    assert asyncio.run(describe()) == [TOPIC]
