"""Stretches of a log without a message, in their order."""

from __future__ import annotations

import random

from broker.replication.barren_stretches import MOST_STRETCHES, BarrenStretches


def test_a_reader_within_a_stretch_is_led_behind_it() -> None:
    stretches = BarrenStretches()
    stretches.add(5, 9)
    assert [stretches.behind(offset) for offset in (4, 5, 8, 9, 10)] == [4, 9, 9, 9, 10]


def test_stretches_that_touch_are_one() -> None:
    stretches = BarrenStretches()
    for start, end in ((5, 9), (20, 30), (9, 12), (11, 20)):
        stretches.add(start, end)
    assert stretches.behind(5) == 30


def test_they_are_as_a_set_of_offsets_says() -> None:
    dice = random.Random(7)
    for _ in range(200):
        stretches, without = BarrenStretches(), set[int]()
        for _ in range(dice.randrange(12)):
            start = dice.randrange(50)
            end = start + dice.randrange(6)
            stretches.add(start, end)
            without |= set(range(start, end))
        for offset in range(60):
            behind = offset
            while behind in without:
                behind += 1
            assert stretches.behind(offset) == behind


def test_only_so_many_are_remembered_and_the_last_is_among_them() -> None:
    stretches = BarrenStretches()
    for number in range(MOST_STRETCHES + 1):
        stretches.add(10 * number, 10 * number + 5)
    assert stretches.behind(10 * MOST_STRETCHES) == 10 * MOST_STRETCHES + 5
    assert stretches.behind(0) == 0


def test_nothing_is_known_after_a_truncation() -> None:
    stretches = BarrenStretches()
    stretches.add(0, 5)
    stretches.clear()
    assert stretches.behind(0) == 0
