"""Remedies in the group coordinator, and in its members."""

from tests.mutants.remedy import Remedy

COORDINATOR = "groups.coordinator.membership."
DESK = "tests/groups/coordinator/membership"
PAIR = "tests/groups/consumer/test_pair.py"
TRANSCRIPTS = "tests/groups/consumer/test_transcripts.py"
EVENTS = "tests/broker/coordinators/test_group_event_writer.py"
WORK = "tests/clients/high_level/streams/test_work_in_hand.py"
SIDE = "tests/clients/high_level/test_coordinator_side.py"
MEMBER = "tests/groups/consumer/test_member.py"

TESTS: dict[str, str] = {
    COORDINATOR + "group": DESK,
    COORDINATOR + "heartbeat": DESK,
    COORDINATOR + "loading": DESK,
    COORDINATOR + "rebalance": DESK,
    COORDINATOR + "static_members": DESK,
    COORDINATOR + "sync": DESK,
    "groups.coordinator.group_deletion": DESK,
    "groups.coordinator.partition_deletion": DESK,
    "groups.coordinator.commits": "tests/groups/coordinator/test_commits.py " + PAIR,
    "groups.consumer.decide": f"{PAIR} {TRANSCRIPTS}",
    "groups.consumer.member": MEMBER,
    "clients.high_level.connector": SIDE,
    "clients.high_level.coordinator_side": SIDE,
    "groups.zookeeper.member": "tests/groups/zookeeper/member",
}
"""By module: the tests that notice, where a remedy names none."""

REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        "G1",
        "a commit of a generation that has ended is refused",
        "groups.coordinator.commits:refusal",
        "if committer.generation_id != group.generation_id:\n"
        "    return ErrorCode.ILLEGAL_GENERATION",
        "",
    ),
    Remedy(
        "G2",
        "what a member must give up is revoked before it joins",
        "groups.consumer.decide:_rejoin",
        "[*_revoke(consumer, leaving), *effects]",
        "effects",
    ),
    Remedy(
        "G2",
        "delivery of what is lost ends at once",
        "groups.consumer.decide:_lose",
        "[do.Abandon(), do.EndHeartbeats()]",
        "[do.EndHeartbeats()]",
    ),
    Remedy(
        "G3",
        "an answer to a heartbeat of an identity that was given up changes nothing",
        "groups.consumer.decide:_heartbeat_responded",
        "not _is_ours(consumer, event.generation_id, event.member_id)",
        "False",
    ),
    Remedy(
        "G4",
        "a generation that ends before it was assigned refuses those who wait for it",
        "groups.coordinator.membership.rebalance:prepare",
        "effects += respond_to_syncs(group, Synced(ErrorCode.REBALANCE_IN_PROGRESS))",
        "",
    ),
    Remedy(
        "G5",
        "an assignment that is stored after its generation has ended is given to nobody",
        "groups.coordinator.membership.sync:end_store",
        "group.generation_id != event.generation_id",
        "False",
    ),
    Remedy(
        "G6",
        "a cooperative member that gave partitions up joins again, so that others get them",
        "groups.consumer.decide:_take_assignment",
        'after = attrs.evolve(after, rejoins="partitions are given up to other members")',
        "",
    ),
    Remedy(
        "G7",
        "members of a log that was loaded have a session",
        "groups.coordinator.membership.loading:load",
        "effects += [restart_session(member) for member in group.members.values()]",
        "",
    ),
    Remedy(
        "G8",
        "who waits at a coordinator that resigns is told so",
        "groups.coordinator.membership.loading:unload",
        "effects += respond_to_removed(group, member, ErrorCode.NOT_COORDINATOR)",
        "",
    ),
    Remedy(
        "G9",
        "who joined and does not ask for its assignment is removed",
        "groups.coordinator.membership.rebalance:_begin_generation",
        "group.unsynced = set(group.members)",
        "",
    ),
    Remedy(
        "G10",
        "a member id that is handed out is waited for until its client has joined with it",
        "groups.coordinator.membership.group:Group.add",
        "self.take_back(member.member_id)",
        "",
    ),
    Remedy(
        "G11",
        "a heartbeat of a generation that has ended is refused",
        "groups.coordinator.membership.heartbeat:beat",
        "event.generation_id != group.generation_id",
        "False",
    ),
    Remedy(
        "G12",
        "work on a message goes on when its partition is revoked",
        "clients.high_level.streams:MessageStream.drop",
        "self._outlasting_work = self.work_in_hand()",
        "",
        WORK,
    ),
    Remedy(
        "G12",
        "work on a message goes on when its partition is paused",
        "clients.high_level.streams:MessageStream.hold",
        "self._outlasting_work = self.work_in_hand()",
        "",
        WORK,
    ),
    Remedy(
        "G12",
        "a chunk in the memory of an earlier one is another",
        "clients.high_level.streams:MessageStream.work_in_hand",
        "(self._num_opened, handed_out)",
        "(id(chunk), handed_out)",
        WORK,
    ),
    Remedy(
        "G13",
        "members that are loaded have a session whatever becomes of other appends",
        "groups.coordinator.coordinator:GroupCoordinator._load_groups",
        "self.runtime.decide_in_turns(led, _loaded(sizes))",
        "self.runtime.sweep(led, _loaded(sizes))",
        "tests/groups/coordinator/coordinator/test_loading.py",
    ),
    Remedy(
        "G14",
        "an append that ends in time leaves no timer that keeps its records",
        "groups.runtime.runtime:CoordinatorRuntime._end_entries",
        "entry.timer.cancel()",
        "pass",
        "tests/groups/runtime/test_runtime.py",
    ),
    Remedy(
        "G15",
        "a task that the listener has ended does not end the member",
        "groups.consumer.member:GroupConsumer._call_listener",
        "_is_cancelled()",
        "True",
    ),
    Remedy(
        "G15",
        "a task that the listener has ended does not end a member in ZooKeeper",
        "groups.zookeeper.member:Member._call_listener",
        "current is not None and current.cancelling()",
        "True",
    ),
    Remedy(
        "G15",
        "a member with a bug ends its streams",
        "groups.consumer.member:GroupConsumer._run",
        "self.delivery.fail(error)",
        "",
    ),
    Remedy(
        "G16",
        "fetchers start in the turn of the loop in which it is decided that they are next",
        "groups.consumer.member:GroupConsumer._perform",
        "perform(self, effect)",
        "await asyncio.sleep(0)\nperform(self, effect)",
    ),
    Remedy(
        "G17",
        "events go in batches that the topic takes",
        "broker.coordinators.group_event_writer:_pack",
        "size > room",
        "False",
        EVENTS,
    ),
    Remedy(
        "G17",
        "a batch of events that its leader finds too large is halved",
        "broker.coordinators.group_event_writer:GroupEventWriter._end",
        "len(batch) > 1",
        "False",
        EVENTS,
    ),
    Remedy(
        "G17",
        "an event that is too large is not sent again",
        "broker.coordinators.group_event_writer:GroupEventWriter._send",
        "error not in (NONE, *TOO_LARGE)",
        "error is not NONE",
        EVENTS,
    ),
    Remedy(
        "G17",
        "events of other partitions do not wait behind those that are refused",
        "broker.coordinators.group_event_writer:GroupEventWriter._send_queued",
        "held |= await self._send(by_partition)",
        "held |= await self._send(by_partition)\nif held:\n    break",
        EVENTS,
    ),
    Remedy(
        "G20",
        "who is shut down before it is a member becomes none",
        "clients.high_level.coordinator_side:CoordinatorSide.join",
        "self._is_leaving",
        "False",
    ),
    Remedy(
        "G20",
        "streams without a member are taken back",
        "clients.high_level.connector:ConsumerConnector._join",
        "await self._take_back_streams()",
        "pass",
    ),
    Remedy(
        "G20",
        "a client that is closed opens no connection",
        "clients.transport.connections:Connections._open",
        "self._is_closed",
        "False",
        "tests/clients/transport/test_connections.py",
    ),
    Remedy(
        "G21",
        "a feed that is sought before it is fetched is fetched once",
        "clients.high_level.delivery:StreamDelivery.seek",
        "partition not in self._unfetched",
        "True",
        "tests/clients/high_level/test_opened_feeds.py",
    ),
    Remedy(
        "G21",
        "the listener of a member hears of partitions that are open",
        "groups.consumer.decide:_offsets_fetched",
        "[do.OpenFeeds(starts), notify, do.StartFetchers(started)]",
        "[notify, do.OpenFeeds(starts), do.StartFetchers(started)]",
        "tests/groups/consumer/test_transcripts.py",
    ),
    Remedy(
        "G24",
        "nothing is kept of an empty group, whatever came of its last record",
        "groups.coordinator.membership.loading:end_empty",
        "shard.release_group(event.group_id)",
        "if not event.error:\n    shard.release_group(event.group_id)",
    ),
    Remedy(
        "G24",
        "nothing is kept of a group that was deleted",
        "groups.coordinator.group_deletion:end_deletion",
        "shard.release_group(event.group_id)",
        "",
    ),
    Remedy(
        "G24",
        "nothing is kept of a group that has expired",
        "groups.coordinator.partition_deletion:end_removal",
        "shard.release_group(event.group_id)",
        "",
    ),
    Remedy(
        "G25",
        "no timer of a rebalance outlives the group",
        "groups.coordinator.membership.rebalance:_become_empty",
        "wait(group, 0)",
        "wait(group, 2**31 - 1)",
    ),
    Remedy(
        "G25",
        "a timer that was moved to an earlier time takes no room until its former one",
        "groups.event_timers:EventTimers.set",
        "len(self._heap) > 2 * len(self._timers)",
        "False",
        "tests/groups/test_event_timers.py",
    ),
    Remedy(
        "G26",
        "a static member that has restarted has a session, however long its record took",
        "groups.coordinator.membership.static_members:end_replacement",
        """
        [
            Publish(_history(group, member, event.former_id, members, now_ms)),
            restart_session(member),
            Reply(event.request_id, _response(group, member, event)),
        ]
        """,
        """
        [
            Publish(_history(group, member, event.former_id, members, now_ms)),
            Reply(event.request_id, _response(group, member, event)),
        ]
        """,
    ),
)
