"""Leaders that died and came back while there was no controller.

Under the same leader epoch, one that lost its tail would write other records in its place.
"""

import attrs

from broker.controller.events import ClusterRead, LeaderAndIsrResponseReceived
from broker.controller.state import Leadership
from tests.broker.controller.script import P0, ControllerScript, active_state, broker, led_by

WRITTEN = 50
BEFORE, AFTER = 40, 60


def take_over(known: Leadership, **epochs: int) -> ControllerScript:
    """Elect a controller: brokers 1 to 3 are registered at 40, or at `epochs`."""
    known = attrs.evolve(known, mzxid=WRITTEN)
    brokers = tuple(
        broker(broker_id, epochs.get(f"b{broker_id}", BEFORE)) for broker_id in (1, 2, 3)
    )
    script = ControllerScript(active_state([]))
    script.nodes[P0] = known
    script.take(ClusterRead(brokers, {"t": {0: (1, 2, 3)}}, {P0: known}, ()))
    return script


def test_nobody_bounced_and_nothing_is_written() -> None:
    assert take_over(led_by(1, [1, 2, 3])).leader_isr_epoch(P0) == (1, (1, 2, 3), 0)


def test_a_leader_that_bounced_is_replaced_under_a_new_epoch_and_stays_in_sync() -> None:
    assert take_over(led_by(1, [1, 2, 3]), b1=AFTER).leader_isr_epoch(P0) == (2, (1, 2, 3), 1)


def test_a_follower_that_bounced_changes_nothing() -> None:
    assert take_over(led_by(1, [1, 2, 3]), b3=AFTER).leader_isr_epoch(P0) == (1, (1, 2, 3), 0)


def test_where_nobody_else_is_in_sync_it_leads_again_but_not_under_its_epoch() -> None:
    assert take_over(led_by(1, [1]), b1=AFTER).leader_isr_epoch(P0) == (1, (1,), 1)


def test_a_bounced_broker_that_was_not_in_sync_changes_nothing() -> None:
    assert take_over(led_by(1, [1, 2]), b3=AFTER).leader_isr_epoch(P0) == (1, (1, 2), 0)


def test_a_leader_that_is_back_alone_does_not_put_those_who_are_gone_out_of_the_isr() -> None:
    """It may have come back without its disk: then only the others have everything."""
    known = attrs.evolve(led_by(1, [1, 2, 3]), mzxid=WRITTEN)
    script = ControllerScript(active_state([]))
    script.nodes[P0] = known
    script.take(ClusterRead((broker(1, AFTER),), {"t": {0: (1, 2, 3)}}, {P0: known}, ()))
    assert script.leader_isr_epoch(P0) == (1, (1, 2, 3), 1)
    script.take(LeaderAndIsrResponseReceived(1, taken=(), lost=(P0,)))
    assert script.leader_isr_epoch(P0)[:2] == (-1, (1, 2, 3))
