"""Where a follower ends its log: the answers of a leader, one by one and until the logs agree."""

from __future__ import annotations

import random

import pytest

from broker.replication.truncation import Truncation, decide_truncation
from core_log.leader_epochs import LeaderEpochs
from core_log.memory_directory import MemoryDirectory

UNKNOWN = -1
Entries = list[tuple[int, int]]


def epochs(entries: Entries) -> LeaderEpochs:
    return LeaderEpochs(MemoryDirectory(), list(entries))


def cut(
    answer: tuple[int, int], own: Entries, *, log_end_offset: int = 200, high_watermark: int = 100
) -> Truncation:
    return decide_truncation(*answer, epochs(own), log_end_offset, high_watermark)


@pytest.mark.parametrize(
    ("answer", "own", "offset"),
    [
        pytest.param((5, 156), [(5, 0)], 156, id="the leader's epoch ended before ours"),
        pytest.param((5, 172), [(5, 0)], 172, id="another partition, another end"),
        pytest.param((5, 202), [(5, 0)], 200, id="ours ended before the leader's"),
        pytest.param((4, 156), [(4, 0), (5, 143)], 143, id="what we wrote after it goes"),
        pytest.param((4, 156), [(4, 0), (5, 170)], 156, id="and what we wrote too much in it"),
        pytest.param((4, 156), [], 156, id="we know no epoch: the leader's end"),
        pytest.param((4, 202), [], 200, id="or our own"),
        pytest.param((4, 156), [(5, 120)], 120, id="all of ours came after it"),
        pytest.param((UNKNOWN, 155), [(5, 0)], 155, id="a leader before 2.0 tells no epoch"),
        pytest.param((UNKNOWN, 143), [(3, 0), (5, 120)], 143, id="whatever we know ourselves"),
        pytest.param((UNKNOWN, 202), [(5, 0)], 200, id="and our log is shorter"),
        pytest.param((UNKNOWN, UNKNOWN), [(5, 0)], 100, id="it knows nothing: the watermark"),
        pytest.param((5, UNKNOWN), [(5, 0)], 100, id="an epoch without end says nothing either"),
    ],
)
def test_the_log_is_cut_at_once_where_the_answer_says_it_all(
    answer: tuple[int, int], own: Entries, offset: int
) -> None:
    assert cut(answer, own) == Truncation(offset, True)


def test_a_watermark_beyond_the_log_cuts_nothing() -> None:
    assert cut((-1, -1), [(5, 0)], log_end_offset=60) == Truncation(60, True)


def test_an_epoch_we_have_not_sends_us_back_to_the_one_before_it() -> None:
    own = epochs([(3, 0), (5, 120)])
    assert decide_truncation(4, 143, own, 200, 100) == Truncation(120, False)
    own.truncate_from_end(120)
    assert own.latest_epoch == 3
    assert decide_truncation(3, 101, own, 120, 100) == Truncation(101, True)


def test_it_goes_below_the_watermark_where_the_histories_part_there() -> None:
    """After an unclean election the old leader's committed records are not the new one's."""
    assert cut((2, 40), [(2, 0), (3, 40)]) == Truncation(40, True)


# ---- both ends, until they agree


History = list[int]
"""Of each offset the epoch it was written in. One leader wrote it: what is equal is the same."""


def entries_of(history: History, led: Entries) -> Entries:
    """What the replica's list of epochs says; `led` are epochs it led, with where they began."""
    found = {epoch: history.index(epoch) for epoch in history}
    return sorted({**dict(led), **found}.items())


def agree(leader: History, leader_led: Entries, follower: History, led: Entries) -> History:
    """Let the follower ask until it is done; what is left of its log."""
    leader_epochs = epochs(entries_of(leader, leader_led))
    own = epochs(entries_of(follower, led))
    for _ in range(100):
        if own.latest_epoch < 0:
            return []
        answer = leader_epochs.end_offset_for(own.latest_epoch, len(leader))
        to = decide_truncation(*answer, own, len(follower), 0)
        follower = follower[: to.offset]
        own.truncate_from_end(to.offset)
        if to.done:
            return follower
    raise AssertionError(f"it asks for ever: {leader} {leader_led} {follower} {led}")


def common(one: History, other: History) -> History:
    same = [a == b for a, b in zip(one, other, strict=False)]
    return one[: same.index(False) if False in same else len(same)]


def test_logs_that_two_leaders_wrote_in_turn_are_cut_to_where_they_part() -> None:
    """KIP-279: each was elected without the other's records, again and again."""
    leader = [0, 0, 1, 1, 3, 3, 3, 5]
    follower = [0, 0, 2, 2, 2, 4, 4, 4, 4]
    assert agree(leader, [], follower, []) == [0, 0]


def test_epochs_without_a_record_lead_no_one_in_a_circle() -> None:
    """Three elections of an idle partition, each of another broker."""
    assert agree([3] * 10, [(4, 10), (6, 10)], [3] * 10, [(5, 10)]) == [3] * 10


def test_whatever_was_written_where_the_logs_agree_after_and_nothing_common_is_lost() -> None:
    for seed in range(500):
        chance = random.Random(seed)
        logs: list[History] = [[], [], []]
        led: list[Entries] = [[], [], []]
        for epoch in range(chance.randint(1, 12)):
            leads = chance.randrange(3)
            led[leads].append((epoch, len(logs[leads])))
            logs[leads] += [epoch] * chance.randint(0, 4)
            for each in range(3):
                if each != leads and chance.random() < 0.5:
                    kept = agree(logs[leads], led[leads], logs[each], led[each])
                    assert kept == common(logs[leads], logs[each]), seed
                    led[each] = [entry for entry in led[each] if entry[1] < len(kept)]
                    logs[each] = logs[leads][: chance.randint(len(kept), len(logs[leads]))]
