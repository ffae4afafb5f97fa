"""Brokers log in at each other: the controller, followers, and writers of internal topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.kbroker.over_zookeeper import OverZooKeeper
from clients.admin import Admin, NewTopic, ScramUpsertion
from clients.high_level.connector import ConsumerConnector
from clients.producer.producer import Producer
from protocol.sasl.exchange import MECHANISMS, OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from tests.stage.broker import Site
from tests.stage.sasl_broker import jaas
from tests.stage.waiting import until

USER = "broker"
OWN = {"username": USER, "password": "in,side"}


def settings_of(mechanism: str) -> dict[str, str]:
    """Both brokers have one listener, for clients too."""
    options = dict(OWN)
    if mechanism == PLAIN:
        options |= {"user_broker": OWN["password"], "user_alice": "secret"}
    if mechanism == OAUTHBEARER:
        options = {"unsecuredLoginStringClaim_sub": USER, "unsecuredValidatorScopeClaimName": "s"}
    return {
        "listeners": "ONLY://127.0.0.1:0",
        "listener.security.protocol.map": "ONLY:SASL_PLAINTEXT",
        "inter.broker.listener.name": "ONLY",
        "sasl.enabled.mechanisms": mechanism,
        "sasl.mechanism.inter.broker.protocol": mechanism,
        f"listener.name.only.{mechanism.lower()}.sasl.jaas.config": jaas(mechanism, **options),
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "2",
        "group.initial.rebalance.delay.ms": "0",
    }


def client_of(mechanism: str, bootstrap: str) -> dict[str, str]:
    entry = jaas(mechanism, **OWN)
    if mechanism == OAUTHBEARER:
        entry = jaas(mechanism, unsecuredLoginStringClaim_sub="alice")
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": entry,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_two_brokers_that_log_in_at_each_other_replicate_and_coordinate(
    mechanism: str, tmp_path: Path
) -> None:
    site = Site(tmp_path)

    # The brokers' own user is there before the first of them starts.
    if mechanism in (SCRAM_SHA_256, SCRAM_SHA_512):
        session = site.zookeeper.session()
        await session.start()
        password = ScramUpsertion(USER, mechanism, OWN["password"])
        assert await OverZooKeeper(session, 5000).change_users([password]) == {USER: None}

    settings = settings_of(mechanism)
    async with site.running(1, **settings) as first, site.running(2, **settings):
        client = client_of(mechanism, first.bootstrap)
        async with Admin(client) as admin, Producer(client | {"acks": "all"}) as producer:

            async def knows_both() -> bool:
                return len((await admin.describe_cluster()).brokers) == 2

            await until(knows_both, "both brokers are known")
            assert await admin.create_topics(
                [NewTopic("t", 1, 2, {"min.insync.replicas": "2"})]
            ) == {"t": None}
            await producer.send_and_wait("t", b"v")

        group = {"group.id": "g", "membership": "coordinator", "auto.offset.reset": "smallest"}
        async with ConsumerConnector(client | group) as connector:
            (stream,) = (await connector.create_message_streams({"t": 1}))["t"]
            assert (await anext(stream)).value == b"v"
