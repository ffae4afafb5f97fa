"""Decisions by ACLs: the rules one by one, then random ACLs beside the rules written plainly."""

from __future__ import annotations

import random

import attrs
import pytest

from broker.authorization.acl_index import AclIndex, Names, Policy, allows
from broker.network.authorization import CLUSTER, Resource, group, topic, transactional_id
from broker.network.session import ANONYMOUS, Principal
from protocol.acls import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
HOST, OTHER_HOST = "192.168.0.1", "192.168.0.2"
ALLOW, DENY = Permission.ALLOW, Permission.DENY
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
TOPIC = ResourceType.TOPIC
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
PLAIN = Policy()
T = topic("t")


def acl(
    name: str,
    principal: str,
    operation: Operation,
    permission: Permission = ALLOW,
    host: str = "*",
    *,
    kind: ResourceType = TOPIC,
    pattern: PatternType = LITERAL,
) -> AclBinding:
    return AclBinding(
        ResourcePattern(kind, name, pattern), AclEntry(principal, operation, permission, host)
    )


def may(
    acls: list[AclBinding],
    principal: Principal = ALICE,
    operation: Operation = READ,
    resource: Resource = T,
    host: str = HOST,
    policy: Policy = PLAIN,
) -> bool:
    return allows(acls, principal, host, operation, resource, policy)


# ---- the rules


def test_what_nobody_has_allowed_is_denied() -> None:
    assert not may([])
    assert not may([acl("other", "User:alice", READ)])
    assert not may([acl("t", "User:bob", READ)])
    assert not may([acl("t", "User:alice", WRITE)])
    assert not may([acl("t", "User:alice", READ, kind=ResourceType.GROUP)])


def test_principal_host_and_operation_must_all_match() -> None:
    acls = [acl("t", "User:alice", READ, host=HOST)]
    assert may(acls)
    assert not may(acls, host=OTHER_HOST)
    assert not may(acls, BOB)
    assert not may(acls, operation=Operation.ALTER)


def test_the_type_of_a_principal_counts() -> None:
    assert not may([acl("t", "User:alice", READ)], Principal("user", "alice"))
    assert may([acl("t", "Team:alice", READ)], Principal("Team", "alice"))


def test_a_name_may_have_colons_and_commas() -> None:
    principal = Principal("User", "CN=a:b,O=c")
    assert may([acl("t", "User:CN=a:b,O=c", READ)], principal)


@pytest.mark.parametrize("principal", [ALICE, ANONYMOUS, Principal("Team", "x")])
def test_the_acl_of_everybody_is_for_principals_of_all_types(principal: Principal) -> None:
    assert may([acl("t", "User:*", READ)], principal)


def test_a_wildcard_of_another_type_is_a_name_like_any_other() -> None:
    assert not may([acl("t", "Team:*", READ)], Principal("Team", "x"))


def test_one_deny_outweighs_all_allows() -> None:
    everything = acl("t", "User:*", Operation.ALL)
    assert not may([everything, acl("t", "User:alice", READ, DENY)])
    assert not may([everything, acl("*", "User:*", Operation.ALL, DENY, HOST)])
    assert not may([everything, acl("t", "User:alice", READ, DENY, pattern=PREFIXED)])


def test_deny_of_one_operation_or_host_leaves_the_others() -> None:
    acls = [acl("t", "User:alice", Operation.ALL), acl("t", "User:alice", WRITE, DENY, HOST)]
    assert may(acls)
    assert not may(acls, operation=WRITE)
    assert may(acls, operation=WRITE, host=OTHER_HOST)


@pytest.mark.parametrize(
    "operation", [READ, WRITE, Operation.DELETE, Operation.ALTER, Operation.ALL, DESCRIBE]
)
def test_describe_is_implied_where_it_is_allowed(operation: Operation) -> None:
    assert may([acl("t", "User:alice", operation)], operation=DESCRIBE)


@pytest.mark.parametrize(
    "operation", [Operation.CREATE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS]
)
def test_describe_is_implied_by_nothing_else(operation: Operation) -> None:
    assert not may([acl("t", "User:alice", operation)], operation=DESCRIBE)


def test_altering_settings_implies_describing_them() -> None:
    acls = [acl("t", "User:alice", Operation.ALTER_CONFIGS)]
    assert may(acls, operation=Operation.DESCRIBE_CONFIGS)
    assert not may(
        [acl("t", "User:alice", Operation.DESCRIBE_CONFIGS)], operation=Operation.ALTER_CONFIGS
    )


def test_deny_has_no_implications() -> None:
    read_denied = [acl("t", "User:alice", Operation.ALL), acl("t", "User:alice", READ, DENY)]
    assert may(read_denied, operation=DESCRIBE)
    describe_denied = [acl("t", "User:alice", READ), acl("t", "User:alice", DESCRIBE, DENY)]
    assert may(describe_denied)
    assert not may(describe_denied, operation=DESCRIBE)


