"""The two tables of states: every pair, legal or not, and the log of an illegal one."""

import itertools

import pytest

from broker.controller import partition_states, replica_states
from broker.controller.partition_states import PARTITION_STATES, PartitionStatus
from broker.controller.replica_states import REPLICA_STATES, ReplicaStatus

LEGAL_FOR_PARTITIONS = {
    ("NON_EXISTENT", "NEW"),
    ("NEW", "ONLINE"),
    ("NEW", "OFFLINE"),
    ("ONLINE", "ONLINE"),
    ("ONLINE", "OFFLINE"),
    ("OFFLINE", "ONLINE"),
    ("OFFLINE", "OFFLINE"),
    ("OFFLINE", "NON_EXISTENT"),
}
LEGAL_FOR_REPLICAS = {
    ("NON_EXISTENT", "NEW"),
    ("NEW", "ONLINE"),
    ("NEW", "OFFLINE"),
    ("ONLINE", "ONLINE"),
    ("ONLINE", "OFFLINE"),
    ("OFFLINE", "ONLINE"),
    ("OFFLINE", "OFFLINE"),
    ("OFFLINE", "DELETION_STARTED"),
    ("OFFLINE", "DELETION_INELIGIBLE"),
    ("DELETION_STARTED", "DELETION_SUCCESSFUL"),
    ("DELETION_STARTED", "DELETION_INELIGIBLE"),
    ("DELETION_SUCCESSFUL", "NON_EXISTENT"),
    ("DELETION_INELIGIBLE", "ONLINE"),
    ("DELETION_INELIGIBLE", "OFFLINE"),
}


@pytest.mark.parametrize(("before", "after"), [*itertools.product(PartitionStatus, repeat=2)])
def test_partition_goes_only_where_the_table_leads(
    before: PartitionStatus, after: PartitionStatus
) -> None:
    states = {} if before is partition_states.NON_EXISTENT else {"p": before}
    moved = PARTITION_STATES.enter(states, ["p"], after)
    is_legal = (before.name, after.name) in LEGAL_FOR_PARTITIONS
    assert moved == (["p"] if is_legal else [])
    assert states.get("p", partition_states.NON_EXISTENT) is (after if is_legal else before)


@pytest.mark.parametrize(("before", "after"), [*itertools.product(ReplicaStatus, repeat=2)])
def test_replica_goes_only_where_the_table_leads(
    before: ReplicaStatus, after: ReplicaStatus
) -> None:
    states = {} if before is replica_states.NON_EXISTENT else {"r": before}
    moved = REPLICA_STATES.enter(states, ["r"], after)
    is_legal = (before.name, after.name) in LEGAL_FOR_REPLICAS
    assert moved == (["r"] if is_legal else [])
    assert states.get("r", replica_states.NON_EXISTENT) is (after if is_legal else before)


def test_illegal_way_is_logged_and_the_others_go_theirs(caplog: pytest.LogCaptureFixture) -> None:
    states = {"a": partition_states.NEW, "b": partition_states.ONLINE}
    moved = PARTITION_STATES.enter(states, ["a", "b", "c"], partition_states.OFFLINE)
    assert moved == ["a", "b"]
    assert caplog.messages == ["c cannot go from NON_EXISTENT to OFFLINE"]
    assert "c" not in states
