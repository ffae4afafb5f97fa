"""Rates and tokens: Kafka's own vectors."""

import pytest

from broker.process.rate import MOST_MS, SampledRate, TokenBucket


def recorded(*values: tuple[int, float]) -> SampledRate:
    rate = SampledRate()
    for at_ms, value in values:
        rate.record(value, at_ms)
    return rate


def test_spike_above_the_bound_is_waited_out() -> None:
    """ClientQuotaManagerTest.testQuotaViolation."""
    rate = recorded(*((1000 * second, 400) for second in range(10)))
    assert rate.excess_ms(500, 10_500) == 0
    rate.record(2300, 10_500)
    assert rate.rate(10_500) == pytest.approx(600)
    assert rate.excess_ms(500, 10_500) == 2100


def test_until_the_spike_has_left_the_windows_it_counts() -> None:
    rate = recorded(*((1000 * second, 400) for second in range(10)), (10_500, 2300))
    at_ms = 12_600
    for second in range(10):
        at_ms = 12_600 + 1000 * second
        rate.record(400, at_ms)
        if second < 8:
            assert rate.rate(at_ms) > 400
    assert rate.excess_ms(500, at_ms + 1000) == 0


def test_first_value_is_spread_over_all_windows_but_one() -> None:
    rate = recorded((0, 5000))
    assert rate.rate(0) == 500
    assert rate.excess_ms(500, 0) == 0
    assert recorded((0, 5001)).excess_ms(500, 0) == 2


def test_what_is_taken_back_does_not_count() -> None:
    rate = recorded((0, 100), (10, 900), (20, -900))
    assert rate.rate(20) == pytest.approx(100 / 10.02, rel=0.01)


def test_old_samples_are_forgotten() -> None:
    rate = recorded((0, 10_000))
    assert rate.rate(10_999) > 0
    assert rate.rate(11_000) == 0


def test_windows_begin_with_values_and_not_with_the_clock() -> None:
    rate = recorded((700, 1), (1699, 1), (1700, 1))
    assert [sample.began_ms for sample in rate._samples] == [700, 1700]


def test_no_more_samples_than_windows_are_kept() -> None:
    rate = recorded(*((1000 * second, 1) for second in range(100)))
    assert len(rate._samples) == rate.windows
    assert rate.rate(99_000) == pytest.approx(1.1)


def test_a_bound_of_nothing_is_never_kept() -> None:
    assert recorded((0, 1)).excess_ms(0, 0) == 10_000
    assert SampledRate().excess_ms(0, 0) == 0


@pytest.mark.parametrize(("costs", "debt_ms"), [((30,), 5000), ((30, 30), 20_000), ((20,), 0)])
def test_debt_of_tokens_is_paid_at_the_rate(costs: tuple[int, ...], debt_ms: int) -> None:
    """The vectors of KIP-599: 2 a second, a burst of 20 (ten windows)."""
    bucket = TokenBucket(windows=10)
    for cost in costs:
        bucket.take(cost, 2, 0)
    assert bucket.debt_ms(2, 0) == debt_ms
    assert bucket.is_in_debt(2, 0) == (debt_ms > 0)
    assert not bucket.is_in_debt(2, debt_ms)


def test_tokens_never_exceed_the_burst() -> None:
    bucket = TokenBucket(windows=10)
    bucket.take(0, 2, 0)
    bucket.take(21, 2, 1_000_000)
    assert bucket.is_in_debt(2, 1_000_000)


@pytest.mark.fault("strangers-23")
@pytest.mark.parametrize("bound", [1.0, 1e-6, 5e-324])
def test_no_time_is_longer_than_a_response_can_name(bound: float) -> None:
    rate = SampledRate()
    rate.record(1e12, 0)
    assert rate.excess_ms(bound, 0) == MOST_MS == 2**31 - 1

    bucket = TokenBucket()
    bucket.take(1e12, bound, 0)
    assert bucket.debt_ms(bound, 0) == MOST_MS
