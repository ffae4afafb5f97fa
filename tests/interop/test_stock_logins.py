"""Stock clients log in at our broker, by each mechanism over each protocol.

`make test` runs the rows of IN_EACH_RUN: each client, and each mechanism over both protocols; and
one client that renews its session. `make interop` runs all combinations, and all renewals.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import attrs
import pytest

from clients.admin import Admin, NewTopic
from protocol.sasl.exchange import MECHANISMS, OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from protocol.topic_partition import TopicPartition
from tests.interop.kafka_cluster import unique
from tests.interop.round_trips import (
    AIOKAFKA,
    CLIENTS,
    FRANZ_GO,
    JAVA_2_8,
    JAVA_3_9,
    KAFKA_PYTHON,
    KAFKAJS,
    LIBRDKAFKA,
    SARAMA,
    VALUES,
    Client,
    make_round_trip,
)
from tests.stage.certificates import Authority, as_java_reads_it
from tests.stage.sasl_broker import PASSWORD, USER, SaslBroker, jaas, signed_token

HOST = "127.0.0.1"
SSL, SASL_SSL, SASL_PLAINTEXT = "SSL", "SASL_SSL", "SASL_PLAINTEXT"
LISTENER_OF = {SSL: "CERTIFIED", SASL_SSL: "ENCRYPTED", SASL_PLAINTEXT: "READABLE"}
BRIEF = "BRIEF"
"""A listener whose sessions end after LIFETIME_MS."""
BY_CERTIFICATE = ""
"""In place of a mechanism: TLS alone, with a certificate of the client."""

REFUSALS = {
    PLAIN: "Invalid username or password",
    SCRAM_SHA_256: "invalid credentials with SASL mechanism SCRAM-SHA-256",
    SCRAM_SHA_512: "invalid credentials with SASL mechanism SCRAM-SHA-512",
    OAUTHBEARER: "invalid_token",
    BY_CERTIFICATE: "(?i)ssl|tls",
}
"""What the error of a client says: the broker's words, where the protocol has any."""
OWN_WORDS = {
    (FRANZ_GO, OAUTHBEARER): "unexpected data in oauth response",
    # Both take any response to their token for a success, and have the next request refused.
    (KAFKAJS, OAUTHBEARER): "not valid given the current SASL state",
    (AIOKAFKA, OAUTHBEARER): "No broker metadata found",
    # It keeps the alert of TLS to itself.
    (AIOKAFKA, BY_CERTIFICATE): "Unable to bootstrap",
}
MOST_ATTEMPTS = 8
"""Of a client with a wrong secret: some try again for a while, none for ever."""

IN_EACH_RUN = (
    (JAVA_2_8, SCRAM_SHA_512, SASL_SSL),
    (JAVA_3_9, OAUTHBEARER, SASL_SSL),
    (LIBRDKAFKA, OAUTHBEARER, SASL_PLAINTEXT),
    (FRANZ_GO, SCRAM_SHA_256, SASL_SSL),
    (FRANZ_GO, BY_CERTIFICATE, SSL),
    (SARAMA, SCRAM_SHA_512, SASL_PLAINTEXT),
    (KAFKAJS, PLAIN, SASL_PLAINTEXT),
    (KAFKA_PYTHON, PLAIN, SASL_SSL),
    (AIOKAFKA, SCRAM_SHA_256, SASL_PLAINTEXT),
)
LOGINS = [
    *((mechanism, protocol) for mechanism in MECHANISMS for protocol in (SASL_SSL, SASL_PLAINTEXT)),
    (BY_CERTIFICATE, SSL),
]
ALL = [
    pytest.param(
        client,
        mechanism,
        protocol,
        id=f"{client}-{mechanism or 'certificate'}-{protocol}",
        marks=() if (client, mechanism, protocol) in IN_EACH_RUN else pytest.mark.product,
    )
    for client in CLIENTS
    for mechanism, protocol in LOGINS
]


LIFETIME_MS = 3000
"""franz-go renews a session a second before its end, and no broker renews one within a second."""
MANY_VALUES = tuple(f"v{number}" for number in range(30))
PAUSE_MS = 150
"""All values together take longer than a session."""
RENEWALS = [
    pytest.param(client, id=str(client), marks=() if client is JAVA_2_8 else pytest.mark.product)
    for client in CLIENTS
]


