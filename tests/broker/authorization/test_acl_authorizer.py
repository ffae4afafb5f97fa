"""An authorizer and ZooKeeper: what it reads, writes, notifies, and follows of others."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest

from broker.authorization import acl_authorizer, acl_store
from broker.authorization.acl_authorizer import AclAuthorizer, Deleted
from broker.authorization.acl_store import NO_ACLS
from broker.network.authorization import group
from broker.network.request_context import RequestContext, authorize, refused_topics
from broker.network.session import Principal
from broker.process.change_notifications import LOOK_INTERVAL_MS
from protocol.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from protocol.errors import ErrorCode
from tests.broker.authorization.conftest import AclStage
from zk.api import BadVersion, NoAuth
from zk.znodes import ZnodeError

ALICE = Principal("User", "alice")
READ, WRITE = Operation.READ, Operation.WRITE
TOPIC = ResourceType.TOPIC
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
EVERYTHING = AclFilter()


def acl(
    name: str,
    operation: Operation = READ,
    kind: ResourceType = TOPIC,
    pattern: PatternType = LITERAL,
    principal: str = "User:alice",
) -> AclBinding:
    return AclBinding(ResourcePattern(kind, name, pattern), AclEntry(principal, operation))


def may(authorizer: AclAuthorizer, name: str, operation: Operation = READ) -> bool:
    return authorizer.sender(ALICE, "10.0.0.1").permissions(operation, TOPIC).allows(name)


def add(acls: AclStage, authorizer: AclAuthorizer, *bindings: AclBinding) -> list[ErrorCode]:
    errors = acls.run(authorizer.add, bindings)
    return [ErrorCode.NONE if error is None else error.code for error in errors]


def remove(acls: AclStage, authorizer: AclAuthorizer, *filters: AclFilter) -> list[Deleted]:
    return acls.run(authorizer.remove, filters)


def only(name: str, pattern: PatternType = LITERAL) -> AclFilter:
    return AclFilter(TOPIC, name, pattern)


# ---- ZooKeeper as Kafka has it


def test_start_creates_the_paths_that_brokers_expect(acls: AclStage) -> None:
    acls.following()
    for path, children in {
        "/kafka-acl": ["Cluster", "DelegationToken", "Group", "Topic", "TransactionalId"],
        "/kafka-acl-extended": ["prefixed"],
        "/kafka-acl-extended/prefixed": [
            "Cluster",
            "DelegationToken",
            "Group",
            "Topic",
            "TransactionalId",
        ],
        "/kafka-acl-changes": [],
        "/kafka-acl-extended-changes": [],
    }.items():
        assert acls.run(acls.tool.children, path)[0] == children


def test_acls_and_notifications_are_written_to_the_byte(acls: AclStage) -> None:
    authorizer = acls.following().authorizer
    add(acls, authorizer, acl("a b:c"), acl("p-", WRITE, pattern=PREFIXED))
    add(acls, authorizer, acl("x", WRITE, ResourceType.TRANSACTIONAL_ID))

    literal, _ = acls.run(acls.tool.get, "/kafka-acl/Topic/a b:c")
    assert literal == (
        b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow",'
        b'"operation":"Read","host":"*"}]}'
    )
    prefixed, _ = acls.run(acls.tool.get, "/kafka-acl-extended/prefixed/Topic/p-")
    assert json.loads(prefixed or b"")["acls"][0]["operation"] == "Write"

    def notifications(directory: str) -> list[bytes | None]:
        names, _ = acls.run(acls.tool.children, directory)
        assert all(name.startswith("acl_changes_") and len(name) == 22 for name in names)
        nodes = acls.run(acls.tool.get_many, [f"{directory}/{name}" for name in names])
        return [node[0] for node in nodes if node is not None]

    # A type of two words is told in both spellings, because brokers know one of them.
    assert notifications("/kafka-acl-changes") == [
        b"Topic:a b:c",
        b"TransactionalId:x",
        b"TRANSACTIONAL_ID:x",
    ]
    assert notifications("/kafka-acl-extended-changes") == [
        b'{"version":1,"resourceType":"Topic","name":"p-","patternType":"PREFIXED"}'
    ]


STORED = (
    b'{"version":1,"later":true,"acls":[{"principal":"User:alice","permissionType":"Allow",'
    b'"operation":"Read","host":"*"},{"principal":"User:alice","permissionType":"Allow",'
    b'"operation":"Paint","host":"*"}]}'
)


def test_words_that_are_unknown_allow_nothing_and_stay_in_the_node(acls: AclStage) -> None:
    acls.run(lambda: acls.tool.create("/kafka-acl/Topic/t", STORED, make_parents=True))
    authorizer = acls.following().authorizer
    assert acls.run(authorizer.add, [acl("t", WRITE)]) == [None]
    assert may(authorizer, "t")
    assert may(authorizer, "t", WRITE)

    (deleted,) = remove(acls, authorizer, EVERYTHING)
    assert len(deleted) == 2
    data, _ = acls.run(acls.tool.get, "/kafka-acl/Topic/t")
    assert [entry["operation"] for entry in json.loads(data or b"")["acls"]] == ["Paint"]


@pytest.mark.parametrize("data", [b'{"version":2,"acls":[]}', b"{", b'{"version":1}'])
def test_a_node_that_cannot_be_understood_keeps_a_broker_from_starting(
    acls: AclStage, data: bytes
) -> None:
    acls.run(lambda: acls.tool.create("/kafka-acl/Topic/t", data, make_parents=True))
    with pytest.raises(ZnodeError, match="/kafka-acl/Topic/t"):
        acls.following()


def test_types_that_are_unknown_are_passed_over(
    acls: AclStage, caplog: pytest.LogCaptureFixture
) -> None:
    acls.run(lambda: acls.tool.create("/kafka-acl/Color/red", b"x", make_parents=True))
    acls.following()
    assert "/kafka-acl/Color: ignored" in caplog.text


# ---- change


def test_whoever_changes_acls_decides_by_them_at_once(acls: AclStage) -> None:
    authorizer = acls.following().authorizer
    assert not may(authorizer, "t")
    add(acls, authorizer, acl("t"))
    assert may(authorizer, "t")
    remove(acls, authorizer, AclFilter.exactly(acl("t")))
    assert not may(authorizer, "t")
    assert acls.run(acls.tool.exists, "/kafka-acl/Topic/t") is None


def test_adding_twice_is_adding_once_and_notifies_once(acls: AclStage) -> None:
    authorizer = acls.following().authorizer
    assert add(acls, authorizer, acl("t"), acl("t")) == [ErrorCode.NONE, ErrorCode.NONE]
    assert add(acls, authorizer, acl("t")) == [ErrorCode.NONE]
    assert authorizer.find(EVERYTHING) == [acl("t")]
    assert len(acls.run(acls.tool.children, "/kafka-acl-changes")[0]) == 1


def test_acls_of_one_resource_are_one_write(acls: AclStage) -> None:
    authorizer = acls.following().authorizer
    add(acls, authorizer, *(acl("t", operation) for operation in (READ, WRITE, Operation.ALTER)))
    (stat,) = [acls.run(acls.tool.exists, "/kafka-acl/Topic/t")]
    assert stat is not None
    assert stat.version == 0


@pytest.mark.parametrize(
    ("binding", "word"),
    [
        (acl(""), "empty resource name"),
        (acl("a/b"), "invalid resource name"),
        (acl("a\n"), "invalid resource name"),
        (acl(".."), "invalid resource name"),
        (acl("foo", kind=ResourceType.CLUSTER), "kafka-cluster"),
        (acl("*", kind=ResourceType.CLUSTER), "kafka-cluster"),
        (acl("t", Operation.ANY), "Operation ANY"),
        (acl("t", kind=ResourceType.ANY), "ResourceType ANY"),
        (acl("t", pattern=PatternType.MATCH), "PatternType MATCH"),
        (acl("t", principal="alice"), "principalType:principalName"),
        (attrs.evolve(acl("t"), entry=AclEntry("User:a", READ, Permission.ANY)), "Permission ANY"),
        (attrs.evolve(acl("t"), entry=AclEntry("User:a", READ, host="")), "host"),
    ],
)
def test_a_bad_acl_is_refused_alone(acls: AclStage, binding: AclBinding, word: str) -> None:
    authorizer = acls.following().authorizer
    bad, good = acls.run(authorizer.add, [binding, acl("good")])
    assert good is None
    assert bad is not None
    assert bad.code is ErrorCode.INVALID_REQUEST
    assert word in bad.detail
    assert authorizer.find(EVERYTHING) == [acl("good")]


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        (EVERYTHING, {"foo", "fo", "*", "bar"}),
        (AclFilter(ResourceType.GROUP), set()),
        (only("foo"), {"foo"}),
        (only("fo", PREFIXED), {"fo"}),
        (only("fo"), set()),
        (only("foo", PatternType.ANY), {"foo"}),
        (only("foo", PatternType.MATCH), {"foo", "fo", "*"}),
        (only("bar", PatternType.MATCH), {"bar", "*"}),
        (AclFilter(principal="User:*"), set()),
        (AclFilter(principal="User:alice", host="*", operation=READ), {"foo", "fo", "*", "bar"}),
        (AclFilter(host="10.0.0.1"), set()),
        (AclFilter(operation=WRITE), set()),
        (AclFilter(permission=Permission.DENY), set()),
    ],
)
def test_filters_choose_what_is_found_and_what_is_deleted(
    acls: AclStage, chosen: AclFilter, names: set[str]
) -> None:
    authorizer = acls.following().authorizer
    add(acls, authorizer, acl("foo"), acl("fo", pattern=PREFIXED), acl("*"), acl("bar"))
    assert {binding.resource.name for binding in authorizer.find(chosen)} == names

    (deleted,) = remove(acls, authorizer, chosen)
    assert {binding.resource.name for binding in deleted} == names
    assert set(deleted.values()) <= {None}
    left = {binding.resource.name for binding in authorizer.find(EVERYTHING)}
    assert left == {"foo", "fo", "*", "bar"} - names


def test_an_acl_that_two_filters_choose_is_deleted_by_the_first(acls: AclStage) -> None:
    authorizer = acls.following().authorizer
    add(acls, authorizer, acl("foo"), acl("bar"))
    assert remove(acls, authorizer, only("foo"), EVERYTHING, only("bar")) == [
        {acl("foo"): None},
        {acl("bar"): None},
        {},
    ]


def test_a_resource_of_others_is_deleted_before_it_is_known(acls: AclStage) -> None:
    mine, other = acls.following(), acls.following()
    add(acls, other.authorizer, acl("t"))
    # Not yet followed: the watch has not run.
    mine.authorizer._acls.clear()
    assert remove(acls, mine.authorizer, only("t")) == [{acl("t"): None}]
    assert remove(acls, mine.authorizer, only("a/b")) == [{}]


def test_a_write_that_zookeeper_refuses_is_that_acls_error(acls: AclStage) -> None:
    follower = acls.following()
    follower.refusing.refuse("create", NoAuth("no"))
    assert add(acls, follower.authorizer, acl("a"), acl("b")) == [
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.NONE,
    ]
    assert not may(follower.authorizer, "a")


def test_a_node_that_others_always_change_first_is_an_error_after_ten_retries(
    acls: AclStage,
) -> None:
    follower = acls.following()
    follower.refusing.refuse("create", *[BadVersion("t")] * 11)
    errors = acls.run(follower.authorizer.add, [acl("t")])
    assert errors[0] is not None
    assert errors[0].code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "Topic:LITERAL:t" in errors[0].detail
    assert follower.refusing.calls["create"] == 11
    assert add(acls, follower.authorizer, acl("t")) == [ErrorCode.NONE]


# ---- follow


def test_a_second_broker_has_what_the_first_wrote_before_and_after_its_start(
    acls: AclStage,
) -> None:
    first = acls.following().authorizer
    add(acls, first, acl("before"))
    second = acls.following().authorizer
    assert may(second, "before")

    add(acls, first, acl("after"), acl("p", pattern=PREFIXED))
    remove(acls, first, only("before"))
    acls.settle()
    assert may(second, "after")
    assert may(second, "prefixed")
    assert not may(second, "before")


def test_a_change_between_watching_and_reading_is_not_lost(acls: AclStage) -> None:
    first = acls.following().authorizer
    second = acls.follower()

    class Slow(AclAuthorizer):
        async def load(self) -> None:
            await super().load()
            # Written when all is read, before the start has ended.
            await first.add([acl("late")])

    late = Slow(second.refusing.session, second.authorizer.policy, second.spawned)
    acls.run(late.start)
    acls.settle()
    assert may(late, "late")


SPELLINGS = ["TransactionalId:x", "TRANSACTIONAL_ID:x", "transactionalid:x"]


@pytest.mark.parametrize("text", SPELLINGS)
def test_notifications_are_read_in_every_spelling(acls: AclStage, text: str) -> None:
    authorizer = acls.following().authorizer
    node = STORED.replace(b"Read", b"Write")
    acls.run(acls.tool.create, "/kafka-acl/TransactionalId/x", node)

    async def notify() -> None:
        await acls.tool.create("/kafka-acl-changes/acl_changes_", text.encode(), sequence=True)

    acls.run(notify)
    acls.settle()
    permissions = authorizer.sender(ALICE, "h").permissions(WRITE, ResourceType.TRANSACTIONAL_ID)
    assert permissions.allows("x")


@pytest.mark.parametrize("kind", ["Topic", "TOPIC"])
def test_notifications_of_prefixes_are_read_in_every_spelling(acls: AclStage, kind: str) -> None:
    authorizer = acls.following().authorizer
    acls.run(acls.tool.create, "/kafka-acl-extended/prefixed/Topic/x", STORED)
    data = {"version": 1, "resourceType": kind, "name": "x", "patternType": "PREFIXED"}

    async def notify() -> None:
        await acls.tool.create(
            "/kafka-acl-extended-changes/acl_changes_", json.dumps(data).encode(), sequence=True
        )

    acls.run(notify)
    acls.settle()
    assert may(authorizer, "xyz")


def test_a_notification_that_cannot_be_read_is_logged_and_passed_over(
    acls: AclStage, caplog: pytest.LogCaptureFixture
) -> None:
    follower = acls.following()

    async def notify() -> None:
        for data in (b"no colon", b"Color:red", b"Topic:a/b", b"\xff:x"):
            await acls.tool.create("/kafka-acl-changes/acl_changes_", data, sequence=True)
        await acls.tool.create(
            "/kafka-acl-extended-changes/acl_changes_", b'{"version":9}', sequence=True
        )

    acls.run(notify)
    add(acls, acls.following().authorizer, acl("t"))
    acls.settle()
    assert may(follower.authorizer, "t")
    assert len(caplog.records) == 5
    assert all("acl_changes_" in record.message for record in caplog.records)


def test_a_broken_node_keeps_what_was_known_of_it_and_stops_no_other(
    acls: AclStage, caplog: pytest.LogCaptureFixture
) -> None:
    follower = acls.following()
    other = acls.following().authorizer
    add(acls, other, acl("broken"))
    acls.settle()

    async def write() -> None:
        await acls.tool.set("/kafka-acl/Topic/broken", b"{")
        await acls.tool.create("/kafka-acl/Topic/good", STORED)
        for data in (b"Topic:broken", b"Topic:good"):
            await acls.tool.create("/kafka-acl-changes/acl_changes_", data, sequence=True)

    acls.run(write)
    acls.settle()
    assert may(follower.authorizer, "broken")
    assert may(follower.authorizer, "good")
    assert "Topic:LITERAL:broken stay as they were" in caplog.text


def test_a_read_that_fails_is_made_again_at_the_next_look(
    acls: AclStage, caplog: pytest.LogCaptureFixture
) -> None:
    follower = acls.following()
    other = acls.following().authorizer
    acls.settle()
    # The first read is of the notification, the second of the resource.
    reads = follower.refusing.calls["get_many"]
    follower.refusing.refuse("get_many")

    async def add_unread() -> None:
        await other.add([acl("t")])
        while follower.refusing.calls["get_many"] == reads:
            await asyncio.sleep(0)
        follower.refusing.refuse("get_many", NoAuth("no"))

    acls.run(add_unread)
    acls.settle()
    assert not may(follower.authorizer, "t")
    assert "ACLs cannot be read, looking again" in caplog.text
    acls.settle(LOOK_INTERVAL_MS + 1000)
    assert may(follower.authorizer, "t")


def test_a_new_session_reads_everything_again(acls: AclStage) -> None:
    follower = acls.following()
    other = acls.following().authorizer

    async def change_unseen() -> None:
        acls.zookeeper.suspend(follower.session)
        await other.add([acl("t")])
        # The notification is purged before the broker is back.
        names, _ = await acls.tool.children("/kafka-acl-changes")
        for name in names:
            await acls.tool.delete(f"/kafka-acl-changes/{name}")
        acls.zookeeper.expire(follower.session)
        acls.zookeeper.resume(follower.session)

    acls.run(change_unseen)
    acls.settle()
    assert may(follower.authorizer, "t")


def test_a_broken_node_does_not_hold_up_a_new_session(acls: AclStage) -> None:
    follower = acls.following()
    other = acls.following().authorizer
    add(acls, other, acl("broken"))
    acls.settle()

    async def change_unseen() -> None:
        acls.zookeeper.suspend(follower.session)
        await other.add([acl("t")])
        await acls.tool.set("/kafka-acl/Topic/broken", b"{")
        acls.zookeeper.expire(follower.session)
        # The first attempt is refused: there is another at the next look.
        follower.refusing.refuse("children", *[NoAuth("no")] * 3)
        acls.zookeeper.resume(follower.session)

    acls.run(change_unseen)
    acls.settle()
    assert not may(follower.authorizer, "t")
    acls.settle(LOOK_INTERVAL_MS + 1000)
    assert may(follower.authorizer, "t")
    assert may(follower.authorizer, "broken")


def test_a_filter_leaves_resources_alone_that_it_does_not_choose_from(acls: AclStage) -> None:
    authorizer = acls.following().authorizer
    add(acls, authorizer, acl("a"), acl("b", principal="User:bob"))
    (deleted,) = remove(acls, authorizer, AclFilter(principal="User:bob"))
    assert list(deleted) == [acl("b", principal="User:bob")]
    stat = acls.run(acls.tool.exists, "/kafka-acl/Topic/a")
    assert stat is not None
    assert stat.version == 0


def entries(authorizer: AclAuthorizer) -> set[AclBinding]:
    return set(authorizer.find(EVERYTHING))


@pytest.mark.parametrize("seed", range(3))
def test_two_brokers_that_change_one_resource_at_the_same_time_agree(
    acls: AclStage, seed: int
) -> None:
    first = acls.following(seed).authorizer
    second = acls.following(seed + 100).authorizer
    mine = [acl("t", principal=f"User:{number}") for number in range(50)]

    async def change_concurrently() -> None:
        await asyncio.gather(
            *(
                (first if number % 2 else second).add([binding])
                for number, binding in enumerate(mine)
            )
        )
        await asyncio.gather(
            *(
                # What one has added the other removes.
                (second if number % 2 else first).remove([AclFilter.exactly(binding)])
                for number, binding in enumerate(mine[:40])
            )
        )

    acls.run(change_concurrently)
    acls.settle()
    assert entries(first) == entries(second) == set(mine[40:])
    third = acls.following().authorizer
    assert entries(third) == set(mine[40:])

    acls.run(first.remove, [EVERYTHING])
    acls.settle()
    assert entries(second) == set()
    assert acls.run(acls.tool.exists, "/kafka-acl/Topic/t") is None


def test_creating_and_deleting_quickly_ends_in_the_last_state(acls: AclStage) -> None:
    first, second = acls.following().authorizer, acls.following().authorizer

    async def churn() -> None:
        for _ in range(10):
            await first.add([acl("t")])
            await first.remove([only("t")])
        await first.add([acl("t")])

    acls.run(churn)
    acls.settle()
    assert may(second, "t")


# ---- what is kept


def test_permissions_are_kept_until_an_acl_changes(acls: AclStage) -> None:
    follower = acls.following()
    authorizer = follower.authorizer
    sender = authorizer.sender(ALICE, "h")
    kept = sender.permissions(READ, TOPIC)
    assert authorizer.sender(ALICE, "h").permissions(READ, TOPIC) is kept
    add(acls, authorizer, acl("t"))
    assert authorizer.sender(ALICE, "h").permissions(READ, TOPIC) is not kept
    # What was found before stays as it was.
    assert not kept.allows("t")


def test_senders_that_are_kept_have_a_bound(
    acls: AclStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acl_authorizer, "MAX_SENDERS", 3)
    authorizer = acls.following().authorizer
    for number in range(10):
        authorizer.sender(ALICE, f"10.0.0.{number}")
        assert len(authorizer._senders) <= 3


def test_a_sender_sees_acls_of_its_own_host(acls: AclStage) -> None:
    authorizer = acls.following().authorizer
    entry = AclEntry("User:alice", READ, host="10.0.0.1")
    add(acls, authorizer, AclBinding(ResourcePattern(TOPIC, "t"), entry))
    assert authorizer.sender(ALICE, "10.0.0.1").permissions(READ, TOPIC).allows("t")
    assert not authorizer.sender(ALICE, "10.0.0.2").permissions(READ, TOPIC).allows("t")


def test_the_authorizer_logs_nothing_itself(
    acls: AclStage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "kafka.authorizer.logger")
    may(acls.following().authorizer, "t")
    assert not caplog.records


@pytest.mark.fault("security-0")
def test_refused_bindings_keep_nothing_but_their_errors(acls: AclStage) -> None:
    """An error with a traceback would have all bindings of the request, and they are many."""
    authorizer = acls.following().authorizer
    illegal = [acl("", kind=TOPIC), acl("good"), acl("t", principal="nobody")]

    errors = acls.run(authorizer.add, illegal)

    assert [error is None for error in errors] == [False, True, False]
    assert [error.__traceback__ for error in errors if error is not None] == [None, None]


# ---- many


@pytest.mark.fault("scale-S4")
def test_acls_of_one_request_are_indexed_a_few_times_while_others_ask(acls: AclStage) -> None:
    authorizer = acls.following().authorizer
    session = authorizer.zk

    class Slow:
        """A session in which others come in between."""

        def __getattr__(self, name: str) -> object:
            method = getattr(session, name)

            async def call(*args: object, **kwargs: object) -> object:
                await asyncio.sleep(0)
                return await method(*args, **kwargs)

            return call if inspect.iscoroutinefunction(method) else method

    slow: Any = Slow()
    authorizer.zk = slow
    indexes: list[object] = []

    async def ask() -> None:
        while True:
            index = authorizer.sender(ALICE, "10.0.0.1").index
            if not indexes or indexes[-1] is not index:
                indexes.append(index)
            await asyncio.sleep(0)

    async def add_beside() -> None:
        asking = asyncio.ensure_future(ask())
        assert await authorizer.add([acl(f"t{n}") for n in range(200)]) == [None] * 200
        asking.cancel()

    acls.run(add_beside)
    # Before, with the first one, and at the end; more where that takes long.
    assert len(indexes) < 10
    assert may(authorizer, "t199")


def turns_of(acls: AclStage, call: Callable[[], Awaitable[Any]]) -> int:
    """Return the number of turns of the loop that a call takes."""

    async def count() -> int:
        calling = asyncio.ensure_future(call())
        turns = 0
        while not calling.done():
            await asyncio.sleep(0)
            turns += 1
        calling.result()
        return turns

    return acls.run(count)


@pytest.mark.fault("scale-S4")
def test_filters_that_name_their_resource_need_no_look_at_all_resources(
    acls: AclStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    authorizer = acls.following().authorizer
    add(acls, authorizer, *(acl(f"t{n}") for n in range(200)))
    monkeypatch.setattr(acl_authorizer, "STEPS_A_TURN", 1)
    assert turns_of(acls, lambda: authorizer.remove([AclFilter.exactly(acl("t7"))])) < 50
    assert len(authorizer.find(EVERYTHING)) == 199


MANY = 300
A_TURN = 10


@pytest.mark.fault("strangers-11")
@pytest.mark.parametrize(
    ("bindings", "filters", "most"),
    [
        # Whether entries of one resource, or resources: each of them is looked at once, or twice.
        ([acl("t", principal=f"User:{n}") for n in range(MANY)], 1, 2 * MANY),
        ([acl(f"t{n}") for n in range(MANY)], 1, 3 * MANY),
        # Many filters are read once, and take one look-up.
        ([acl("t")], MANY, 2 * MANY),
        ([acl("t", principal=f"User:{n}") for n in range(MANY)], MANY, 3 * MANY),
    ],
)
def test_each_acl_and_each_filter_of_a_deletion_is_looked_at_once_some_of_them_a_turn(
    acls: AclStage,
    monkeypatch: pytest.MonkeyPatch,
    bindings: list[AclBinding],
    filters: int,
    most: int,
) -> None:
    authorizer = acls.following().authorizer
    add(acls, authorizer, *bindings)
    monkeypatch.setattr(acl_authorizer, "STEPS_A_TURN", A_TURN)
    departed = [AclFilter(principal=f"User:gone{n}") for n in range(filters)]
    turns = turns_of(acls, lambda: authorizer.remove(departed))
    assert MANY // A_TURN <= turns <= most // A_TURN + 10
    assert len(authorizer.find(EVERYTHING)) == len(bindings)


@pytest.mark.fault("strangers-11")
def test_resources_that_no_filter_chooses_are_looked_at_some_of_them_a_turn(
    acls: AclStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    authorizer = acls.following().authorizer
    add(acls, authorizer, *(acl(f"t{n}") for n in range(MANY)))
    acls.settle()
    # Nothing is known of them.
    authorizer._acls = {binding.resource: NO_ACLS for binding in authorizer.find(EVERYTHING)}
    monkeypatch.setattr(acl_authorizer, "STEPS_A_TURN", A_TURN)
    turns = turns_of(acls, lambda: authorizer.remove([AclFilter(ResourceType.GROUP)]))
    assert turns >= MANY // A_TURN


@pytest.mark.fault("strangers-11")
def test_many_acls_are_checked_some_of_them_a_turn(
    acls: AclStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    authorizer = acls.following().authorizer
    monkeypatch.setattr(acl_authorizer, "STEPS_A_TURN", A_TURN)
    many = [acl("t", principal=f"User:{n}") for n in range(MANY)]
    assert turns_of(acls, lambda: authorizer.add(many)) >= MANY // A_TURN
    assert len(authorizer.find(EVERYTHING)) == MANY


@pytest.mark.fault("strangers-11")
@pytest.mark.parametrize("of_one_resource", [True, False])
def test_many_acls_are_read_some_of_them_a_turn(
    acls: AclStage, monkeypatch: pytest.MonkeyPatch, of_one_resource: bool
) -> None:
    """Those of one node are decoded in one turn."""
    resources = 2 if of_one_resource else MANY
    many = [acl(f"t{n % resources}", principal=f"User:{n}") for n in range(MANY)]
    add(acls, acls.following().authorizer, *many)
    authorizer = acls.follower().authorizer
    before = turns_of(acls, authorizer.load)
    monkeypatch.setattr(acl_store, "ACLS_A_TURN", A_TURN)
    turns = turns_of(acls, authorizer.load) - before
    assert turns >= (2 if of_one_resource else 3 * MANY // A_TURN - 1)
    assert len(authorizer.find(EVERYTHING)) == MANY


def test_of_two_filters_for_one_entry_the_first_has_it(acls: AclStage) -> None:
    authorizer = acls.following().authorizer
    add(acls, authorizer, acl("t"), acl("t", WRITE))
    exact = AclFilter.exactly(acl("t"))
    assert remove(acls, authorizer, only("nothing"), exact, only("t")) == [
        {},
        {acl("t"): None},
        {acl("t", WRITE): None},
    ]
    add(acls, authorizer, acl("t"))
    assert remove(acls, authorizer, only("t"), exact) == [{acl("t"): None}, {}]


# ---- requests that are served for long


@pytest.mark.fault("strangers-15")
def test_a_request_that_is_served_for_long_is_asked_about_the_rights_of_now(
    acls: AclStage,
) -> None:
    authorizer = acls.following().authorizer
    add(acls, authorizer, acl("t"), acl("g", kind=ResourceType.GROUP))
    sender = authorizer.sender(ALICE, "10.0.0.1")
    context = RequestContext(
        1, "client", "PLAINTEXT", "10.0.0.1:1", 0, principal=ALICE, sender=sender
    )
    assert refused_topics(context, READ, ["t"]) == set()
    assert authorize(context, READ, group("g"))

    remove(acls, authorizer, EVERYTHING)
    assert refused_topics(context, READ, ["t"]) == {"t"}
    assert not authorize(context, READ, group("g"))
