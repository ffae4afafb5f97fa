"""The limits of connections by value: places, rates, addresses (ConnectionQuotasTest of Kafka)."""

from __future__ import annotations

import attrs
import pytest

from broker.network.connection_quotas import (
    MAX_COUNTED_ADDRESSES,
    ConnectionLimits,
    ConnectionQuotas,
    ConnectionRefusal,
    Limits,
)

CLIENT, INTERNAL = "CLIENT", "INTERNAL"
UNLIMITED = Limits()
HERE, THERE = "10.0.0.1", "10.0.0.2"


def quotas(
    *,
    broker: Limits = UNLIMITED,
    client: Limits | None = None,
    internal: Limits | None = None,
    protected: bool = True,
    per_ip: int | None = None,
    of_addresses: dict[str, int] | None = None,
) -> ConnectionQuotas:
    listeners = {CLIENT: client or broker, INTERNAL: internal or broker}
    limits = ConnectionLimits(
        broker, listeners, protected=frozenset({INTERNAL} if protected else ())
    )
    if per_ip is not None:
        limits = attrs.evolve(limits, per_ip=per_ip)
    return ConnectionQuotas(limits, of_addresses=of_addresses or {})


def fill(made: ConnectionQuotas, listener: str, number: int, address: str = HERE) -> None:
    """Accept so many connections, for each of which there is a place."""
    for _ in range(number):
        assert made.has_place(listener)
        assert made.admit(listener, address, 0) is None


def waits_ms(made: ConnectionQuotas, listener: str, number: int, now_ms: int = 0) -> list[int]:
    """Count so many connections at one time, and return how long each has to wait."""
    return [made.count_new(listener, now_ms) for _ in range(number)]


# ---- places


def test_without_limits_nobody_waits() -> None:
    made = quotas()
    fill(made, CLIENT, 100)
    fill(made, INTERNAL, 100)
    assert not made.limits_rate(CLIENT)
    assert waits_ms(made, CLIENT, 100) == [0] * 100
    assert (made.total, made.excess) == (200, 0)


def test_the_broker_s_places_are_shared_by_its_listeners() -> None:
    made = quotas(broker=Limits(3), protected=False)
    fill(made, CLIENT, 2)
    fill(made, INTERNAL, 1)
    assert not made.has_place(CLIENT)
    assert not made.has_place(INTERNAL)
    made.remove(CLIENT, HERE)
    fill(made, INTERNAL, 1)


def test_a_listener_has_no_more_places_than_its_own_limit_says() -> None:
    made = quotas(broker=Limits(10), client=Limits(2))
    fill(made, CLIENT, 2)
    assert not made.has_place(CLIENT)
    fill(made, INTERNAL, 3)
    made.remove(CLIENT, HERE)
    fill(made, CLIENT, 1)


def test_a_protected_listener_has_places_beyond_the_broker_s_and_others_must_go() -> None:
    made = quotas(broker=Limits(5), internal=Limits(3))
    fill(made, CLIENT, 5)
    assert made.excess == 0
    fill(made, INTERNAL, 2)
    assert made.excess == 2
    fill(made, INTERNAL, 1)
    assert not made.has_place(INTERNAL)
    assert not made.has_place(CLIENT)


def test_without_a_limit_of_its_own_a_protected_listener_has_the_broker_s_for_itself() -> None:
    made = quotas(broker=Limits(2))
    fill(made, CLIENT, 2)
    fill(made, INTERNAL, 2)
    assert not made.has_place(INTERNAL)


@pytest.mark.fault("strangers-131")
def test_listener_that_is_being_shut_takes_no_more_connections() -> None:
    made = quotas()
    listener = next(iter(made.limits.listeners))
    made.set_limits(attrs.evolve(made.limits, listeners={}))
    assert not made.has_place(listener)
    assert not made.limits_rate(listener)
    assert made.count_new(listener, 0) == 0
    made.take_back(listener, 0)


def test_a_lower_limit_leaves_an_excess() -> None:
    made = quotas()
    fill(made, CLIENT, 5)
    made.set_limits(attrs.evolve(made.limits, broker=Limits(3)))
    assert made.excess == 2


def test_a_connection_is_removed_once() -> None:
    made = quotas()
    fill(made, CLIENT, 1)
    made.remove(CLIENT, HERE)
    with pytest.raises(AssertionError):
        made.remove(CLIENT, HERE)


# ---- addresses


def test_an_address_has_so_many_connections_on_all_listeners_together() -> None:
    made = quotas(per_ip=2)
    fill(made, CLIENT, 1)
    fill(made, INTERNAL, 1)
    assert made.admit(CLIENT, HERE, 0) == ConnectionRefusal(
        "Rejected connection from /10.0.0.1, address already has the configured maximum of 2 "
        "connections."
    )
    assert made.total == 2
    fill(made, CLIENT, 2, THERE)
    made.remove(CLIENT, HERE)
    fill(made, CLIENT, 1)


def test_an_override_stands_for_the_limit_of_its_address() -> None:
    made = quotas(per_ip=0, of_addresses={HERE: 3})
    fill(made, CLIENT, 3)
    assert made.admit(CLIENT, HERE, 0) is not None
    assert made.admit(CLIENT, THERE, 0) is not None


# ---- rates


def test_a_rate_below_its_limit_lets_nobody_wait() -> None:
    made = quotas(broker=Limits(creation_rate=10))
    for second in range(60):
        assert waits_ms(made, CLIENT, 9, 1000 * second) == [0] * 9


