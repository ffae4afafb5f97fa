"""Which quota holds for a client, and whom it shares a counter with."""

import pytest

from broker.quotas.client_quotas import ClientQuotas, QuotaKind
from zk.znodes import DEFAULT, ClientEntity, EntityName

RATE = QuotaKind.PRODUCE.value


def quotas(*entries: tuple[EntityName, EntityName, float]) -> ClientQuotas:
    made = ClientQuotas()
    for user, client_id, bound in entries:
        made.set_all(ClientEntity(user, client_id), {RATE: str(bound)})
    return made


def found(made: ClientQuotas, user: str, client_id: str) -> tuple[float, object] | None:
    return made.limits[QuotaKind.PRODUCE].find(user, client_id)


ALL = (
    ("u", "c", 1),
    ("u", DEFAULT, 2),
    ("u", None, 3),
    (DEFAULT, "c", 4),
    (DEFAULT, DEFAULT, 5),
    (DEFAULT, None, 6),
    (None, "c", 7),
    (None, DEFAULT, 8),
)
SHARERS = [("u", "c"), ("u", "c"), ("u", None), ("u", "c"), ("u", "c"), ("u", None)]


@pytest.mark.parametrize("left_out", range(8))
def test_the_most_specific_quota_that_is_set_holds(left_out: int) -> None:
    sharers = [*SHARERS, (None, "c"), (None, "c")]
    assert found(quotas(*ALL[left_out:]), "u", "c") == (left_out + 1, sharers[left_out])


def test_without_a_quota_a_client_may_do_as_it_likes() -> None:
    assert found(quotas(), "u", "c") is None
    assert found(quotas(("v", "c", 1), (None, "d", 1)), "u", "c") is None
    assert quotas().record(QuotaKind.PRODUCE, "u", "c", 1e12, 0) == 0


def test_a_client_without_an_id_has_its_user_s_quota_alone() -> None:
    assert found(quotas(*ALL), "u", "") == (3, ("u", None))
    assert found(quotas((None, DEFAULT, 8)), "u", "") is None


def test_a_user_called_default_is_another_than_all_others() -> None:
    made = quotas((DEFAULT, None, 1), ("<default>", None, 2))
    assert found(made, "<default>", "c") == (2, ("<default>", None))
    assert found(made, "u", "c") == (1, ("u", None))


def test_clients_of_a_user_share_its_counter() -> None:
    made = quotas(("u", None, 100))
    assert made.record(QuotaKind.PRODUCE, "u", "one", 1000, 0) == 0
    assert made.record(QuotaKind.PRODUCE, "u", "two", 1000, 0) == 10_000
    assert made.record(QuotaKind.PRODUCE, "v", "two", 10**9, 0) == 0


def test_pairs_have_counters_of_their_own() -> None:
    made = quotas((DEFAULT, DEFAULT, 100))
    assert made.record(QuotaKind.PRODUCE, "u", "one", 1000, 0) == 0
    assert made.record(QuotaKind.PRODUCE, "u", "two", 1000, 0) == 0
    assert made.record(QuotaKind.PRODUCE, "u", "one", 1000, 0) == 10_000


def test_another_bound_keeps_what_was_counted_and_another_level_does_not() -> None:
    made = quotas(("u", None, 100))
    made.record(QuotaKind.PRODUCE, "u", "c", 2000, 0)
    made.set_all(ClientEntity("u"), {RATE: "400"})
    assert made.record(QuotaKind.PRODUCE, "u", "c", 0, 0) == 0
    made.set_all(ClientEntity("u"), {RATE: "100"})
    assert made.record(QuotaKind.PRODUCE, "u", "c", 0, 0) == 10_000
    made.set_all(ClientEntity("u", "c"), {RATE: "100"})
    assert made.record(QuotaKind.PRODUCE, "u", "c", 0, 0) == 0


def test_kinds_are_independent() -> None:
    made = ClientQuotas()
    made.set_all(ClientEntity("u"), {QuotaKind.FETCH.value: "1"})
    assert made.record(QuotaKind.PRODUCE, "u", "c", 10**6, 0) == 0
    assert made.record(QuotaKind.FETCH, "u", "c", 11, 0) > 0


def test_settings_of_brokers_hold_for_client_ids_without_any_other() -> None:
    made = ClientQuotas(produce_default=10)
    assert made.are_set
    assert found(made, "u", "c") == (10, (None, "c"))
    made.set_all(ClientEntity(client_id=DEFAULT), {RATE: "20"})
    assert found(made, "u", "c") == (20, (None, "c"))


def test_a_quota_that_is_removed_no_longer_holds() -> None:
    made = quotas(("u", None, 1))
    made.set_all(ClientEntity("u"), {"SCRAM-SHA-256": "salt=…"})
    assert not made.are_set


def test_a_value_that_is_no_number_is_named_and_left_out() -> None:
    made = ClientQuotas()
    faults = made.set_all(ClientEntity("u"), {RATE: "much", QuotaKind.FETCH.value: "1"})
    assert faults == ["producer_byte_rate=much is not a number"]
    assert found(made, "u", "c") is None
    assert made.limits[QuotaKind.FETCH].are_set


def test_a_response_never_has_more_bytes_than_the_windows_allow() -> None:
    made = ClientQuotas()
    made.set_all(ClientEntity("u"), {QuotaKind.FETCH.value: "250"})
    assert made.most_bytes(QuotaKind.FETCH, "u", "c", 4096) == 2500
    assert made.most_bytes(QuotaKind.FETCH, "u", "c", 100) == 100
    assert made.most_bytes(QuotaKind.FETCH, "v", "c", 4096) == 4096


def test_mutations_are_refused_while_there_is_debt_if_the_client_understands() -> None:
    made = ClientQuotas(mutation_windows=10)
    made.set_all(ClientEntity("u"), {QuotaKind.MUTATION.value: "2"})
    assert made.take_mutations("u", "c", 30, 0, is_strict=True)
    assert not made.take_mutations("u", "c", 30, 0, is_strict=True)
    assert made.mutation_debt_ms("u", "c", 0) == 5000
    assert made.take_mutations("u", "c", 30, 0, is_strict=False)
    assert made.mutation_debt_ms("u", "c", 0) == 20_000


def test_counters_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.quotas.client_quotas.MAX_COUNTERS", 3)
    made = quotas((None, DEFAULT, 100))
    for number in range(10):
        made.record(QuotaKind.PRODUCE, "u", f"c{number}", 2000, 0)
        made.record(QuotaKind.PRODUCE, "u", "c0", 0, 0)
    assert len(made._rates) == 3
    assert made.record(QuotaKind.PRODUCE, "u", "c0", 0, 0) > 0


@pytest.mark.fault("strangers-28")
def test_a_long_client_id_has_a_counter_of_its_own_and_is_not_kept_for_it() -> None:
    made = quotas((None, DEFAULT, 100))
    one, two = "c" * 30_000 + "1", "c" * 30_000 + "2"
    assert made.record(QuotaKind.PRODUCE, "u", one, 2000, 0) > 0
    assert made.record(QuotaKind.PRODUCE, "u", two, 0, 0) == 0
    assert made.record(QuotaKind.PRODUCE, "u", one, 0, 0) > 0
    assert all(len(name or "") < 100 for _, sharers in made._rates for name in sharers)
