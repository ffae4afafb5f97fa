"""Measure logins by SCRAM-SHA-512: connect, log in with the requests of Java's client, and close.

Several clients take each step together. The driver salts the password once: in clients that takes
longer than all that the broker does.
"""

import contextlib
import secrets
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import attrs

from benchmarks.brokers import Broker, Side, install
from benchmarks.load import Address, LoadError, ask_all, connect
from benchmarks.produce import COMPILED_AFTER_S
from benchmarks.rounds import Rounds, alternate
from benchmarks.table import Row, at_least, at_most
from clients.admin import Admin, ScramUpsertion
from protocol.api_key import ApiKey
from protocol.header import encode_request, read_response
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.messages.sasl_handshake import SaslHandshakeRequest
from protocol.sasl.exchange import SCRAM_SHA_512
from protocol.sasl.scram import NONCE_BITS, SHA_512, ScramClient, ScramMechanism, nonce_of

AT_ONCE = 32
USER, PASSWORD = "alice", "benchmark"
_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_SETTINGS = {
    "sasl.enabled.mechanisms": SCRAM_SHA_512,
    "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": f"{_MODULE} required;",
}


class SaltedOnce(ScramMechanism):
    """SCRAM-SHA-512 whose client remembers salted passwords."""

    def salt_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        """Return Hi(password, salt, iterations)."""
        return _salt_password(password, salt, iterations)


_SALTED_ONCE = SaltedOnce(**attrs.asdict(SHA_512))
_salt_password = lru_cache(SHA_512.salt_password)


def measure(sides: Sequence[Side], directory: Path, rounds: Rounds) -> Iterator[Row]:
    """Yield a row of logins a second."""
    with contextlib.ExitStack() as stack:
        contestants = []
        for number, side in enumerate(sides):
            broker, address = _start(side, directory / f"logins-{number}")
            stack.callback(broker.process.stop, at_once=True)
            contestants.append(partial(_log_in_often, broker, address))

            # A JVM compiles its code before the first round.
            _log_in_often(broker, address, COMPILED_AFTER_S)
        rate, cpu = alternate(contestants, rounds)
        yield Row("logins by SCRAM-SHA-512", "1/s", at_least(0.5), rate)
        wanted = at_most(2.0, changed="from 1 on 2026-11-27: half of the peer's rate is wanted")
        yield Row("broker CPU of a login", "ms", wanted, cpu)


def _start(side: Side, directory: Path) -> tuple[Broker, Address]:
    """Start a broker with a user; return it, and the address of its listener with logins."""
    place = install(side, directory, directory.name, _SETTINGS)
    address = place.add_listener("SASL_PLAINTEXT")
    broker = place.start()

    async def create_user(admin: Admin) -> None:
        upsertion = ScramUpsertion(USER, SCRAM_SHA_512, PASSWORD)
        for error in (await admin.alter_user_scram_credentials([upsertion])).values():
            if error is not None:
                raise LoadError(f"{side.name} does not create a user: {error}")

    broker.administer(create_user)
    return broker, address


def _log_in_often(broker: Broker, address: Address, seconds: float) -> tuple[float, float]:
    """Return logins a second, and milliseconds of the processor for one."""
    logins = 0
    cpu_s, begins = broker.process.cpu_s, time.perf_counter()
    while (taken_s := time.perf_counter() - begins) < seconds:
        _log_in(address)
        logins += AT_ONCE
    return logins / taken_s, (broker.process.cpu_s - cpu_s) / logins * 1000


def _log_in(address: Address) -> None:
    """Log in AT_ONCE clients. Raises LoadError if the broker refuses, ServerRefused if they do."""
    with contextlib.ExitStack() as opened:
        connections = [opened.enter_context(connect(address)) for _ in range(AT_ONCE)]

        def call(key: ApiKey, version: int, requests: Sequence[Any]) -> list[Any]:
            frames = [encode_request(key, version, 0, "benchmarks", body) for body in requests]
            responses = [
                read_response(key, version, frame)[1] for frame in ask_all(connections, frames)
            ]
            if refused := [response for response in responses if response.error_code]:
                raise LoadError(f"a login is refused: {refused[0]}")
            return responses

        # What Java's client sends before its first token.
        call(ApiKey.API_VERSIONS, 0, [ApiVersionsRequest()] * AT_ONCE)
        call(ApiKey.SASL_HANDSHAKE, 1, [SaslHandshakeRequest(mechanism=SCRAM_SHA_512)] * AT_ONCE)

        def exchange(tokens: Sequence[bytes]) -> list[bytes]:
            requests = [SaslAuthenticateRequest(auth_bytes=token) for token in tokens]
            responses = call(ApiKey.SASL_AUTHENTICATE, 1, requests)
            return [bytes(response.auth_bytes) for response in responses]

        # Two steps: the client proves that it knows the password, and then the broker.
        clients = [
            ScramClient(_SALTED_ONCE, USER, PASSWORD, nonce_of(secrets.randbits(NONCE_BITS)))
            for _ in connections
        ]
        challenges = exchange([client.begin() for client in clients])
        proofs = [
            client.receive(challenge) for client, challenge in zip(clients, challenges, strict=True)
        ]
        endings = exchange([proof for proof in proofs if proof is not None])
        for client, ending in zip(clients, endings, strict=True):
            client.receive(ending)