@attrs.frozen
class Secured:
    """A broker with a listener for each protocol, on which USER alone may do anything."""

    broker: SaslBroker
    authority: Authority
    key: str
    foreign_key: str

    def asked(self, mechanism: str, protocol: str) -> dict[str, str]:
        """Return what a client needs to know, with a wrong secret beside the right one."""
        secret, wrong_secret = PASSWORD, f"{PASSWORD}."
        if mechanism == OAUTHBEARER:
            secret, wrong_secret = signed_token(), signed_token(aud="others")
        elif mechanism == BY_CERTIFICATE:
            secret, wrong_secret = self.key, self.foreign_key
        return {
            "bootstrap": self.broker.address(LISTENER_OF[protocol]),
            "protocol": protocol,
            "mechanism": mechanism,
            "user": USER,
            "secret": secret,
            "wrong_secret": wrong_secret,
            "ca": self.authority.trusted,
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory: Path = tmp_path_factory.mktemp("logins")
    (directory / "others").mkdir()
    authority, others = Authority(directory), Authority(directory / "others")
    protocols = {"INSIDE": SASL_PLAINTEXT, BRIEF: SASL_SSL}
    protocols |= {name: of for of, name in LISTENER_OF.items()}
    settings = {
        "listeners": ",".join(f"{name}://{HOST}:0" for name in protocols),
        "listener.security.protocol.map": ",".join(map(":".join, protocols.items())),
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{directory / 'jwks.json'}",
        "sasl.oauthbearer.expected.audience": "kafka",
        "ssl.keystore.location": authority.issue("broker.pem", HOST),
        "ssl.truststore.location": authority.trusted,
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]*),.*$/$1/",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"User:broker;User:{USER}",
        "listener.name.brief.sasl.enabled.mechanisms": SCRAM_SHA_256,
        "listener.name.brief.connections.max.reauth.ms": str(LIFETIME_MS),
    }
    for protocol in (SASL_SSL, SASL_PLAINTEXT):
        prefix = f"listener.name.{LISTENER_OF[protocol].lower()}"
        users = jaas(PLAIN, **{f"user_{USER}": PASSWORD})
        settings |= {
            f"{prefix}.sasl.enabled.mechanisms": ",".join(MECHANISMS),
            f"{prefix}.plain.sasl.jaas.config": users,
        }
    with SaslBroker(directory, settings) as broker:
        yield Secured(
            broker,
            authority,
            as_java_reads_it(authority.issue("client.pem", "client.example", common_name=USER)),
            as_java_reads_it(others.issue("client.pem", "client.example", common_name=USER)),
        )


def test_each_run_has_each_client_and_each_way_to_log_in() -> None:
    assert {client for client, _, _ in IN_EACH_RUN} == set(CLIENTS)
    assert sorted((mechanism, protocol) for _, mechanism, protocol in IN_EACH_RUN) == sorted(LOGINS)


@pytest.mark.parametrize(("client", "mechanism", "protocol"), ALL)
async def test_client_is_refused_by_a_wrong_secret_and_works_with_the_right_one(
    secured: Secured,
    client: Client,
    mechanism: str,
    protocol: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic, group_id = unique("t"), unique("g")
    async with Admin(secured.broker.client(PLAIN, listener="INSIDE")) as admin:
        assert await admin.create_topics([NewTopic(topic, 1, 1)]) == {topic: None}
        asked = secured.asked(mechanism, protocol) | {"topic": topic, "group": group_id}

        failures = partial(
            secured.broker.count, "failed_authentications_total", LISTENER_OF[protocol]
        )
        before = failures()
        report = await asyncio.to_thread(make_round_trip, client, asked)
        attempts = failures() - before
        attempts += sum("TLS failed" in message for message in caplog.messages)

        # It ends with an error that says why, and asks a few times at most.
        assert report.refusal is not None
        words = OWN_WORDS.get((client, mechanism), REFUSALS[mechanism])
        assert re.search(words, report.refusal)
        assert attempts <= MOST_ATTEMPTS

        assert tuple(report.consumed) == VALUES
        committed = await admin.group_offsets(group_id)
        assert {at: offset.offset for at, offset in committed.items()} == {
            TopicPartition(topic, 0): len(VALUES)
        }


@pytest.mark.parametrize("client", RENEWALS)
async def test_client_whose_sessions_end_renews_them_and_goes_on(
    secured: Secured, client: Client
) -> None:
    topic, group_id = unique("t"), unique("g")
    async with Admin(secured.broker.client(PLAIN, listener="INSIDE")) as admin:
        assert await admin.create_topics([NewTopic(topic, 1, 1)]) == {topic: None}
    asked = secured.asked(SCRAM_SHA_256, SASL_SSL) | {"topic": topic, "group": group_id}
    asked["bootstrap"] = secured.broker.address(BRIEF)

    renewals = partial(secured.broker.count, "successful_reauthentications_total", BRIEF)
    before = renewals()
    report = await asyncio.to_thread(make_round_trip, client, asked, MANY_VALUES, PAUSE_MS)
    assert tuple(report.consumed) == MANY_VALUES
    # aiokafka cannot renew a session: it connects again.
    assert (renewals() > before) == (client is not AIOKAFKA)