def test_all_operations_allowed_or_denied_are_every_one() -> None:
    for operation in Operation:
        if operation > Operation.ALL:
            assert may([acl("t", "User:alice", Operation.ALL)], operation=operation)
            denied = [acl("t", "User:alice", operation), acl("t", "User:*", Operation.ALL, DENY)]
            assert not may(denied, operation=operation)


def test_a_super_user_may_do_everything_in_spite_of_acls() -> None:
    policy = Policy(frozenset({ALICE, Principal("Team", "a")}))
    acls = [acl("t", "User:*", Operation.ALL, DENY)]
    assert may(acls, policy=policy)
    assert may(acls, Principal("Team", "a"), policy=policy)
    assert not may(acls, BOB, policy=policy)


def test_wildcard_and_prefixes_concern_a_name_like_its_own_acl() -> None:
    assert may([acl("*", "User:alice", READ)])
    assert may([acl("t", "User:alice", READ, pattern=PREFIXED)], resource=topic("topic"))
    assert may([acl("t", "User:alice", READ, pattern=PREFIXED)])
    assert not may([acl("T", "User:alice", READ, pattern=PREFIXED)])
    assert not may([acl("t-", "User:alice", READ, pattern=PREFIXED)])
    # A star is a wildcard only where it is the whole literal name.
    assert not may([acl("t*", "User:alice", READ)], resource=topic("tt"))
    assert not may([acl("*", "User:alice", READ, pattern=PREFIXED)])


def test_a_prefix_below_another_one_does_not_hide_it() -> None:
    acls = [acl(name, "User:alice", READ, pattern=PREFIXED) for name in ("a", "ab", "abc", "b")]
    for name in ("a", "abb", "abcd", "az", "b"):
        assert may(acls, resource=topic(name)), name
    for name in ("A", "c", ""):
        assert not may(acls, resource=topic(name)), name


@pytest.mark.parametrize("resource", [topic(""), topic("*"), CLUSTER, group("*"), group("g/h")])
def test_any_name_may_be_asked_for(resource: Resource) -> None:
    acls = [acl("*", "User:alice", READ, kind=resource.kind)]
    assert may(acls, resource=resource)
    assert not may([], resource=resource)


def test_without_acls_for_anybody_the_setting_decides() -> None:
    policy = Policy(allow_everyone_if_no_acl_found=True)
    assert may([], policy=policy)
    assert may([acl("other", "User:bob", READ)], policy=policy)
    # One ACL for somebody else shuts everybody out, also on a prefix, or on all.
    assert not may([acl("t", "User:bob", READ)], policy=policy)
    assert not may([acl("*", "User:bob", READ)], policy=policy)
    assert not may([acl("t", "User:bob", READ, pattern=PREFIXED)], policy=policy)
    # Those of other types of resource do not count.
    assert may([acl("t", "User:bob", READ, kind=ResourceType.GROUP)], policy=policy)


def test_an_acl_without_a_known_word_counts_as_one() -> None:
    index = AclIndex.of({ResourcePattern(TOPIC, "t"): ()})
    policy = Policy(allow_everyone_if_no_acl_found=True)
    permissions = index.permissions(policy, ALICE, HOST, READ, TOPIC)
    assert not permissions.allows("t")
    assert permissions.allows("u")


# ---- any resource of a type (KIP-679)


def somewhere(acls: list[AclBinding], policy: Policy = PLAIN, principal: Principal = ALICE) -> bool:
    index = AclIndex.of(by_pattern(acls))
    return index.may_somewhere(policy, principal, HOST, WRITE, TOPIC)


def by_pattern(acls: list[AclBinding]) -> dict[ResourcePattern, list[AclEntry]]:
    found: dict[ResourcePattern, list[AclEntry]] = {}
    for binding in acls:
        found.setdefault(binding.resource, []).append(binding.entry)
    return found


def test_one_allow_is_enough_to_write_somewhere() -> None:
    assert not somewhere([])
    assert somewhere([acl("t", "User:alice", WRITE)])
    assert somewhere([acl("t", "User:*", Operation.ALL, host=HOST, pattern=PREFIXED)])
    assert not somewhere([acl("t", "User:alice", WRITE, host=OTHER_HOST)])
    assert not somewhere([acl("t", "User:alice", WRITE, kind=ResourceType.GROUP)])
    # Nothing is implied.
    assert not somewhere([acl("t", "User:alice", Operation.ALTER)])


