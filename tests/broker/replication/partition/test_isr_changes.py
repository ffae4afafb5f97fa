"""Proposals of another ISR, until they are written or superseded."""

from __future__ import annotations

import pytest

from core_log.config import LogConfig
from protocol.errors import ApiError
from tests.broker.replication.partition.replica import LAG_MS, T0, append, fetch, led, state
from tests.broker.replication.replicas import NOW_MS
from zk.znodes import PartitionState


def test_a_proposal_is_the_state_over_the_version_that_is_known() -> None:
    change = led().propose_isr((0,))
    assert (change.topic_partition, change.zk_version) == (T0, 8)
    assert change.state == PartitionState(0, 3, (0,), 2)


def test_while_a_proposal_is_under_way_there_is_no_other() -> None:
    partition = led(records=1, isr=(0, 1), replicas=(0, 1, 2))
    partition.advance_high_watermark(NOW_MS)
    partition.propose_isr((0,))
    fetch(partition, 1, replica=2)
    assert partition.isr_with(2) is None
    assert partition.isr_without_lagging(NOW_MS + 2 * LAG_MS) is None


def test_who_is_to_leave_holds_the_watermark_until_it_is_written() -> None:
    partition = led(records=1)
    partition.propose_isr((0,))
    assert not partition.advance_high_watermark(NOW_MS + 2 * LAG_MS)
    partition.confirm_isr((0,), 9)
    assert partition.advance_high_watermark(NOW_MS + 2 * LAG_MS)
    assert (partition.isr, partition.zk_version, partition.high_watermark) == ((0,), 9, 1)


def test_who_is_to_come_holds_the_watermark_before_it_is_written() -> None:
    """The controller may see it in the ISR first, and have it lead."""
    partition = led(isr=(0,))
    fetch(partition, 0)
    partition.propose_isr((0, 1))
    append(partition, b"x")
    assert not partition.advance_high_watermark(NOW_MS + 2 * LAG_MS)


def test_what_is_proposed_does_not_count_for_min_insync_replicas() -> None:
    partition = led(LogConfig(min_insync_replicas=2), isr=(0,))
    fetch(partition, 0)
    partition.propose_isr((0, 1))
    with pytest.raises(ApiError, match="NOT_ENOUGH_REPLICAS"):
        append(partition, b"x", all_in_sync=True)
    partition.confirm_isr((0, 1), 9)
    assert append(partition, b"x", all_in_sync=True) == 0


def test_a_new_state_ends_a_proposal() -> None:
    partition = led()
    partition.propose_isr((0,))
    partition.is_superseded = True
    partition.take_state(state(epoch=4, zk_version=20), NOW_MS)
    assert (partition.proposed_isr, partition.is_superseded, partition.zk_version) == (
        None,
        False,
        20,
    )


def test_who_was_superseded_proposes_no_more() -> None:
    partition = led(records=1)
    partition.is_superseded = True
    assert partition.isr_without_lagging(NOW_MS + 2 * LAG_MS) is None
