"""A client's connections, one to each broker and purpose, and the choice of the broker to ask.

A broker that cannot be reached is not tried again for a while, longer after each failure (KIP-144).
A question that any broker can answer goes to several if the first is silent: it may be stopped or
cut off, and only `request.timeout.ms` would reveal that.
"""

import asyncio
import logging
import random
import ssl
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from typing import Protocol, TypeVar

import attrs

from clients.cluster_view import BrokerEndpoint
from clients.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    ConnectionRefused,
    NoBrokersAvailable,
    NoSuchAddress,
)
from clients.known_cluster import KnownCluster
from clients.own_loop import OwnLoop
from clients.transport.connection import Connection
from clients.transport.login import Login

logger = logging.getLogger(__name__)

T = TypeVar("T")
Connect = Callable[..., Awaitable[Connection]]
Ask = Callable[[Connection], Awaitable[T]]

PATIENCE_S = 1.0
"""Wait before another broker is asked too. Brokers answer from memory, so this is long."""


class ConnectionConfig(Protocol):
    """The settings of a client that its connections use."""

    @property
    def request_timeout_ms(self) -> int: ...
    @property
    def socket_connection_setup_timeout_ms(self) -> int: ...
    @property
    def send_buffer_bytes(self) -> int: ...
    @property
    def receive_buffer_bytes(self) -> int: ...
    @property
    def api_version_request(self) -> bool: ...
    @property
    def broker_version(self) -> str: ...
    @property
    def reconnect_backoff_ms(self) -> int: ...
    @property
    def reconnect_backoff_max_ms(self) -> int: ...


@attrs.define(eq=False)
class _Slot:
    """The connection to an address for a purpose, and the time when it may be tried again."""

    lock: asyncio.Lock = attrs.field(factory=asyncio.Lock)
    connection: Connection | None = None
    failures: int = 0
    reason: str = ""
    failure: type[ConnectionFailed] = ConnectionFailed
    retry_at: float = 0.0

    @property
    def open(self) -> Connection | None:
        """The connection if it is usable."""
        return None if self.connection is None or self.connection.closed else self.connection

    @property
    def lost(self) -> bool:
        """True if the last attempt failed, or the connection was closed since."""
        return self.open is None and (self.connection is not None or self.failures > 0)


