"""Remedies in members of groups in ZooKeeper."""

from tests.mutants.remedy import Remedy

GROUPS = "tests/groups/zookeeper/"
IN_MEMORY = "tests/clients/high_level/test_connector_in_memory.py"

TESTS: dict[str, str] = {
    "groups.zookeeper.membership": GROUPS + "test_membership.py",
    "groups.zookeeper.member": GROUPS + "test_member_in_memory.py",
    "clients.high_level.connector": IN_MEMORY,
    "groups.zookeeper.tree": GROUPS + "test_member_in_memory.py",
}
"""By module: the tests that notice, where a remedy names none."""

REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        "A4",
        "a claim that is refused is no peer's doing",
        "groups.zookeeper.tree:GroupTree._try_to_claim",
        "isinstance(failure.error, OVERTAKEN)",
        "True",
    ),
    Remedy(
        "A4",
        "a claim in vain is not repeated without a pause",
        "groups.zookeeper.membership:_claim",
        "in_vain < MAX_CLAIMS_IN_VAIN",
        "True",
    ),
    Remedy(
        "A4",
        "a release that is refused keeps a member from being settled",
        "groups.zookeeper.membership:_release_failed",
        "attrs.evolve(member, unreleased=event.reason)",
        "member",
        GROUPS + "test_member_in_memory.py",
    ),
    Remedy(
        "A8",
        "a group that is gone has no members",
        "groups.zookeeper.tree:GroupTree.read_group",
        "return GroupSnapshot({}, (), {})",
        "raise",
    ),
    Remedy(
        "A8",
        "who leaves without a registration deletes its owner nodes one by one",
        "groups.zookeeper.tree:GroupTree.release",
        "not unregister or self.zk.session_id != session_id",
        "True",
    ),
    Remedy(
        "A6",
        "a member hears that its session was closed",
        "groups.zookeeper.member:Member._session_changed",
        "self._happen(on.SessionClosed())",
        "",
    ),
    Remedy(
        "A6",
        "who joins in a session that is closed already hears of it",
        "groups.zookeeper.member:Member.join",
        "self.tree.zk.state in (SessionState.CONNECTED, SessionState.CLOSED)",
        "self.tree.zk.state is SessionState.CONNECTED",
    ),
    Remedy(
        "A6",
        "the streams of a member that is lost end with an error",
        "groups.zookeeper.membership:_session_closed",
        "[*effects, do.FailDelivery(reason), report]",
        "[*effects, report]",
        GROUPS + "test_membership.py " + IN_MEMORY,
    ),
    Remedy(
        "A7",
        "a shutdown goes on when its caller is cancelled",
        "clients.high_level.connector:ConsumerConnector.shutdown",
        "asyncio.shield(self._closing)",
        "self._closing",
    ),
    Remedy(
        "A7",
        "a listener does not wait for what waits for it",
        "clients.high_level.connector:ConsumerConnector.shutdown",
        "self._member and self._member.calls_listener",
        "False",
    ),
    Remedy(
        "A7",
        "a task that a listener made may wait when the listener has returned",
        "groups.zookeeper.member:Member._tell",
        "self._listening = None",
        "",
        IN_MEMORY,
    ),
    Remedy(
        "A7",
        "a leave that is cancelled does not cancel what releases",
        "groups.zookeeper.member:Member.leave",
        "asyncio.wait({runner})",
        "runner",
    ),
    Remedy(
        "A7",
        "who leaves does not wait for ZooKeeper any longer than it may",
        "groups.zookeeper.member:Member._within_bounds",
        "asyncio.timeout_at(self._leave_by_s)",
        "asyncio.timeout_at(None)",
    ),
    Remedy(
        "A7",
        "the time of the listener is its own",
        "groups.zookeeper.member:Member._tell",
        "self._leave_by_s += _now_s() - max(began_s, self._leaves_since_s)",
        "pass",
    ),
    Remedy(
        "A15",
        "who leaves takes its watches back",
        "groups.zookeeper.member:Member.leave",
        "self.tree.unwatch()",
        "",
    ),
    Remedy(
        "A15",
        "a watch of the migration is taken back",
        "offsets.governed_store:GovernedStore.withdraw",
        "self.zk.remove_watch(self._changed)",
        "",
        IN_MEMORY,
    ),
    Remedy(
        "B2",
        "who waits for an owner looks again when the node was rewritten",
        "groups.zookeeper.member:Member._owner_changed",
        "self._happen(on.OwnerChanged())",
        "if event.kind == 'deleted':\n    self._happen(on.OwnerChanged())",
    ),
)
