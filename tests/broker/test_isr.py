"""The high watermark: the first offset that some in-sync replica lacks."""

from __future__ import annotations

import pytest

from broker.isr import next_high_watermark

LEADER = 0


@pytest.mark.parametrize(
    ("isr", "ends", "expected"),
    [
        pytest.param([0], {}, 10, id="alone, it is the log's end"),
        pytest.param([0, 1], {1: 7}, 7, id="the slowest in sync holds it"),
        pytest.param([0, 1, 2], {1: 9, 2: 6}, 6, id="the slowest of several"),
        pytest.param([0, 1], {1: 9, 2: 6}, 9, id="one out of sync does not hold it"),
        pytest.param([0, 1], {}, 5, id="one not heard of holds it where it is"),
        pytest.param([0, 1], {1: 3}, 5, id="it never goes back"),
        pytest.param([0, 1], {1: 12}, 10, id="nor beyond the log's end"),
        pytest.param([1], {1: 8}, 8, id="the leader out of its own isr"),
    ],
)
def test_the_high_watermark_of_a_leader_at_ten_that_was_at_five(
    isr: list[int], ends: dict[int, int], expected: int
) -> None:
    assert next_high_watermark(5, 10, LEADER, isr, ends) == expected