class Connections:
    """All connections of one client. `close` closes them."""

    def __init__(
        self,
        config: ConnectionConfig,
        client_id: str,
        connect: Connect,
        known: KnownCluster | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        login: Login | None = None,
    ) -> None:
        self._config = config
        self._client_id = client_id
        self._known = known or KnownCluster()
        given = {"tls": tls, "login": login}
        used = {name: value for name, value in given.items() if value is not None}
        self._connect = partial(connect, **used) if used else connect
        self._slots: dict[tuple[str, int], dict[str, _Slot]] = {}
        """By address, then by purpose."""
        self._responded_last: tuple[str, int] | None = None
        self._is_closed = False
        self._own_loop = OwnLoop()

        # Addresses whose last response was of no use; they are asked last.
        self._doubted: set[tuple[str, int]] = set()

    def check_loop(self) -> None:
        """Raise OtherLoop on another loop than before, OtherProcess in a forked child."""
        self._own_loop.check()

    async def to(self, endpoint: BrokerEndpoint, purpose: str = "") -> Connection:
        """Return the connection to a broker for a purpose, and open it if needed.

        Raises ConnectionFailed; at once if the backoff of an earlier failure is not over, or after
        `close`. Raises OtherLoop on another loop than before.
        """
        self.check_loop()
        slots = self._slots.setdefault(endpoint.address, {})
        slot = slots.setdefault(purpose, _Slot())

        # Callers that come while the connection opens share it.
        async with slot.lock:
            connection = slot.open or await self._open(endpoint, slot)
            # It was opened while the others were closed.
            if self._is_closed:
                await connection.close()
                raise _client_closed(endpoint)
            return connection

    def open_to(self, endpoint: BrokerEndpoint, purpose: str = "") -> Connection | None:
        """Return the connection if it is open."""
        slot = self._slots.get(endpoint.address, {}).get(purpose)
        return None if slot is None else slot.open

    def doubt(self) -> None:
        """Ask other brokers first from now on: the last response did not help."""
        if self._responded_last is not None:
            self._doubted.add(self._responded_last)

    async def first_answer(
        self,
        endpoints: Iterable[BrokerEndpoint],
        ask: Ask[T],
        at_last: Collection[BrokerEndpoint] = (),
    ) -> T:
        """Ask the brokers until one responds, the likeliest one first, and then those `at_last`.

        The next is asked if one fails or is silent for PATIENCE_S. Raises NoBrokersAvailable with
        the failure of each, and errors of `ask` other than ConnectionFailed; AuthenticationFailed,
        too, because all brokers of a cluster have the same users.
        """
        rest = self._by_likelihood({endpoint.address: endpoint for endpoint in endpoints})
        if at_last:
            rest += self._by_likelihood({endpoint.address: endpoint for endpoint in at_last})
        failures: list[ConnectionFailed] = []
        tasks: list[asyncio.Task[T]] = []
        pending: set[asyncio.Task[T]] = set()
        try:
            while rest or pending:
                # Ask one more broker when the others fail or keep silent.
                if rest:
                    tasks.append(asyncio.create_task(self._ask(rest.pop(0), ask)))
                    pending.add(tasks[-1])

                done, pending = await asyncio.wait(
                    pending,
                    timeout=PATIENCE_S if rest else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )

                # A broker that fails costs no wait: the next turn of the loop asks another.
                for task in done:
                    try:
                        return task.result()
                    except AuthenticationFailed:
                        raise
                    except ConnectionFailed as failure:
                        failures.append(failure)
        finally:
            # Gathering also collects errors of tasks that lost, so that asyncio logs none of them.
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        is_refused = all(isinstance(failure, ConnectionRefused) for failure in failures)
        # They were asked in random order, and the same failures are the same text.
        text = "; ".join(sorted(set(map(str, failures))))
        raise NoBrokersAvailable(text, is_refused=bool(failures) and is_refused)

    async def close(self) -> None:
        """Close every connection, and open no more."""
        self._is_closed = True
        connections = [slot.connection for slots in self._slots.values() for slot in slots.values()]
        await asyncio.gather(
            *(connection.close() for connection in connections if connection is not None)
        )

    async def _ask(self, endpoint: BrokerEndpoint, ask: Ask[T]) -> T:
        response = await ask(await self.to(endpoint))
        self._responded_last = endpoint.address
        self._known.note_response(endpoint.address)
        return response

    def _by_likelihood(
        self, endpoints: dict[tuple[str, int], BrokerEndpoint]
    ) -> list[BrokerEndpoint]:
        """Order the brokers: responsive before silent ones, then connected before others.

        Equal ones are in random order, so that not all clients ask the first broker at once.
        """
        # If all are doubted, none is: start over.
        if self._doubted >= endpoints.keys():
            self._doubted.clear()

        def doubts(endpoint: BrokerEndpoint) -> tuple[bool, bool, bool]:
            slots = self._slots.get(endpoint.address, {})
            connection = self.open_to(endpoint)

            # One that is about to respond counts as silent too; asking another costs little.
            is_silent = connection is not None and connection.in_flight > 0
            is_lost = any(slot.lost for slot in slots.values())
            # Another part of the client may have waited for it in vain.
            is_lost = is_lost or self._known.is_silent(endpoint.address)
            return is_lost or is_silent, endpoint.address in self._doubted, connection is None

        shuffled = random.sample(list(endpoints.values()), len(endpoints))
        return sorted(shuffled, key=doubts)

    async def _open(self, endpoint: BrokerEndpoint, slot: _Slot) -> Connection:
        if self._is_closed:
            raise _client_closed(endpoint)

        # Fail at once, so that the caller can ask another broker.
        if slot.retry_at > _now():
            raise slot.failure(endpoint.host, endpoint.port, slot.reason)

        try:
            connection = await self._connect(
                endpoint.host,
                endpoint.port,
                client_id=self._client_id,
                request_timeout_ms=self._config.request_timeout_ms,
                connect_timeout_ms=self._config.socket_connection_setup_timeout_ms,
                send_buffer_bytes=self._config.send_buffer_bytes,
                receive_buffer_bytes=self._config.receive_buffer_bytes,
                negotiate=self._config.api_version_request,
                broker_version=self._config.broker_version,
            )
        except ConnectionFailed as failure:
            # Named once, and not at each attempt; the address may become valid later. An address
            # that the user gave has a negative id, and is named by the call's own error.
            is_registered = endpoint.node_id >= 0
            if isinstance(failure, NoSuchAddress) and is_registered and not slot.failures:
                logger.warning("a broker's registered address cannot exist: %s", failure)
            slot.reason = failure.reason
            is_definite = isinstance(failure, AuthenticationFailed | ConnectionRefused)
            slot.failure = type(failure) if is_definite else ConnectionFailed
            slot.retry_at = _now() + self._reconnect_backoff_ms(slot.failures) / 1000
            slot.failures += 1
            raise
        except asyncio.CancelledError:
            # The attempt took so long that the caller gave up.
            slot.failures += 1
            raise

        slot.failures = 0
        slot.connection = connection
        return connection

    def _reconnect_backoff_ms(self, failures: int) -> float:
        """Return the backoff: doubled per failure up to a maximum, ±20 % so that clients spread."""
        base = self._config.reconnect_backoff_ms
        most = self._config.reconnect_backoff_max_ms

        # The bound of the shift keeps the number small; the maximum is reached long before.
        backoff: int = min(base << min(failures, 30), max(base, most))
        return backoff * random.uniform(0.8, 1.2)


def _client_closed(endpoint: BrokerEndpoint) -> ConnectionFailed:
    return ConnectionFailed(endpoint.host, endpoint.port, "the client is closed")


def _now() -> float:
    return asyncio.get_running_loop().time()
