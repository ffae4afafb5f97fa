"""A round trip by librdkafka, which confluent-kafka is made of."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer

from tests.interop.drivers.round_trip.trip import (
    TIMEOUT_S,
    Trip,
    read_trip,
    say_consumed,
    say_refused,
)

POLL_S = 0.1
TOKEN_LIFETIME_S = 3600


def settings_of(trip: Trip) -> dict[str, Any]:
    """Return the settings of either client."""
    settings: dict[str, Any] = {
        "bootstrap.servers": trip.bootstrap,
        "security.protocol": trip.protocol,
    }
    if trip.has_tls:
        settings["ssl.ca.location"] = trip.ca
    if trip.mechanism == "":
        return settings | {
            "ssl.certificate.location": trip.secret,
            "ssl.key.location": trip.secret,
        }

    settings["sasl.mechanism"] = trip.mechanism
    if trip.mechanism == "OAUTHBEARER":
        return settings | {"oauth_cb": lambda _: (trip.secret, time.time() + TOKEN_LIFETIME_S)}
    return settings | {"sasl.username": trip.user, "sasl.password": trip.secret}


def be_refused(trip: Trip) -> None:
    """Connect until the first error: librdkafka leaves it to programs to give up."""
    errors: list[KafkaError] = []
    producer = Producer({**settings_of(trip), "error_cb": errors.append})
    deadline_s = time.monotonic() + TIMEOUT_S
    while not errors and time.monotonic() < deadline_s:
        producer.poll(POLL_S)
    if errors:
        say_refused(errors[0])


def travel(trip: Trip) -> None:
    """Produce, consume and commit."""
    producer = Producer(settings_of(trip))
    for value in trip.values:
        producer.produce(trip.topic, value.encode())
        time.sleep(trip.pause_s)
        producer.poll(0)
    if producer.flush(TIMEOUT_S):
        raise SystemExit("not produced")

    consumer = Consumer(
        {
            **settings_of(trip),
            "group.id": trip.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([trip.topic])
    values = []
    while len(values) < len(trip.values):
        message = consumer.poll(TIMEOUT_S)
        if message is None or message.error():
            raise SystemExit(f"not consumed: {message and message.error()}")
        values.append(message.value() or b"")
    consumer.commit(asynchronous=False)
    consumer.close()
    say_consumed(values)


if __name__ == "__main__":
    asked = read_trip()
    be_refused(asked.with_wrong_secret())
    travel(asked)
