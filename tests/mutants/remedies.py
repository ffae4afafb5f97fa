"""The remedies against the hazards of a group in ZooKeeper, and how to take each away.

A *remedy* is a few words of a source file; without them, or with others instead, a hazard is back.
`tests/README.md` says what the numbers stand for. `make mutants` takes one away at a time, in a
copy of the tree, and expects the tests named here to notice.
"""

from __future__ import annotations

import attrs

MEMBERSHIP = "groups/zookeeper/membership.py"
MEMBER = "groups/zookeeper/member.py"
TREE = "groups/zookeeper/tree.py"
ASSIGNMENT = "groups/zookeeper/assignment.py"
REGISTRATION = "groups/zookeeper/registration.py"
FILTERS = "groups/zookeeper/filters.py"
CONFIG = "clients/high_level/config.py"
DELIVERY = "clients/high_level/delivery.py"
FETCHERS = "clients/high_level/fetchers.py"
FINDER = "clients/high_level/leader_finder.py"
STREAMS = "clients/high_level/streams.py"
STORE = "offsets/store.py"
ZOOKEEPER_STORE = "offsets/zookeeper_store.py"
FETCHING = "clients/fetching.py"
BROKERS = "clients/registered_brokers.py"
CONNECTOR = "clients/high_level/connector.py"
JSON = "zk/znode_json.py"

GROUPS, HIGH_LEVEL = "tests/groups/zookeeper/", "tests/clients/high_level/"
TESTS = {
    MEMBERSHIP: GROUPS + "test_membership.py",
    MEMBER: GROUPS + "test_member_in_memory.py",
    TREE: GROUPS + "test_tree.py",
    ASSIGNMENT: GROUPS + "test_assignment.py",
    REGISTRATION: GROUPS + "test_tree.py",
    FILTERS: GROUPS + "test_filters.py",
    CONFIG: HIGH_LEVEL + "test_config.py",
    DELIVERY: HIGH_LEVEL + "test_delivery.py",
    FETCHERS: HIGH_LEVEL + "test_fetchers.py",
    FINDER: HIGH_LEVEL + "test_leader_finder.py",
    STREAMS: HIGH_LEVEL + "test_streams.py",
    STORE: "tests/offsets/test_store.py",
    ZOOKEEPER_STORE: "tests/offsets/test_store.py",
    FETCHING: HIGH_LEVEL + "test_fetchers.py",
    BROKERS: "tests/clients/test_registered_brokers.py",
    CONNECTOR: HIGH_LEVEL + "test_connector.py::test_shutdown_ends_streams_that_are_waited_for"
    "_and_may_be_repeated",
    JSON: GROUPS + "test_registration.py " + GROUPS + "test_tree.py",
}


@attrs.frozen
class Remedy:
    """`words` stand once in `file`; `instead`, the hazard is back. `tests`: if not the file's."""

    hazard: int
    what: str
    file: str
    words: str
    instead: str
    tests: str = ""

    @property
    def noticed_by(self) -> str:
        """The tests that must fail without it."""
        return self.tests or TESTS[self.file]


