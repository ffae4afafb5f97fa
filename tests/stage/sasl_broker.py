"""A broker in this process with a SASL listener for each mechanism, and the settings of clients.

It runs in a thread of its own, so that blocking clients can be tested too.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path
from typing import Any, Self

import attrs
import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from broker.server import Broker
from clients.admin import Admin, ScramUpsertion
from protocol.sasl.exchange import OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from protocol.sasl.jaas import MODULE_OF
from tests.stage.broker import Site
from tests.stage.waiting import DEADLINE_S

USER, PASSWORD = "alice", 'open "sesame", \\ ß'
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)

LISTENER_OF = {
    PLAIN: "BASIC",
    SCRAM_SHA_256: "SALTED",
    SCRAM_SHA_512: "SALTED",
    OAUTHBEARER: "TOKENS",
}


def signed_token(user: str = USER, lifetime_s: float = 3600, **claims: Any) -> str:
    """A token that the broker accepts."""
    now_s = int(time.time())
    content = {"sub": user, "iat": now_s, "exp": now_s + lifetime_s, "aud": "kafka", **claims}
    return jwt.encode(content, KEY, "RS256", headers={"kid": "k1"})


def quoted(text: str) -> str:
    """A value for a JAAS entry."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def jaas(mechanism: str, **options: str) -> str:
    """The JAAS entry of a mechanism."""
    pairs = "".join(f" {name}={quoted(value)}" for name, value in options.items())
    return f"{MODULE_OF[mechanism]} required{pairs};"


def sasl_settings(jwks: Path, **settings: str) -> dict[str, str]:
    """The settings of a broker with a listener for each mechanism, and one between brokers."""
    key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key()))
    jwks.write_text(json.dumps({"keys": [{**key, "kid": "k1"}]}))
    own = {"username": "broker", "password": "inside"}
    return {
        "listeners": "INSIDE://127.0.0.1:0,BASIC://127.0.0.1:0,SALTED://127.0.0.1:0,"
        "TOKENS://127.0.0.1:0,OPEN://127.0.0.1:0",
        "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT,BASIC:SASL_PLAINTEXT,"
        "SALTED:SASL_PLAINTEXT,TOKENS:SASL_PLAINTEXT,OPEN:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
        "sasl.enabled.mechanisms": PLAIN,
        "sasl.mechanism.inter.broker.protocol": PLAIN,
        "listener.name.inside.plain.sasl.jaas.config": jaas(PLAIN, **own, user_broker="inside"),
        "listener.name.basic.plain.sasl.jaas.config": jaas(PLAIN, **{f"user_{USER}": PASSWORD}),
        "listener.name.salted.sasl.enabled.mechanisms": f"{SCRAM_SHA_256},{SCRAM_SHA_512}",
        "listener.name.tokens.sasl.enabled.mechanisms": OAUTHBEARER,
        "listener.name.tokens.sasl.oauthbearer.jwks.endpoint.url": f"file://{jwks}",
        "listener.name.tokens.sasl.oauthbearer.expected.audience": "kafka",
        "connection.failed.authentication.delay.ms": "1",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "group.initial.rebalance.delay.ms": "0",
        **settings,
    }


@attrs.define(eq=False)
class SaslBroker:
    """Use it as a context manager; `site` has its ZooKeeper."""

    directory: Path
    settings: dict[str, str] = attrs.field(factory=dict)
    is_alone: bool = False
    """True if it has other listeners, and gets no users."""
    tls: dict[str, str] = attrs.field(factory=dict)
    """What clients need besides their login, where its listeners are of SASL_SSL."""
    site: Site = attrs.field(init=False)
    broker: Broker = attrs.field(init=False)
    _loop: asyncio.AbstractEventLoop = attrs.field(factory=asyncio.new_event_loop)
    _stop: asyncio.Event = attrs.field(factory=asyncio.Event)
    _is_ready: threading.Event = attrs.field(factory=threading.Event)
    _thread: threading.Thread = attrs.field(init=False)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="broker")
        self._thread.start()
        assert self._is_ready.wait(DEADLINE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(DEADLINE_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        try:
            self.site = Site(self.directory)
            settings = sasl_settings(self.directory / "jwks.json", **self.settings)
            async with self.site.running(1, **settings) as self.broker:
                if not self.is_alone:
                    await self._create_user()
                self._is_ready.set()
                await self._stop.wait()
        finally:
            self._is_ready.set()

    async def _create_user(self) -> None:
        """Give passwords for SCRAM to USER, as an administrator does it."""
        async with Admin(self.client(PLAIN, listener="INSIDE")) as admin:
            changes = [
                ScramUpsertion(USER, mechanism, PASSWORD)
                for mechanism in (SCRAM_SHA_256, SCRAM_SHA_512)
            ]
            assert await admin.alter_user_scram_credentials(changes) == {USER: None}

    def address(self, listener: str) -> str:
        """host:port of a listener."""
        node = self.site.node()
        assert node is not None
        return next(
            f"{endpoint.host}:{endpoint.port}"
            for endpoint in node[0].endpoints
            if endpoint.listener == listener
        )

    def client(self, mechanism: str, listener: str = "") -> dict[str, str]:
        """The settings of a client, in librdkafka's spelling."""
        user, password = ("broker", "inside") if listener == "INSIDE" else (USER, PASSWORD)
        return {
            "bootstrap.servers": self.address(listener or LISTENER_OF[mechanism]),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            **self.tls,
        }

    def count(self, name: str, listener: str) -> int:
        """A counter of logins."""
        return self.broker.metrics.counter(name, listener=listener).count
