"""A round trip by kafka-python.

It tries again until it has used up the time for its first connection, whatever the reason, which is
in its log alone.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.interop.drivers.round_trip.trip import (
    TIMEOUT_S,
    Complaints,
    Trip,
    read_trip,
    say_consumed,
    say_refused,
)

BOOTSTRAP_MS = 3000


class Token(AbstractTokenProvider):
    """Has one token."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        """Return it."""
        return self._token


def settings_of(trip: Trip) -> dict[str, Any]:
    """Return the settings of either client."""
    settings: dict[str, Any] = {
        "bootstrap_servers": trip.bootstrap,
        "security_protocol": trip.protocol,
        "bootstrap_timeout_ms": BOOTSTRAP_MS,
    }
    if trip.has_tls:
        settings["ssl_cafile"] = trip.ca
    if trip.mechanism == "":
        return settings | {"ssl_certfile": trip.secret, "ssl_keyfile": trip.secret}

    settings["sasl_mechanism"] = trip.mechanism
    if trip.mechanism == "OAUTHBEARER":
        return settings | {"sasl_oauth_token_provider": Token(trip.secret)}
    return settings | {"sasl_plain_username": trip.user, "sasl_plain_password": trip.secret}


def travel(trip: Trip) -> None:
    """Produce, consume and commit."""
    settings = settings_of(trip)
    with contextlib.closing(KafkaProducer(**settings, acks="all")) as producer:
        for value in trip.values:
            producer.send(trip.topic, value.encode()).get(TIMEOUT_S)
            time.sleep(trip.pause_s)

    consumer = KafkaConsumer(
        trip.topic,
        **settings,
        group_id=trip.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=TIMEOUT_S * 1000,
    )
    with contextlib.closing(consumer):
        values = [message.value for _, message in zip(trip.values, consumer, strict=False)]
        consumer.commit()
    say_consumed(values)


if __name__ == "__main__":
    asked, complaints = read_trip(), Complaints("kafka")
    try:
        travel(asked.with_wrong_secret())
    except KafkaError as error:
        say_refused(error, complaints)
    travel(asked)
