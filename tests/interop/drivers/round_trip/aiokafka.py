"""A round trip by aiokafka.

Its error says that it cannot connect, and nothing else: the reason is in its log. A token that is
refused it takes for accepted, and asks for metadata until its time is used up.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError

from tests.interop.drivers.round_trip.trip import (
    TIMEOUT_S,
    Complaints,
    Trip,
    read_trip,
    say_consumed,
    say_refused,
)

REQUEST_TIMEOUT_MS = 5000


class Token(AbstractTokenProvider):
    """Has one token."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        """Return it."""
        return self._token


def settings_of(trip: Trip) -> dict[str, Any]:
    """Return the settings of either client."""
    settings: dict[str, Any] = {
        "bootstrap_servers": trip.bootstrap,
        "security_protocol": trip.protocol,
        "request_timeout_ms": REQUEST_TIMEOUT_MS,
    }
    if trip.has_tls:
        context = settings["ssl_context"] = ssl.create_default_context(cafile=trip.ca)
        if trip.mechanism == "":
            context.load_cert_chain(trip.secret)
            return settings

    settings["sasl_mechanism"] = trip.mechanism
    if trip.mechanism == "OAUTHBEARER":
        return settings | {"sasl_oauth_token_provider": Token(trip.secret)}
    return settings | {"sasl_plain_username": trip.user, "sasl_plain_password": trip.secret}


async def travel(trip: Trip) -> None:
    """Produce, consume and commit."""
    settings = settings_of(trip)
    producer = AIOKafkaProducer(**settings, acks="all")
    try:
        await producer.start()
        for value in trip.values:
            await producer.send_and_wait(trip.topic, value.encode())
            await asyncio.sleep(trip.pause_s)
    finally:
        await producer.stop()

    consumer = AIOKafkaConsumer(
        trip.topic,
        **settings,
        group_id=trip.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with consumer, asyncio.timeout(TIMEOUT_S):
        values = [(await consumer.getone()).value for _ in trip.values]
        await consumer.commit()
    say_consumed(values)


async def main() -> None:
    """Be refused, then travel."""
    trip, complaints = read_trip(), Complaints("aiokafka")
    try:
        await travel(trip.with_wrong_secret())
    except KafkaError as error:
        say_refused(error, complaints)
    await travel(trip)


if __name__ == "__main__":
    asyncio.run(main())
