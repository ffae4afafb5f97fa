"""Remedies in ZooKeeper as it is in the field: sessions, watches, ensembles, rights."""

from tests.mutants.remedy import Remedy

SESSION = "tests/zk/session"
LINK = "tests/zk/test_kazoo_link.py"

TESTS: dict[str, str] = {
    "zk.session": SESSION,
    "zk.kazoo_link": LINK,
    "zk.api": SESSION,
}
"""By module: the tests that notice, where a remedy names none."""

REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        "A1",
        "a reply to another request than the oldest breaks the connection",
        "zk.kazoo_link:_Connection._read_response",
        "not pending or pending[0][2] != header.xid",
        "not pending",
    ),
    Remedy(
        "A1",
        "a server is asked for a MultiRead before anybody's requests go out",
        "zk.kazoo_link:_Connection._invoke",
        "self._ask_for_multi_read()",
        "self.can_multi_read = True",
    ),
    Remedy(
        "A1",
        "a server that knows no MultiRead is not asked again",
        "zk.kazoo_link:_Connection._ask_for_multi_read",
        "if self._serves_no_multi_read:\n    return",
        "",
    ),
    Remedy(
        "A1",
        "a connection that the question broke goes on with its session",
        "zk.kazoo_link:_Connection._invoke",
        "self.client._session_id, self.client._session_passwd = "
        "(granted.session_id, granted.passwd)",
        "",
    ),
    Remedy(
        "A1",
        "who can't read many at once is asked for each",
        "zk.session:KazooSession._get_batch",
        "not self._link.can_multi_read",
        "False",
        f"{LINK}::test_an_old_server_is_asked_once_for_many_reads_and_nobody_is_suspended",
    ),
    Remedy(
        "A2",
        "an attempt to connect has a share of the session timeout",
        "zk.kazoo_link:_LoopHandler.create_connection",
        'kwargs | {"timeout": self.connect_timeout_s}',
        "kwargs",
        f"{LINK}::test_with_one_silent_machine_of_three_every_session_starts_and_none_expires",
    ),
    Remedy(
        "A2",
        "the next attempt goes to the next host",
        "zk.kazoo_link:_Connection._addresses",
        "hosts = random.sample(self.client.hosts, len(self.client.hosts))\n"
        "stopped = self.client._stopped",
        "hosts = [random.choice(self.client.hosts) for _ in self.client.hosts]\n"
        "stopped = self.client._stopped",
    ),
    Remedy(
        "A6",
        "kazoo's thread survives what it can't read",
        "zk.kazoo_link:_Connection._attempt",
        "self.client._session_callback(KeeperState.CONNECTING)\nreturn False",
        "raise",
        f"{LINK}::test_a_reply_out_of_order_breaks_the_connection_and_the_session_goes_on",
    ),
    Remedy(
        "A6",
        "a reply that can't be read is a ZkError of its call",
        "zk.kazoo_link:_Connection._read_response",
        'reply.set_exception(UnreadableReply(f"{type(error).__name__} {error}"))',
        "reply.set_exception(error)",
    ),
    Remedy(
        "A6",
        "a path that is no text is a ZkError of its call",
        "zk.session:KazooSession._serialize",
        'raise ZkError(f"{self._describe(message)!r}: {error}") from None',
        "raise",
        f"{SESSION}/test_sizes.py::test_a_path_that_is_no_text_is_refused_and_the_others_go_on[3.9]",
    ),
    Remedy(
        "A11",
        "a chroot that does not exist is an error",
        "zk.session:KazooSession._finish_start",
        "await self._check_chroot()",
        "",
        f"{SESSION}/test_chroots.py::test_a_chroot_that_does_not_exist_is_an_error_and_is_not_created",
    ),
    Remedy(
        "A11",
        "a chroot is not created on the way to something else",
        "zk.session:KazooSession._create_missing",
        "full == self._chroot and not self._create_chroot",
        "False",
        f"{SESSION}/test_chroots.py::test_a_chroot_that_is_deleted_under_a_session_is_not_made_again",
    ),
    Remedy(
        "A15",
        "a watch that is taken back is on no node any more",
        "zk.session:KazooSession.remove_watch",
        "self._watches.remove(watch)",
        "",
        f"{SESSION}/test_watches.py::test_a_removed_watch_hears_no_more_and_the_others_do[3.9]",
    ),
    Remedy(
        "A15",
        "a watch that has fired everywhere is held by nobody",
        "zk.api:Watches.take",
        "self._remove_place(watch, table, event.path)",
        "pass",
        f"{SESSION}/test_watches.py::test_a_watch_that_is_over_is_held_by_nobody",
    ),
    Remedy(
        "C1",
        "the server counts as heard since what it has answered was sent",
        "zk.kazoo_link:KazooLink.silent_s",
        "self._connection.last_answered_sent_at_s",
        "self._connection.last_reply_at_s",
        f"{LINK}::test_silence_counts_from_what_was_sent_however_late_its_answer_is_read",
    ),
    Remedy(
        "C2",
        "a request that no server takes is not sent",
        "zk.session:KazooSession._serialize",
        "(size_bytes := request.size_bytes) > MAX_REQUEST_BYTES",
        "(size_bytes := 0) > 0",
        f"{SESSION}/test_sizes.py::test_a_request_too_large_for_a_server_is_refused_and_the_others_go_on[3.9]",
    ),
    Remedy(
        "C2",
        "watches are set again in requests that a server takes",
        "zk.kazoo_link:set_watches_requests",
        "size_bytes + path_bytes > MAX_SET_WATCHES_BYTES and size_bytes",
        "False",
        f"{LINK}::test_watches_are_set_again_in_requests_of_a_bounded_size",
    ),
    Remedy(
        "C2",
        "a claim is split by its bytes",
        "groups.zookeeper.tree:_multis",
        "MAX_BATCH_BYTES",
        "MAX_BATCH_BYTES * 100",
        "tests/groups/zookeeper/tree",
    ),
    Remedy(
        "P20",
        "an answer that came while the loop stood still counts",
        "zk.session:KazooSession._await_reply",
        "await asyncio.wait([reply], timeout=self.session_timeout_ms / 1000)",
        "async with asyncio.timeout(self.session_timeout_ms / 1000):\n    await reply",
        f"{SESSION}/test_servers.py::test_an_answer_that_came_while_the_loop_stood_still_counts",
    ),
    Remedy(
        "P30",
        "settings are written over the version that was read",
        "broker.settings.entity_configs:alter",
        "SetData(path, data, version)",
        "SetData(path, data, -1)",
        "tests/broker/kbroker/test_over_zookeeper.py",
    ),
)
"""What is taken away, a module for each area. See `tests.mutants.remedy`."""
