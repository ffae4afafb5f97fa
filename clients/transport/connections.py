"""A client's connections: one to each broker for each purpose, and which broker to ask next.

A broker that cannot be connected to is left alone for a while, longer each time (KIP-144). What any
broker can answer is asked of one that answers; one that does not, is not waited for alone: it may
be stopped, or cut off, and would take the whole `request.timeout.ms` to be found out.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import attrs

from clients.cluster_view import BrokerEndpoint
from clients.config import ClusterConfig
from clients.errors import ConnectionFailed, NoBrokersAvailable, NoSuchAddress
from clients.transport.connection import Connection

logger = logging.getLogger(__name__)

T = TypeVar("T")
Connect = Callable[..., Awaitable[Connection]]
Ask = Callable[[Connection], Awaitable[T]]

PATIENCE_S = 1.0
"""After it another broker is asked too. Any broker answers from memory, so this is long."""


@attrs.define(eq=False)
class _Slot:
    """The one connection to an address for a purpose, and when it may be tried again."""

    lock: asyncio.Lock = attrs.field(factory=asyncio.Lock)
    connection: Connection | None = None
    failures: int = 0
    reason: str = ""
    retry_at: float = 0.0

    @property
    def open(self) -> Connection | None:
        """The connection if it can be used."""
        return None if self.connection is None or self.connection.closed else self.connection

    @property
    def lost(self) -> bool:
        """Whether the last that was heard is that there is no connection."""
        return self.open is None and (self.connection is not None or self.failures > 0)


class Connections:
    """All connections of one client. `close` closes them."""

    def __init__(self, config: ClusterConfig, client_id: str, connect: Connect) -> None:
        self._config = config
        self._client_id = client_id
        self._connect = connect
        self._slots: dict[tuple[str, int], dict[str, _Slot]] = {}
        """By address, then by purpose."""
        self._answered_last: tuple[str, int] | None = None
        self._doubted: set[tuple[str, int]] = set()

    async def to(self, endpoint: BrokerEndpoint, purpose: str = "") -> Connection:
        """The connection to a broker for a purpose, opened if need be.

        Raises ConnectionFailed, at once while backing off from an earlier failure.
        """
        slots = self._slots.setdefault(endpoint.address, {})
        slot = slots.setdefault(purpose, _Slot())
        async with slot.lock:
            return slot.open or await self._open(endpoint, slot)

    def open_to(self, endpoint: BrokerEndpoint, purpose: str = "") -> Connection | None:
        """The connection if it is open already."""
        slot = self._slots.get(endpoint.address, {}).get(purpose)
        return None if slot is None else slot.open

    def doubt(self) -> None:
        """Say that the last answer of any broker did not help: the next ones are others'."""
        if self._answered_last is not None:
            self._doubted.add(self._answered_last)

    async def first_answer(self, endpoints: Iterable[BrokerEndpoint], ask: Ask[T]) -> T:
        """What the first of these brokers to answer says; the likeliest to is asked first.

        The next is asked when one fails, or keeps silent for PATIENCE_S. Raises NoBrokersAvailable,
        naming what each said, and what `ask` raises except ConnectionFailed.
        """
        rest = self._by_promise({endpoint.address: endpoint for endpoint in endpoints})
        reasons: list[str] = []
        asked: list[asyncio.Task[T]] = []
        pending: set[asyncio.Task[T]] = set()
        try:
            while rest or pending:
                if rest:
                    asked.append(asyncio.create_task(self._asked(rest.pop(0), ask)))
                    pending.add(asked[-1])
                done, pending = await asyncio.wait(
                    pending,
                    timeout=PATIENCE_S if rest else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in done:
                    try:
                        return task.result()
                    except ConnectionFailed as failure:
                        reasons.append(str(failure))
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        raise NoBrokersAvailable("; ".join(dict.fromkeys(reasons)))

    async def close(self) -> None:
        """Close every connection."""
        kept = [slot.connection for slots in self._slots.values() for slot in slots.values()]
        await asyncio.gather(*(each.close() for each in kept if each is not None))

    async def _asked(self, endpoint: BrokerEndpoint, ask: Ask[T]) -> T:
        answer = await ask(await self.to(endpoint))
        self._answered_last = endpoint.address
        return answer

    def _by_promise(self, endpoints: dict[tuple[str, int], BrokerEndpoint]) -> list[BrokerEndpoint]:
        """Those that answer before those that don't, those open before those to be opened; else by
        chance, so that a fleet of clients does not ask the first broker all at once.
        """
        if self._doubted >= endpoints.keys():
            self._doubted.clear()

        def against(endpoint: BrokerEndpoint) -> tuple[bool, bool, bool]:
            slots = self._slots.get(endpoint.address, {})
            connection = self.open_to(endpoint)
            silent = connection is not None and connection.in_flight > 0
            lost = any(slot.lost for slot in slots.values())
            return lost or silent, endpoint.address in self._doubted, connection is None

        shuffled = random.sample(list(endpoints.values()), len(endpoints))
        return sorted(shuffled, key=against)

    async def _open(self, endpoint: BrokerEndpoint, slot: _Slot) -> Connection:
        if slot.retry_at > _now():
            raise ConnectionFailed(endpoint.host, endpoint.port, f"backing off: {slot.reason}")
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
            if isinstance(failure, NoSuchAddress) and not slot.failures:
                logger.warning("a broker cannot be reached, its address is none: %s", failure)
            slot.reason = failure.reason
            slot.retry_at = _now() + self._reconnect_backoff_ms(slot.failures) / 1000
            slot.failures += 1
            raise
        except asyncio.CancelledError:
            slot.failures += 1  # so long that nobody waited for it
            raise
        slot.failures, slot.connection = 0, connection
        return connection

    def _reconnect_backoff_ms(self, failures: int) -> float:
        """Doubles up to the maximum; a fifth of chance, so that a fleet does not come as one."""
        base, most = self._config.reconnect_backoff_ms, self._config.reconnect_backoff_max_ms
        backoff: int = min(base << min(failures, 30), max(base, most))
        return backoff * random.uniform(0.8, 1.2)


def _now() -> float:
    return asyncio.get_running_loop().time()