def test_a_deny_counts_where_it_covers_all_that_is_allowed() -> None:
    literal = acl("foo", "User:alice", WRITE)
    prefix = acl("foo", "User:alice", WRITE, pattern=PREFIXED)
    wildcard = acl("*", "User:alice", WRITE)

    # An unrelated one does not.
    assert somewhere([literal, acl("bar", "User:alice", WRITE, DENY)])
    # The same name, or a prefix of it.
    assert not somewhere([literal, acl("foo", "User:*", Operation.ALL, DENY)])
    assert not somewhere([literal, acl("f", "User:alice", WRITE, DENY, pattern=PREFIXED)])
    assert not somewhere([prefix, acl("f", "User:alice", WRITE, DENY, pattern=PREFIXED)])
    assert not somewhere([prefix, acl("foo", "User:alice", WRITE, DENY, pattern=PREFIXED)])
    # A longer prefix, and one name below a prefix, leave something.
    assert somewhere([prefix, acl("foo-", "User:alice", WRITE, DENY, pattern=PREFIXED)])
    assert somewhere([prefix, acl("foo", "User:alice", WRITE, DENY)])
    # All topics are more than any of these, and are denied only as a whole.
    assert somewhere([wildcard, acl("f", "User:alice", WRITE, DENY, pattern=PREFIXED)])
    assert not somewhere([wildcard, acl("*", "User:alice", WRITE, DENY)])


def test_super_users_and_open_clusters_may_write_somewhere() -> None:
    denied = [acl("*", "User:*", Operation.ALL, DENY)]
    assert somewhere(denied, Policy(frozenset({ALICE})))
    assert somewhere([], Policy(allow_everyone_if_no_acl_found=True))
    assert not somewhere(denied, Policy(allow_everyone_if_no_acl_found=True))


# ---- many at once


@attrs.frozen
class Model:
    """The rules, each ACL by itself."""

    acls: list[AclBinding]
    policy: Policy

    def allows(
        self, principal: Principal, host: str, operation: Operation, resource: Resource
    ) -> bool:
        if principal in self.policy.super_users:
            return True
        concerned = [
            binding.entry
            for binding in self.acls
            if binding.resource.kind is resource.kind
            and (
                binding.resource.name in (resource.name, "*")
                if binding.resource.pattern is LITERAL
                else resource.name.startswith(binding.resource.name)
            )
        ]
        if not concerned:
            return self.policy.allow_everyone_if_no_acl_found

        def match(permission: Permission, operations: set[Operation]) -> bool:
            return any(
                entry.permission is permission
                and entry.principal in (str(principal), "User:*")
                and entry.host in (host, "*")
                and entry.operation in operations | {Operation.ALL}
                for entry in concerned
            )

        implying = {
            DESCRIBE: {DESCRIBE, READ, WRITE, Operation.DELETE, Operation.ALTER},
            Operation.DESCRIBE_CONFIGS: {Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS},
        }
        return not match(DENY, {operation}) and match(ALLOW, implying.get(operation, {operation}))


NAMES = ["a", "ab", "abc", "abd", "b", "ba", "*", ""]


@pytest.mark.parametrize("seed", range(20))
def test_random_acls_are_decided_like_the_rules_say(seed: int) -> None:
    rng = random.Random(seed)
    operations = [READ, WRITE, DESCRIBE, Operation.ALL, Operation.ALTER_CONFIGS]
    acls = [
        acl(
            rng.choice(NAMES[:-1]),
            rng.choice(["User:alice", "User:bob", "User:*"]),
            rng.choice(operations),
            rng.choice([ALLOW, ALLOW, DENY]),
            rng.choice(["*", HOST]),
            kind=rng.choice([TOPIC, ResourceType.GROUP]),
            pattern=rng.choice([LITERAL, PREFIXED]),
        )
        for _ in range(rng.randrange(12))
    ]
    policy = Policy(
        frozenset({BOB} if rng.random() < 0.1 else ()),
        allow_everyone_if_no_acl_found=rng.random() < 0.5,
    )
    model = Model(acls, policy)
    index = AclIndex.of(by_pattern(acls))

    for principal in (ALICE, BOB):
        for host in (HOST, OTHER_HOST):
            for kind in (TOPIC, ResourceType.GROUP):
                for operation in (READ, WRITE, DESCRIBE, Operation.DESCRIBE_CONFIGS):
                    permissions = index.permissions(policy, principal, host, operation, kind)
                    expected = {
                        name
                        for name in NAMES
                        if not model.allows(principal, host, operation, Resource(kind, name))
                    }
                    assert permissions.refused(NAMES) == expected
                    assert {name for name in NAMES if not permissions.allows(name)} == expected


def test_prefixes_are_kept_without_those_that_add_nothing() -> None:
    patterns = [ResourcePattern(TOPIC, name, PREFIXED) for name in ("ab", "a", "abc", "c")]
    assert Names.of(patterns).prefixes == ("a", "c")


def test_resources_of_other_types_have_acls_of_their_own() -> None:
    acls = [acl("x", "User:alice", WRITE, kind=ResourceType.TRANSACTIONAL_ID)]
    assert may(acls, operation=WRITE, resource=transactional_id("x"))
    assert not may(acls, operation=WRITE, resource=topic("x"))
