"""Limit the connections of a broker: how many there are, and how fast new ones come (KIP-402,
KIP-612).

A connection counts from the moment it is accepted until it is closed, so handshakes and logins
count. There are three limits, and what is beyond them has it worse each time:

- `max.connections` and `max.connection.creation.rate`, of the broker and of each listener: the next
  connection is not accepted before there is a place for it, and before the rate allows it.
- The rate of an address, a quota (`connection_creation_rate`): the connection is closed when the
  rate allows another one. Nobody reads it meanwhile, and it counts nowhere.
- `max.connections.per.ip` and its overrides: the connection is closed at once.

A *protected* listener is for brokers, and there are others. The limits of the broker do not hold
there, only its own: if there are too many connections then, those of other listeners must go.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import attrs

from broker.process.rate import SampledRate
from protocol.frozen import frozen

NO_LIMIT = 2**31 - 1
"""The default of all these settings."""
MAX_COUNTED_ADDRESSES = 10_000
"""Addresses whose rates are known, those that connected last."""

_BROKER = ""
"""Stands for the whole broker among the names of listeners."""


@frozen
class Limits:
    """Most connections, and most new ones a second: of the broker, or of one listener."""

    connections: int = NO_LIMIT
    creation_rate: int = NO_LIMIT


@frozen
class ConnectionLimits:
    """The limits by the settings of a broker.

    `listeners` has all of them; one without limits of its own has those of the broker. `overrides`
    has those of hosts, `host:number`. `protected` has the listeners for brokers.
    """

    broker: Limits
    listeners: Mapping[str, Limits]
    per_ip: int = NO_LIMIT
    overrides: Sequence[str] = ()
    protected: frozenset[str] = frozenset()


@frozen
class ConnectionRefusal:
    """The reason why a connection is to be closed: now, or after `delay_ms`."""

    reason: str
    delay_ms: int = 0


@attrs.define(eq=False)
class ConnectionQuotas:
    """The connections of a broker, as numbers, and its limits.

    `windows` and `window_ms` are quota.window.num and
    .window.size.seconds; nobody waits for longer than one window. `of_addresses` has the overrides
    of max.connections.per.ip.
    """

    limits: ConnectionLimits
    windows: int = 11
    window_ms: int = 1000
    of_addresses: Mapping[str, int] = attrs.field(factory=dict)
    total: int = 0
    _by_listener: Counter[str] = attrs.field(factory=Counter)
    _by_address: Counter[str] = attrs.field(factory=Counter)

    # New connections in the last windows; at each listener, the rates that count, and their bounds.
    _rates: dict[str, SampledRate] = attrs.field(init=False)
    _bounds: dict[str, list[tuple[SampledRate, int]]] = attrs.field(init=False)
    _address_rates: dict[str, SampledRate] = attrs.field(factory=dict)

    # The quotas of an address by the name for which they are set, and the addresses of these names.
    _default_quota: float = NO_LIMIT
    _quotas: dict[str, dict[str, float]] = attrs.field(factory=dict)
    _addresses: dict[str, Sequence[str]] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self._rates = defaultdict(self._new_rate)
        self.set_limits(self.limits)

    def set_limits(self, limits: ConnectionLimits) -> None:
        """Go by other limits from now on."""
        self.limits = limits
        self._bounds = {}
        for listener, own in limits.listeners.items():
            bounds = {listener: own.creation_rate}
            if listener not in self.limits.protected:
                bounds[_BROKER] = limits.broker.creation_rate
            self._bounds[listener] = [
                (self._rates[name], bound) for name, bound in bounds.items() if bound < NO_LIMIT
            ]

    def _new_rate(self) -> SampledRate:
        return SampledRate(self.windows, self.window_ms)

    # ---- before a connection is accepted

    def has_place(self, listener: str) -> bool:
        """Return whether another connection may be accepted."""
        # One that is being shut has no limits any more (fault strangers-131).
        if listener not in self.limits.listeners:
            return False
        if self._by_listener[listener] >= self.limits.listeners[listener].connections:
            return False
        return listener in self.limits.protected or self.total < self.limits.broker.connections

    def limits_rate(self, listener: str) -> bool:
        """Return whether it matters how fast connections come."""
        return bool(self._bounds.get(listener))

    def count_new(self, listener: str, now_ms: int) -> int:
        """Count a connection that wants to be accepted; return for how many ms it must wait."""
        wait_ms = 0
        for rate, bound in self._bounds.get(listener, ()):
            rate.record(1, now_ms)
            wait_ms = max(wait_ms, rate.excess_ms(bound, now_ms))
        return min(wait_ms, self.window_ms)

    def take_back(self, listener: str, now_ms: int) -> None:
        """Take back what `count_new` has counted: there is no such connection."""
        for rate, _ in self._bounds.get(listener, ()):
            rate.record(-1, now_ms)

    # ---- when it is accepted, and when it is closed

    def admit(self, listener: str, address: str, now_ms: int) -> ConnectionRefusal | None:
        """Count an accepted connection; or return why it must be closed, and count it nowhere."""
        delay_ms = self._excess_of_address(address, now_ms)
        if delay_ms:
            self.take_back(listener, now_ms)
            return ConnectionRefusal(
                f"Delaying closing of connection from /{address} for {delay_ms} ms", delay_ms
            )

        most = self.of_addresses.get(address, self.limits.per_ip)
        if self._by_address[address] >= most:
            return ConnectionRefusal(
                f"Rejected connection from /{address}, address already has the configured maximum "
                f"of {most} connections."
            )

        self.total += 1
        self._by_listener[listener] += 1
        self._by_address[address] += 1
        return None

    def remove(self, listener: str, address: str) -> None:
        """Count an admitted connection no more."""
        assert self._by_address[address] > 0, "a connection is removed once"
        self.total -= 1
        self._by_listener[listener] -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    @property
    def excess(self) -> int:
        """Return how many connections of listeners that are not protected must be closed."""
        return max(0, self.total - self.limits.broker.connections)

    # ---- quotas of addresses

    def set_quota(self, name: str, addresses: Sequence[str], rate: float | None) -> None:
        """Set the most new connections a second from each address of a host; None: no such quota.

        `name` is the one under which the quota is stored. If an address has several names, the
        least of their quotas holds.
        """
        for address in self._addresses.pop(name, ()):
            left = self._quotas[address]
            left.pop(name)
            # What another name has set stays (fault strangers-32, was: True).
            is_free = not left
            if is_free:
                del self._quotas[address]
        if rate is not None:
            self._addresses[name] = tuple(dict.fromkeys(addresses))
            for address in self._addresses[name]:
                self._quotas.setdefault(address, {})[name] = rate

    def set_default_quota(self, rate: float | None) -> None:
        """Set the quota of each address that has none of its own."""
        self._default_quota = NO_LIMIT if rate is None else rate

    def _excess_of_address(self, address: str, now_ms: int) -> int:
        """Count a new connection; or return for how many ms it is too early, and count nothing."""
        own = self._quotas.get(address)
        bound = self._default_quota if own is None else min(own.values())
        if bound >= NO_LIMIT:
            return 0

        # The address that connected last stands last.
        rate = self._address_rates.pop(address, None) or self._new_rate()
        self._address_rates[address] = rate
        if len(self._address_rates) > MAX_COUNTED_ADDRESSES:
            del self._address_rates[next(iter(self._address_rates))]

        rate.record(1, now_ms)
        excess_ms = min(rate.excess_ms(bound, now_ms), self.window_ms)
        if excess_ms:
            rate.record(-1, now_ms)
        return excess_ms
