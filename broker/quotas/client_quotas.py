"""Find the quota of a request, and count what counts towards it.

A quota may be set for a user, for a client id, or for both, and for all who have none of their own.
The most specific one that is set holds. It also says who shares a counter: a user's clients share
one, the users of a client id share one, and with a quota for both each pair has its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from enum import Enum
from typing import NamedTuple, TypeVar

import attrs

from broker.process.rate import SampledRate, TokenBucket
from protocol.name_keys import key_of_name
from protocol.special_values import MAX_LONG
from zk.znodes import DEFAULT, ClientEntity

K = TypeVar("K", bound=Hashable)
C = TypeVar("C", SampledRate, TokenBucket)

MAX_COUNTERS = 20_000
"""Client ids are chosen by clients: so many counters are kept, those that were used last, each of
some 0.5 to 1.5 KB."""


class QuotaKind(Enum):
    """The limited quantity, by the name of its setting."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"


class Quota(NamedTuple):
    """A quota as it holds for a request: its bound per second, and who shares its counter."""

    bound: float
    sharers: tuple[str | None, str | None]


@attrs.define(eq=False)
class QuotaLimits:
    """The quotas of one kind that are set.

    `default` is the setting of brokers for client ids without any quota.
    """

    default: float | None = None
    _bounds: dict[ClientEntity, float] = attrs.field(factory=dict)

    def set(self, entity: ClientEntity, bound: float | None) -> None:
        """Set the quota of an entity, or remove it."""
        if bound is None:
            self._bounds.pop(entity, None)
        else:
            self._bounds[entity] = bound

    @property
    def are_set(self) -> bool:
        """True if anybody has a quota of this kind."""
        return self.default is not None or bool(self._bounds)

    def find(self, user: str, client_id: str) -> Quota | None:
        """Return the quota that holds for a user's client; None where it may do as it likes."""
        if not self.are_set:
            return None
        bounds = self._bounds
        for entity, sharers in _by_precedence(user, client_id):
            bound = bounds.get(entity)
            if bound is not None:
                return Quota(bound, sharers)
        if self.default is not None and client_id:
            return Quota(self.default, (None, key_of_name(client_id)))
        return None


def read_bound(text: str) -> float:
    """Read a stored quota. Raises ValueError, also for NaN, from which no time would follow."""
    bound = float(text)
    if math.isnan(bound):
        raise ValueError("not a number")
    return bound


def _by_precedence(
    user: str, client_id: str
) -> Iterator[tuple[ClientEntity, tuple[str | None, str | None]]]:
    """Yield the entities that a client belongs to, and who shares a counter there."""
    # Its length is the client's choice, and the counter stays (fault strangers-28, was: client_id).
    id_key = key_of_name(client_id)
    # A client without an id belongs to its user alone.
    both = (user, id_key)
    if client_id:
        yield ClientEntity(user, client_id), both
        yield ClientEntity(user, DEFAULT), both
    yield ClientEntity(user), (user, None)
    if client_id:
        yield ClientEntity(DEFAULT, client_id), both
        yield ClientEntity(DEFAULT, DEFAULT), both
    yield ClientEntity(DEFAULT), (user, None)
    if client_id:
        yield ClientEntity(client_id=client_id), (None, id_key)
        yield ClientEntity(client_id=DEFAULT), (None, id_key)


@attrs.define(eq=False)
class ClientQuotas:
    """All quotas of a broker, and the counters of its clients.

    `windows` and `window_ms` are quota.window.num and .window.size.seconds, `mutation_windows` and
    `mutation_window_ms` those of controller.quota. `produce_default` and `fetch_default` are
    quota.producer.default and quota.consumer.default.
    """

    windows: int = 11
    window_ms: int = 1000
    mutation_windows: int = 11
    mutation_window_ms: int = 1000
    produce_default: int = MAX_LONG
    fetch_default: int = MAX_LONG
    limits: Mapping[QuotaKind, QuotaLimits] = attrs.field(init=False)
    _rates: dict[tuple[QuotaKind, tuple[str | None, str | None]], SampledRate] = attrs.field(
        factory=dict
    )
    _buckets: dict[tuple[str | None, str | None], TokenBucket] = attrs.field(factory=dict)

    @limits.default
    def _limits_without_entities(self) -> Mapping[QuotaKind, QuotaLimits]:
        limits = {kind: QuotaLimits() for kind in QuotaKind}
        if self.produce_default < MAX_LONG:
            limits[QuotaKind.PRODUCE].default = self.produce_default
        if self.fetch_default < MAX_LONG:
            limits[QuotaKind.FETCH].default = self.fetch_default
        return limits

    @property
    def are_set(self) -> bool:
        """True if anybody has a quota of any kind."""
        return any(limits.are_set for limits in self.limits.values())

    def set_all(self, entity: ClientEntity, settings: Mapping[str, str]) -> list[str]:
        """Replace the quotas of an entity by those in its settings; return what is wrong there."""
        faults = []
        for kind, limits in self.limits.items():
            value = settings.get(kind.value)
            try:
                limits.set(entity, None if value is None else read_bound(value))
            except ValueError:
                limits.set(entity, None)
                faults.append(f"{kind.value}={value} is not a number")
        return faults

    def record(self, kind: QuotaKind, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Count what a request costs; return for how many ms its client must be silent."""
        quota = self.limits[kind].find(user, client_id)
        if quota is None:
            return 0
        rate = self._rate(kind, quota)
        rate.record(value, now_ms)
        return rate.excess_ms(quota.bound, now_ms)

    def most_bytes(self, kind: QuotaKind, user: str, client_id: str, limit: int) -> int:
        """Return how many bytes one request may carry so that they fit into the windows.

        It is `limit` at most.
        """
        quota = self.limits[kind].find(user, client_id)
        if quota is None:
            return limit
        return int(min(limit, quota.bound * (self.windows - 1) * self.window_ms / 1000))

    # ---- changes of topics

    def take_mutations(
        self, user: str, client_id: str, cost: int, now_ms: int, *, is_strict: bool
    ) -> bool:
        """Take the cost of a change of topics; return False, taking nothing, where it is refused.

        A strict request is refused while the debt of an earlier one is not paid.
        """
        quota = self.limits[QuotaKind.MUTATION].find(user, client_id)
        if quota is None:
            return True
        bucket = self._bucket(quota)
        if is_strict and bucket.is_in_debt(quota.bound, now_ms):
            return False
        bucket.take(cost, quota.bound, now_ms)
        return True

    def mutation_debt_ms(self, user: str, client_id: str, now_ms: int) -> int:
        """Return for how many ms a client that changes topics must be silent."""
        quota = self.limits[QuotaKind.MUTATION].find(user, client_id)
        return 0 if quota is None else self._bucket(quota).debt_ms(quota.bound, now_ms)

    # ---- counters

    def _rate(self, kind: QuotaKind, quota: Quota) -> SampledRate:
        return _use(
            self._rates,
            (kind, quota.sharers),
            lambda: SampledRate(self.windows, self.window_ms),
        )

    def _bucket(self, quota: Quota) -> TokenBucket:
        return _use(
            self._buckets,
            quota.sharers,
            lambda: TokenBucket(self.mutation_windows, self.mutation_window_ms),
        )


def _use(counters: dict[K, C], key: K, make: Callable[[], C]) -> C:
    """Return the counter of `key`, which is made if it is missing; it stands last from now on."""
    counter = counters.pop(key, None) or make()
    counters[key] = counter
    if len(counters) > MAX_COUNTERS:
        del counters[next(iter(counters))]
    return counter