def test_beyond_the_rate_a_connection_waits_as_long_as_kafka_s_formula_says() -> None:
    """After 100 at once, within the ten windows that are taken for past."""
    made = quotas(broker=Limits(creation_rate=10))
    assert waits_ms(made, CLIENT, 100) == [0] * 100
    # (10.1 - 10) / 10 * 10 s, and so on; a window is the most.
    assert waits_ms(made, CLIENT, 3) == [100, 200, 300]
    assert waits_ms(made, CLIENT, 20)[-1] == 1000


def test_the_longer_one_of_two_waits_counts() -> None:
    made = quotas(broker=Limits(creation_rate=10), client=Limits(creation_rate=5))
    assert waits_ms(made, CLIENT, 51)[-1] == 200
    assert made.limits_rate(INTERNAL)


def test_the_broker_s_rate_is_shared_and_a_protected_listener_has_its_own() -> None:
    made = quotas(broker=Limits(creation_rate=10), internal=Limits(creation_rate=20))
    assert waits_ms(made, INTERNAL, 200) == [0] * 200
    assert waits_ms(made, CLIENT, 100) == [0] * 100
    shared = quotas(broker=Limits(creation_rate=10), protected=False)
    assert waits_ms(shared, INTERNAL, 60) == [0] * 60
    assert waits_ms(shared, CLIENT, 41)[-1] == 100


def test_what_did_not_come_is_taken_back() -> None:
    made = quotas(broker=Limits(creation_rate=10))
    for _ in range(200):
        assert made.count_new(CLIENT, 0) == 0
        made.take_back(CLIENT, 0)


def test_a_changed_rate_counts_from_then_on() -> None:
    made = quotas(broker=Limits(creation_rate=10))
    assert waits_ms(made, CLIENT, 101)[-1] == 100
    changed = Limits(creation_rate=20)
    made.set_limits(ConnectionLimits(changed, {CLIENT: changed, INTERNAL: changed}))
    assert waits_ms(made, CLIENT, 99) == [0] * 99
    assert waits_ms(made, CLIENT, 1) == [50]


# ---- quotas of addresses


def connect(made: ConnectionQuotas, address: str, now_ms: int = 0) -> int:
    """Return for how many ms a connection is kept before it is closed; 0: it is admitted."""
    refusal = made.admit(CLIENT, address, now_ms)
    return 0 if refusal is None else refusal.delay_ms


def test_an_address_above_its_quota_is_refused_late_and_counts_nowhere() -> None:
    made = quotas(broker=Limits(creation_rate=10))
    made.set_quota(HERE, [HERE], 1)
    assert [connect(made, HERE) for _ in range(12)] == [0] * 10 + [1000] * 2
    assert made.total == 10
    # The refused ones are taken back from the rate of the broker too, where they were counted.
    assert waits_ms(made, CLIENT, 102) == [0] * 102
    assert connect(made, THERE) == 0


def test_a_refused_connection_does_not_prolong_the_wait() -> None:
    made = quotas()
    made.set_quota(HERE, [HERE], 10)
    assert [connect(made, HERE) for _ in range(103)] == [0] * 100 + [100] * 3
    # 101 in 10.1 s are ten a second.
    assert connect(made, HERE, 10_100) == 0


def test_the_default_quota_is_for_addresses_without_one() -> None:
    made = quotas()
    made.set_default_quota(1)
    made.set_quota("a host", [HERE], 2)
    assert [connect(made, HERE) for _ in range(21)] == [0] * 20 + [500]
    assert [connect(made, THERE) for _ in range(11)] == [0] * 10 + [1000]
    made.set_quota("a host", [], None)
    assert connect(made, HERE) == 1000
    made.set_default_quota(None)
    assert connect(made, HERE) == 0


def test_a_quota_of_zero_refuses_all() -> None:
    made = quotas()
    made.set_quota(HERE, [HERE], 0)
    assert [connect(made, HERE, now_ms) for now_ms in (0, 5_000, 60_000)] == [1000] * 3


def test_a_host_that_moved_has_its_quota_at_its_new_address() -> None:
    made = quotas()
    made.set_quota("host", [HERE], 0)
    made.set_quota("host", [THERE], 0)
    assert (connect(made, HERE), connect(made, THERE)) == (0, 1000)


@pytest.mark.fault("strangers-32")
def test_the_least_quota_of_all_names_of_an_address_holds() -> None:
    made = quotas()

    def is_refused() -> bool:
        made._address_rates.clear()
        return any(made.admit(CLIENT, HERE, 0) for _ in range(30))

    made.set_quota(HERE, [HERE, HERE], 1)
    made.set_quota("a host", [THERE, HERE], 1000)
    assert is_refused()
    made.set_quota("a host", [], None)
    assert is_refused()
    made.set_quota("a host", [HERE], 1)
    made.set_quota(HERE, [], None)
    assert is_refused()
    made.set_quota("a host", [], None)
    assert not is_refused()


def test_counted_addresses_are_bounded_and_those_that_connect_are_known() -> None:
    made = quotas()
    made.set_default_quota(1)
    assert [connect(made, HERE) for _ in range(11)][-1] == 1000
    for number in range(MAX_COUNTED_ADDRESSES - 1):
        made.admit(CLIENT, f"address {number}", 0)
    assert connect(made, HERE) == 1000
    for number in range(MAX_COUNTED_ADDRESSES):
        made.admit(CLIENT, f"address {number}", 0)
    assert connect(made, HERE) == 0
