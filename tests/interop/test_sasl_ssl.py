"""Logins over TLS: ACLs decide by the name of the login, whatever certificate is shown."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from clients.admin import Admin, NewTopic
from clients.errors import BrokerError
from kgroup import Producer
from protocol.acls import AclBinding, AclEntry, Operation, ResourcePattern, ResourceType
from protocol.errors import ErrorCode
from protocol.sasl.exchange import PLAIN, SCRAM_SHA_512
from tests.stage.certificates import Authority
from tests.stage.sasl_broker import USER, SaslBroker

TIMEOUT_S = 30.0
OPEN, CLOSED, GROUP = "open", "closed", "readers"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    path = tmp_path_factory.mktemp("sasl-ssl")
    authority = Authority(path)
    settings = {
        "listeners": "INSIDE://localhost:0,SALTED://localhost:0",
        "listener.security.protocol.map": "INSIDE:SASL_SSL,SALTED:SASL_SSL",
        "ssl.keystore.location": authority.issue("broker.pem", "localhost"),
        "ssl.truststore.location": authority.trusted,
        "listener.name.salted.ssl.client.auth": "required",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:broker",
    }
    pem = authority.issue("client.pem", "client.example", common_name="mallory")
    tls = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": authority.trusted,
        "ssl.certificate.location": pem,
        "ssl.key.location": pem,
    }
    with SaslBroker(path, settings, tls=tls) as running:
        yield running


async def test_acls_decide_by_who_has_logged_in_over_tls(broker: SaslBroker) -> None:
    async with Admin(broker.client(PLAIN, listener="INSIDE")) as admin:
        created = await admin.create_topics([NewTopic(OPEN, 1, 1), NewTopic(CLOSED, 1, 1)])
        assert set(created.values()) == {None}
        allowed = await admin.create_acls(
            AclBinding(ResourcePattern(kind, name), AclEntry(f"User:{USER}", operation))
            for kind, name, operation in (
                (ResourceType.TOPIC, OPEN, Operation.WRITE),
                (ResourceType.TOPIC, OPEN, Operation.READ),
                (ResourceType.GROUP, GROUP, Operation.READ),
            )
        )
        assert set(allowed.values()) == {None}

    # Ours writes, the stock one reads.
    settings = broker.client(SCRAM_SHA_512)
    async with Producer(settings) as producer:
        await producer.send_and_wait(OPEN, b"v")
        with pytest.raises(BrokerError) as refused:
            await producer.send_and_wait(CLOSED, b"v")
    assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert consume(settings) == b"v"
    assert refusal_of_produce(settings) == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert broker.count("successful_authentications_total", "SALTED") > 0


def consume(settings: dict[str, str]) -> Any:
    """The first value that librdkafka's consumer reads."""
    consumer = confluent_kafka.Consumer(
        settings | {"group.id": GROUP, "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([OPEN])
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None
        return message.value()
    finally:
        consumer.close()


def refusal_of_produce(settings: dict[str, str]) -> int:
    """The code of the error with which librdkafka's producer gives a record up."""
    codes: list[int] = []
    producer = confluent_kafka.Producer(settings)
    producer.produce(CLOSED, b"v", on_delivery=lambda error, _: codes.append(error.code()))
    deadline = time.monotonic() + TIMEOUT_S
    while not codes:
        assert time.monotonic() < deadline
        producer.poll(0.1)
    return codes[0]