REMEDIES: tuple[Remedy, ...] = (
    # --- membership and ownership -------------------------------------------------------------
    Remedy(
        *(1, "what has not changed is not read again", TREE),
        "and remembered[0] == session_id:",
        "and False:",
    ),
    Remedy(
        *(1, "a burst of changes is read once", MEMBERSHIP),
        "    if member.phase in _AT_REST:\n        return _debounce(member, now_ms)",
        "    if member.phase in _AT_REST:\n        return _begin_round(member)",
    ),
    Remedy(
        *(1, "one owner node of each member in the way is watched", MEMBERSHIP),
        "frozenset(of[0] for _, of in member.in_the_way)",
        "frozenset(member.blocked)",
    ),
    Remedy(
        *(1, "what leaves is not held up by a commit that hangs", DELIVERY),
        "async with asyncio.timeout(COMMIT_PATIENCE_S):",
        "async with asyncio.timeout(None):",
    ),
    Remedy(
        *(2, "the server is brought up to date before it is asked", TREE),
        "        await self.zk.sync(ids)\n",
        "",
    ),
    Remedy(
        *(2, "what changes while it is read is read again", TREE),
        "if after.cversion == before.cversion:",
        "if True:",
    ),
    Remedy(
        *(2, "what was read in another session is read again", TREE),
        "and remembered[0] == session_id:",
        "and session_id:",
    ),
    Remedy(
        *(2, "an answer that a watch has overtaken is not remembered", TREE),
        "if not fired:",
        "if True:",
    ),
    Remedy(
        *(2, "who may have come back under an old name is read again", TREE),
        "or ids.cversion - self.cversion != len(came_or_went):",
        "or ids.cversion < self.cversion:",
    ),
    Remedy(
        *(2, "a change during a round begins another", MEMBERSHIP),
        "return attrs.evolve(member, changed=member.phase not in _OUT_OF_GROUP), []",
        "return member, []",
    ),
    Remedy(
        *(3, "a member that cannot settle goes on trying", MEMBERSHIP),
        "return waiting, [timer, do.Report(complaint, do.Failure.RETRIES)]",
        "return waiting, [do.Report(complaint, do.Failure.RETRIES)]",
    ),
    Remedy(
        *(3, "and says so again and again", MEMBERSHIP),
        "if tries % member.settings.rebalance_max_retries or complaint == member.complaint:",
        "if tries != member.settings.rebalance_max_retries or complaint == member.complaint:",
    ),
    Remedy(
        *(3, "rounds that a watch began do not use up its tries", MEMBERSHIP),
        "    waiting = attrs.evolve(member, phase=phase)\n",
        "    waiting = member = attrs.evolve(member, phase=phase, attempts=member.attempts + 1)\n",
    ),
    Remedy(
        *(3, "and never without a pause", MEMBERSHIP),
        "max(member.settings.rebalance_backoff_ms, LEAST_BACKOFF_MS)",
        "member.settings.rebalance_backoff_ms",
    ),
    Remedy(
        *(4, "a node of another session is not released", TREE),
        "if owner.session_id == self.zk.session_id\n            and consumer_of",
        "if consumer_of",
    ),
    Remedy(
        *(4, "a node of another member is not released", TREE),
        "\n            and consumer_of(owner.thread_id) == self.consumer_id\n",
        "\n",
    ),
    Remedy(
        *(4, "a node is released in the version that was looked at", TREE),
        "Delete(self._owner_path(p), owner.version)",
        "Delete(self._owner_path(p))",
    ),
    Remedy(
        *(4, "a settled member sees that its nodes have been deleted", MEMBERSHIP),
        "return settled, [_retry_timer(settled, now_ms, AUDIT_MS), do.Report()]",
        "return settled, [do.Report()]",
    ),
    Remedy(
        *(5, "what may have been claimed is given back", MEMBERSHIP),
        "held=frozenset(ours.keys() | free.keys()),",
        "held=frozenset(ours.keys()),",
    ),
    Remedy(
        *(6, "a node of an earlier session is not ours", MEMBERSHIP),
        "owner.session_id == member.session_id and consumer_of",
        "consumer_of",
    ),
    Remedy(
        *(6, "a claim that comes in a later session fails", TREE),
        "Check(self._registration_path, version=-1)",
        'Check("/", version=-1)',
    ),
    Remedy(
        *(7, "a registration of an earlier session is waited out", TREE),
        "await gone.wait()",
        "raise TimeoutError",
    ),
    Remedy(
        *(8, "a registration of this session is ours", TREE),
        "if stat.ephemeral_owner == self.zk.session_id:\n                return None",
        "if False:\n                return None",
    ),
    Remedy(
        *(9, "a registration is waited for no longer than it can take", TREE),
        "patience_s = self.zk.session_timeout_ms * 1.5 / 1000",
        "patience_s = 1e6",
    ),
    Remedy(
        *(9, "who finds its id in use gives up", MEMBERSHIP),
        "if event.in_use and not member.joined:",
        "if False:",
    ),
    Remedy(
        *(10, "a broker that goes while brokers are read is left out", BROKERS),
        "        except NoNode:\n            continue",
        "        except NoNode:\n            raise",
    ),
    Remedy(
        *(11, "where no broker is, one is looked for again", FINDER),
        "except (ClientError, ApiError) as error:",
        "except ApiError as error:",
    ),
    Remedy(
        *(12, "a topic that grows is heard of", TREE),
        "self._read_topic, topics_changed)",
        "self._read_topic, lambda event: None)",
    ),
    Remedy(
        *(13, "partitions are in the order of their numbers", ASSIGNMENT),
        "{topic: sorted(some) for topic, some in partitions_of.items()}",
        "{topic: list(some) for topic, some in partitions_of.items()}",
    ),
    Remedy(
        *(14, "round robin passes over who lacks the topic", ASSIGNMENT),
        "while ring[turn % len(ring)] not in willing:",
        "while False:",
    ),
    Remedy(
        *(15, "a strategy nobody knows is refused", CONFIG),
        "validator=one_of(*ASSIGNORS),",
        "",
    ),
    Remedy(
        *(16, "who has left does nothing more", MEMBERSHIP),
        "    if member.phase is Phase.CLOSED:\n        return member, []\n    return DECIDE",
        "    return DECIDE",
    ),
    Remedy(
        *(19, "a pattern is escaped in JSON", JSON),
        'separators=(",", ":")).encode()',
        'separators=(",", ":")).replace("\\\\\\\\", "\\\\").encode()',
    ),
    Remedy(
        *(20, "the offset of a deleted partition is not committed", MEMBERSHIP),
        "gone = leaving - member.assignment.keys()",
        "gone = frozenset[TopicPartition]()",
    ),
    Remedy(
        *(20, "a topic that is not there is watched for", TREE),
        "                if await self.zk.exists(path, changed) is None:\n"
        "                    return {}",
        "                return {}",
    ),
    Remedy(
        *(21, "a malformed neighbour stops the rebalance", TREE),
        "            if isinstance(read, GroupProblem):\n                return read",
        "            if isinstance(read, GroupProblem):\n                continue",
    ),
    Remedy(
        *(21, "a topic whose name is no path is malformed", REGISTRATION),
        'if not all(map(_PATH_PART.fullmatch, topic.split("/"))):',
        "if False:",
    ),
    Remedy(
        *(21, "what is JSON to Python alone is malformed", JSON),
        "json.loads(data.decode(), parse_constant=_no_constant)",
        "json.loads(data)",
    ),
    Remedy(
        *(21, "a pattern that Java may read otherwise is refused", FILTERS),
        "    _check_alike(regex)\n",
        "",
    ),
    Remedy(
        *(21, "... and reported once, by name", MEMBERSHIP),
        "news = [] if problem.text == member.complaint else",
        "news =",
    ),
    Remedy(
        *(22, "members with another strategy do not go together", REGISTRATION),
        "    if theirs == ours:\n        return None",
        "    return None",
    ),
    Remedy(
        *(23, "who leaves takes its nodes with it", MEMBERSHIP),
        "do.LeaveGroup(member.held)]\n    return attrs.evolve(member, phase=Phase.CLOSED)",
        "]\n    return attrs.evolve(member, phase=Phase.CLOSED)",
    ),
    Remedy(
        *(23, "... though a reply be lost on the way", MEMBER),
        "if zk.session_id != session_id or self._now_ms() >= ends_ms:",
        "if True:",
    ),
    # --- expiry, liveness, duplicates ---------------------------------------------------------
    Remedy(
        *(24, "what was asked for in an earlier round is ignored", MEMBERSHIP),
        "return round_asked_for != member.round or member.phase is not phase",
        "return member.phase is not phase",
    ),
    Remedy(
        *(24, "a new session begins with nothing", MEMBERSHIP),
        "        held=frozenset(),\n        delivering={},\n    )\n    return left",
        "    )\n    return left",
    ),
    Remedy(
        *(25, "on expiry deliveries end before anything else", MEMBERSHIP),
        "    return left, [do.Abandon()]",
        "    return left, []",
    ),
    Remedy(
        *(26, "delivery pauses when the lease has ended", MEMBERSHIP),
        "paused=True), [do.PauseDelivery()]",
        "paused=True), []",
    ),
    Remedy(
        *(26, "the lease ends before the session does", MEMBERSHIP),
        "event.session_timeout_ms * 2 // 3",
        "event.session_timeout_ms",
    ),
    Remedy(
        *(26, "a paused member commits nothing", DELIVERY),
        "if self.paused or not self.entitled():",
        "if not self.entitled():",
    ),
    Remedy(
        *(26, "a process that was stopped commits nothing", DELIVERY),
        "if self.paused or not self.entitled():",
        "if self.paused:",
    ),
    Remedy(
        *(26, "a process that was stopped hands out nothing", STREAMS),
        "entitled = self._entitled()",
        "entitled = True",
    ),
    Remedy(
        *(26, "whether we may go on is looked at soon", STREAMS),
        "FIRST_TURN = 1\n",
        "FIRST_TURN = 128\n",
    ),
    Remedy(
        *(26, "a commit that has not been sent is not sent after the lease", DELIVERY),
        "            self._under_way.reschedule(0)\n",
        "            pass\n",
    ),
    Remedy(
        *(27, "who has left commits nothing more", MEMBERSHIP),
        "effects += [do.ForgetPositions(delivered), do.LeaveGroup",
        "effects += [do.LeaveGroup",
    ),
    Remedy(
        *(27, "a negative offset is refused", DELIVERY),
        "if committed.offset < 0:",
        "if False:",
    ),
    Remedy(
        *(27, "a commit on its way ends before ownership does", DELIVERY),
        "        async with self._committing:\n            for partition in partitions:",
        "        if True:\n            for partition in partitions:",
    ),
    Remedy(
        *(27, "what is not owned is not committed", DELIVERY),
        "foreign = wanted.keys() - self._feeds.keys()",
        "foreign = wanted.keys() - wanted.keys()",
    ),
    Remedy(
        *(27, "a commit does not go back", DELIVERY),
        "            and (feed.committed is None or position >= feed.committed)\n",
        "",
    ),
    Remedy(
        *(27, "a commit is not written in a later session", ZOOKEEPER_STORE),
        "if self.zk.session_id != session_id:",
        "if False:",
    ),
    Remedy(
        *(28, "a chunk of a partition given up is dropped", STREAMS),
        "        if chunk.feed.live:\n            self._chunks",
        "        if True:\n            self._chunks",
    ),
    Remedy(
        *(28, "nor is the rest of the one being read handed out", STREAMS),
        "            self._chunk, self._rest, self._turn = None, iter(()), iter(())\n",
        "",
    ),
    Remedy(
        *(29, "a message being processed is not committed", STREAMS),
        "consumed = handed_out if self._asking else handed_out - 1",
        "consumed = handed_out",
    ),
    Remedy(
        *(30, "what stays keeps its position", MEMBERSHIP),
        "silent = frozenset(ours.keys() - member.delivering.keys())",
        "silent = frozenset(ours.keys())",
    ),
    Remedy(
        *(31, "without auto.commit.enable a rebalance commits nothing", MEMBERSHIP),
        "if member.settings.auto_commit_enable and leaving != gone:",
        "if leaving != gone:",
    ),
    Remedy(
        *(32, "what ZooKeeper has already is not written", ZOOKEEPER_STORE),
        "if self._known.get((group, partition)) != committed.offset",
        "if True",
    ),
    Remedy(
        *(33, "reading resumes in the middle of a set", FETCHING),
        "if rows and rows[0][0] < offset:",
        "if False:",
    ),
    Remedy(
        *(34, "a message that does not fit is asked for in more", FETCHERS),
        "min(asked_for * 2, self.config.largest_fetch_bytes)",
        "asked_for",
    ),
    Remedy(
        *(34, "one that never fits is raised", FETCHERS),
        "            self._raise(feed, MessageSizeTooLarge(feed.partition, offset, asked_for))",
        "            self._drop([feed])",
    ),
    Remedy(
        *(35, "a message is decoded when it is looked at", STREAMS),
        "        self._row = row\n",
        "        self._row = row\n        assert self.value is not Ellipsis\n",
    ),
    Remedy(
        *(36, "each stream is ended", CONNECTOR),
        "            for stream in self._delivery.streams:\n                stream.end()\n",
        "            for stream in self._delivery.streams[:1]:\n                stream.end()\n",
    ),
    Remedy(
        *(37, "a full stream holds up no other", FETCHERS),
        "ready = [feed for feed in self.feeds if feed.stream.has_room]",
        "ready = self.feeds",
    ),
    Remedy(
        *(38, "a fetcher that ends hands its partitions back", FETCHERS),
        "                self._drop(self.feeds)\n",
        "                self.feeds = []\n",
    ),
    Remedy(
        *(38, "... whatever it was that ended it", FETCHERS),
        "            self.give_back([feed for feed in fetcher.feeds if feed.live])\n",
        "            pass\n",
    ),
    Remedy(
        *(39, "a partition without leader is looked for again", FINDER),
        "                self._leaderless.append(feed)\n",
        "                pass\n",
    ),
    Remedy(
        *(39, "metadata of no topics is never asked for", FINDER),
        "        if not topics:",
        "        if False:",
    ),
    Remedy(
        *(40, "the listener is told before ownership ends", MEMBERSHIP),
        "effects += [do.ForgetPositions(leaving), do.ReleaseOwners(member.round, leaving)]",
        "effects[:0] = [do.ForgetPositions(leaving), do.ReleaseOwners(member.round, leaving)]",
    ),
    Remedy(
        *(41, "between two looks for leaders there is a pause", FINDER),
        "await asyncio.sleep(self.backoff_ms / 1000)",
        "await asyncio.sleep(0.001)",
    ),
    Remedy(
        *(42, "a socket waits longer than a fetch", CONFIG),
        "if config.socket_timeout_ms < config.fetch_wait_max_ms:",
        "if False:",
    ),
    # --- offsets in Kafka ---------------------------------------------------------------------
    Remedy(
        *(44, "an error is not `no offset`", STORE),
        "errors[partition] = code.name",
        "pass",
    ),
    Remedy(
        *(45, "a position that is not known is not committed", STORE),
        "if offset.offset >= 0}",
        "if True}",
    ),
    Remedy(
        *(46, "who leaves does not wait for what is being read", MEMBER),
        "            self._patience.reschedule(0)\n",
        "            pass\n",
    ),
    Remedy(
        *(47, "a commit that fails in a rebalance is tried once more", DELIVERY),
        "retries = min(self.commit_retries, COMMIT_RETRIES_IN_REBALANCE)",
        "retries = 0",
    ),
    Remedy(
        *(48, "commit_offsets() commits what has been consumed", DELIVERY),
        "wanted = dict(self.positions() if offsets is None else offsets)",
        "wanted = dict(offsets or {})",
    ),
    Remedy(
        *(50, "a commit that cannot help is not tried again", STORE),
        "return any(code.retriable for code in self.errors.values())",
        "return True",
    ),
    Remedy(
        *(49, "of two stores the one that is ahead is believed", STORE),
        "if ours and theirs and theirs.offset > ours.offset:",
        "if False:",
    ),
)
