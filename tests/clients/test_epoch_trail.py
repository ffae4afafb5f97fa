"""The leader epochs of what was read of a log."""

import pytest

from clients.epoch_trail import MOST, Divergence, EpochTrail


def test_the_epoch_before_an_offset_is_that_of_the_last_record_before_it() -> None:
    trail = EpochTrail.behind(10, 3)
    trail.note([(10, 3), (20, 5)])
    trail.note([(30, 5), (40, 8)])
    assert [trail.before(offset) for offset in (9, 10, 20, 21, 40, 41, 99)] == [
        *(-1, 3, 3, 5, 5, 8, 8)
    ]


def test_a_place_without_an_epoch_and_formats_without_epochs_have_none() -> None:
    trail = EpochTrail.behind(10, -1)
    assert trail.before(10) == -1
    trail.note([(10, 4), (20, -1)])
    assert (trail.before(20), trail.before(21)) == (4, -1)


@pytest.mark.parametrize(
    ("divergence", "before"),
    [
        (Divergence(5, 25), [3, 5, 5]),
        # What is told next is what was read: the log may have parted sooner.
        (Divergence(5, 15), [3, 3, 3]),
        (Divergence(4, 15), [3, 3, 3]),
        (Divergence(2, 5), [2, 2, 2]),
    ],
)
def test_what_the_log_has_lost_is_forgotten(divergence: Divergence, before: list[int]) -> None:
    trail = EpochTrail.behind(10, 3)
    trail.note([(10, 3), (20, 5), (40, 8)])
    trail.part(divergence)
    assert [trail.before(offset) for offset in (10, 26, 50)] == before


@pytest.mark.fault("strangers-64")
@pytest.mark.parametrize(
    ("divergence", "place"),
    [
        # The log ends the epoch sooner than what was read of it.
        (Divergence(8, 50), 50),
        # It has records of an earlier epoch where those of later ones were read.
        (Divergence(5, 60), 40),
        (Divergence(4, 60), 20),
        (Divergence(5, 30), 30),
        (Divergence(2, 60), 9),
        (Divergence(2, 5), 5),
    ],
)
def test_a_log_lacks_what_was_read_of_later_epochs(divergence: Divergence, place: int) -> None:
    trail = EpochTrail.behind(10, 3)
    trail.note([(10, 3), (20, 5), (40, 8)])
    assert trail.find_place(divergence) == Divergence(divergence.epoch, place)


def test_as_many_epochs_are_kept_as_somebody_may_ask_for() -> None:
    trail = EpochTrail()
    for epoch in range(10 * MOST):
        trail.note([(epoch * 10, epoch)])
    assert trail.before(10 * MOST * 10) == 10 * MOST - 1
    assert trail.before(9 * MOST * 10) == -1
