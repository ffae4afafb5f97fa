"""Code whose absence only the check of a state notices (`protocol.state_checks`)."""

from tests.mutants.remedy import Remedy

TESTS: dict[str, str] = {
    "groups.coordinator.partition_deletion": "tests/groups/coordinator/test_removal.py",
    "groups.zookeeper.membership": "tests/groups/zookeeper/membership",
}
"""By module: the tests that notice, where a remedy names none."""

REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        "S1",
        "a sweep that ends leaves no spared keys to another",
        "groups.coordinator.partition_deletion:end_sweep",
        "{key for key in shard.recommitted if shard.is_deleting(key)}",
        "shard.recommitted if shard.deleting else set()",
    ),
    Remedy(
        "S2",
        "a change of the group ends with the session",
        "groups.zookeeper.membership:_session_lost",
        "False",
        "member.has_changed",
    ),
)
