"""The invariants of a replica."""

from __future__ import annotations

import pytest

from broker.replication.isr import Follower
from broker.replication.partition import Partition
from tests.broker.replication.partition.replica import append, fetch, follower, led, state
from tests.broker.replication.replicas import NOW_MS


def break_leader(partition: Partition, what: str) -> None:
    """Bring a leader into a state that must not be."""
    match what:
        case "a leader's high watermark went back":
            partition.high_watermark = 0
        case "the leader epoch went back":
            partition.leader_epoch -= 1
        case "the log starts above the watermark":
            partition.log.increment_log_start_offset(2)
        case "the watermark is above the log's end":
            partition.high_watermark = 3
        case "the log has an epoch that has not begun":
            partition.log.begin_epoch(9)
        case "the leader is not in the ISR":
            partition.isr = (1,)
        case "the leader follows itself":
            partition.followers[0] = partition.followers[1]
        case "an assigned replica has no follower entry":
            partition.replicas = (0, 1, 2)
        case "a replica in the ISR is neither assigned nor leaving":
            partition.isr = (0, 1, 2)
        case "a proposed replica is not assigned":
            partition.maximal_isr = (0, 1, 2)
        case "the maximal ISR lacks one of the ISR":
            partition.maximal_isr = (0,)
        case "the maximal ISR lacks a replica that is proposed":
            partition.isr = partition.maximal_isr = (0,)
            partition.proposed_isr = (0, 1)
        case "a leader's log was truncated":
            partition.epoch_start_offset = 3
        case "the log of a leader is lent to a thread":
            partition.log.is_lent = True


@pytest.mark.parametrize(
    "what",
    [
        "a leader's high watermark went back",
        "the leader epoch went back",
        "the log starts above the watermark",
        "the watermark is above the log's end",
        "the log has an epoch that has not begun",
        "the leader is not in the ISR",
        "the leader follows itself",
        "an assigned replica has no follower entry",
        "a replica in the ISR is neither assigned nor leaving",
        "a proposed replica is not assigned",
        "the maximal ISR lacks one of the ISR",
        "the maximal ISR lacks a replica that is proposed",
        "a leader's log was truncated",
        "the log of a leader is lent to a thread",
    ],
)
def test_check_names_what_a_leader_must_not_be(what: str) -> None:
    partition = led(records=2)
    fetch(partition, 1)
    partition.check()
    break_leader(partition, what)
    with pytest.raises(AssertionError, match=f"^{what}"):
        partition.check()


def test_check_refuses_followers_and_proposals_of_a_replica_that_follows() -> None:
    partition = follower(records=1)
    partition.followers[1] = Follower.at_epoch_start(True, 1, NOW_MS)
    with pytest.raises(AssertionError, match="has followers"):
        partition.check()
    partition.followers.clear()
    partition.proposed_isr = (0,)
    with pytest.raises(AssertionError, match="proposes an ISR"):
        partition.check()


def test_check_looks_at_no_offsets_of_a_log_that_is_lent() -> None:
    partition = follower(records=2, watermark=2)
    partition.log.is_lent = True
    partition.log.truncate_to(1)
    partition.check()
    partition.log.is_lent = False
    with pytest.raises(AssertionError, match="the watermark is above the log's end"):
        partition.check()


def test_stopped_replica_has_no_followers_and_no_proposal() -> None:
    partition = led(records=1)
    partition.propose_isr((0,))
    partition.stop()
    assert (partition.is_leader, partition.followers, partition.proposed_isr) == (False, {}, None)


def test_replica_that_lacks_the_start_of_the_epoch_must_not_be_proposed() -> None:
    partition = led(isr=(0,))
    append(partition, b"a")
    partition.take_state(state(epoch=4, isr=(0,)), NOW_MS)
    with pytest.raises(AssertionError, match="KAFKA-7128"):
        partition.propose_isr((0, 1))
