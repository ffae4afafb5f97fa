"""The options of `kbroker acls`, which are those of kafka-acls.sh, as ACLs and filters."""

from __future__ import annotations

from typing import Any

import click
import pytest

from broker.kbroker.acl_choice import AclChoice, acls_to_add, filters_to_list, filters_to_remove
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

ALICE = ("User:alice",)
TOPIC = ResourceType.TOPIC
Listed = set[tuple[str, str, str, str]]


def listed(bindings: list[AclBinding]) -> Listed:
    """Resource, principal@host, operation and permission of each."""
    return {
        (
            str(binding.resource),
            f"{binding.entry.principal}@{binding.entry.host}",
            binding.entry.operation.word,
            binding.entry.permission.word,
        )
        for binding in bindings
    }


def test_a_producer_may_write_describe_and_create_topics_and_write_its_transactions() -> None:
    choice = AclChoice(
        topics=("t",), transactional_ids=("x",), allow_principals=ALICE, producer=True
    )
    assert listed(acls_to_add(choice)) == {
        (f"{resource}", "User:alice@*", operation, "Allow")
        for resource, operations in (
            ("Topic:LITERAL:t", ("Write", "Describe", "Create")),
            ("TransactionalId:LITERAL:x", ("Write", "Describe")),
        )
        for operation in operations
    }


def test_an_idempotent_producer_may_write_so_in_the_cluster() -> None:
    choice = AclChoice(topics=("t",), allow_principals=ALICE, producer=True, idempotent=True)
    added = listed(acls_to_add(choice))
    assert ("Cluster:LITERAL:kafka-cluster", "User:alice@*", "IdempotentWrite", "Allow") in added
    assert len(added) == 4


def test_a_consumer_may_read_and_describe_topics_and_read_its_group() -> None:
    choice = AclChoice(
        topics=("t-",),
        groups=("g-",),
        pattern=PatternType.PREFIXED,
        allow_principals=ALICE,
        consumer=True,
    )
    assert listed(acls_to_add(choice)) == {
        ("Topic:PREFIXED:t-", "User:alice@*", "Read", "Allow"),
        ("Topic:PREFIXED:t-", "User:alice@*", "Describe", "Allow"),
        ("Group:PREFIXED:g-", "User:alice@*", "Read", "Allow"),
    }


def test_principals_hosts_and_operations_are_all_combined() -> None:
    choice = AclChoice(
        topics=("t",),
        on_cluster=True,
        allow_principals=("User:a", "User:b"),
        allow_hosts=("10.0.0.1", "::1"),
        deny_principals=("User:c",),
        operations=(Operation.DESCRIBE, Operation.ALTER),
    )
    added = listed(acls_to_add(choice))
    assert len(added) == 2 * (2 * 2 * 2 + 2)
    assert ("Topic:LITERAL:t", "User:c@*", "Alter", "Deny") in added
    # As Java, and so a broker, writes the address.
    assert ("Topic:LITERAL:t", "User:b@0:0:0:0:0:0:0:1", "Alter", "Allow") in added


def test_the_cluster_is_a_literal_name_whatever_the_pattern() -> None:
    choice = AclChoice(on_cluster=True, pattern=PatternType.PREFIXED, allow_principals=ALICE)
    (binding,) = acls_to_add(choice)
    assert binding.resource == ResourcePattern(ResourceType.CLUSTER, "kafka-cluster")
    assert binding.entry.operation is Operation.ALL


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"topics": ("t",)}, "--allow-principal or --deny-principal"),
        ({"allow_principals": ALICE}, "say on what"),
        ({"topics": ("t",), "allow_principals": ("alice",)}, "principalType:principalName"),
        (
            {"topics": ("t",), "allow_principals": ALICE, "pattern": PatternType.MATCH},
            "literal or prefixed",
        ),
        (
            {"topics": ("t",), "allow_principals": ALICE, "allow_hosts": ("localhost",)},
            "is no address",
        ),
        (
            {
                "groups": ("g",),
                "allow_principals": ALICE,
                "operations": (Operation.WRITE,),
            },
            "ResourceType GROUP only supports operations Read, Delete, Describe, All",
        ),
        ({"allow_principals": ALICE, "producer": True}, "need a --topic"),
        ({"topics": ("t",), "allow_principals": ALICE, "consumer": True}, "needs a --group"),
        (
            {"topics": ("t",), "groups": ("g",), "allow_principals": ALICE, "producer": True},
            "--group needs --consumer",
        ),
        (
            {
                "topics": ("t",),
                "groups": ("g",),
                "transactional_ids": ("x",),
                "allow_principals": ALICE,
                "consumer": True,
            },
            "--transactional-id needs --producer",
        ),
        (
            {"topics": ("t",), "on_cluster": True, "allow_principals": ALICE, "producer": True},
            "are about topics",
        ),
        (
            {
                "topics": ("t",),
                "allow_principals": ALICE,
                "producer": True,
                "operations": (Operation.READ,),
            },
            "bring their own operations",
        ),
        ({"topics": ("t",), "allow_principals": ALICE, "idempotent": True}, "needs --producer"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_option(
    choice: dict[str, Any], message: str
) -> None:
    with pytest.raises(click.UsageError) as refused:
        acls_to_add(AclChoice(**choice))
    assert message in refused.value.message


def test_without_names_all_acls_are_listed() -> None:
    assert filters_to_list(AclChoice()) == [AclFilter()]
    assert filters_to_list(AclChoice(principals=ALICE)) == [AclFilter(principal="User:alice")]


def test_resources_are_listed_by_pattern_and_principal() -> None:
    choice = AclChoice(topics=("t",), pattern=PatternType.MATCH, principals=ALICE)
    assert filters_to_list(choice) == [
        AclFilter(TOPIC, "t", PatternType.MATCH, principal="User:alice")
    ]


def test_without_a_principal_all_acls_of_the_resources_are_removed() -> None:
    assert filters_to_remove(AclChoice(topics=("t",))) == [
        AclFilter(TOPIC, "t", PatternType.LITERAL)
    ]


def test_with_a_principal_exactly_what_would_be_added_is_removed() -> None:
    choice = AclChoice(topics=("t",), allow_principals=ALICE, producer=True)
    assert filters_to_remove(choice) == list(map(AclFilter.exactly, acls_to_add(choice)))


@pytest.mark.parametrize("choice", [AclChoice(), AclChoice(topics=("t",), producer=True)])
def test_removing_needs_resources_and_with_a_shortcut_a_principal(choice: AclChoice) -> None:
    with pytest.raises(click.UsageError):
        filters_to_remove(choice)


def test_an_entry_of_all_hosts_has_a_star() -> None:
    (binding,) = acls_to_add(AclChoice(topics=("t",), deny_principals=("User:*",)))
    assert binding.entry == AclEntry("User:*", Operation.ALL, Permission.DENY, "*")
