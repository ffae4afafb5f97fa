"""Many filters at once, beside each of them alone."""

from __future__ import annotations

import random

import pytest

from broker.authorization.acl_filters import FilterIndex
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

NAMES = ["*", "a", "ab", "abc", "b", "ba"]
PRINCIPALS = ["User:a", "User:b", "User:*"]
HOSTS = ["*", "10.0.0.1"]
KINDS = [ResourceType.TOPIC, ResourceType.GROUP]
OPERATIONS = [Operation.READ, Operation.WRITE, Operation.ALL]
PERMISSIONS = [Permission.ALLOW, Permission.DENY]


def index_of(filters: list[AclFilter]) -> FilterIndex:
    index = FilterIndex()
    for place, chosen in enumerate(filters):
        index.add(chosen, place)
    return index


def a_filter(rng: random.Random) -> AclFilter:
    return AclFilter(
        rng.choice([ResourceType.ANY, *KINDS]),
        rng.choice([None, *NAMES]),
        rng.choice([pattern for pattern in PatternType if pattern]),
        rng.choice([None, *PRINCIPALS]),
        rng.choice([None, *HOSTS]),
        rng.choice([Operation.ANY, *OPERATIONS]),
        rng.choice([Permission.ANY, *PERMISSIONS]),
    )


def an_acl(rng: random.Random) -> AclBinding:
    pattern = rng.choice([PatternType.LITERAL, PatternType.PREFIXED])
    return AclBinding(
        ResourcePattern(rng.choice(KINDS), rng.choice(NAMES), pattern),
        AclEntry(
            rng.choice(PRINCIPALS),
            rng.choice(OPERATIONS),
            rng.choice(PERMISSIONS),
            rng.choice(HOSTS),
        ),
    )


@pytest.mark.fault("strangers-11")
@pytest.mark.parametrize("seed", range(5))
def test_the_first_filter_that_chooses_an_acl_is_found(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        filters = [a_filter(rng) for _ in range(rng.randrange(60))]
        index = index_of(filters)
        for _ in range(50):
            acl = an_acl(rng)
            first = next((at for at, some in enumerate(filters) if some.chooses(acl)), None)
            assert index.of(acl.resource).first(acl.entry) == first, (acl, filters)


@pytest.mark.fault("strangers-11")
@pytest.mark.parametrize(
    "filters",
    [
        [AclFilter(principal=f"User:{n}") for n in range(500)],
        [AclFilter(ResourceType.TOPIC, "ab", host=f"10.0.0.{n}") for n in range(500)],
        # They concern a prefix of their names, too.
        [AclFilter(ResourceType.TOPIC, f"ab{n}", PatternType.MATCH) for n in range(500)],
    ],
)
def test_an_acl_takes_one_look_up_for_all_filters_of_a_kind(filters: list[AclFilter]) -> None:
    prefix = ResourcePattern(ResourceType.TOPIC, "ab", PatternType.PREFIXED)
    assert index_of(filters).of(prefix).look_ups == 1
    assert index_of(filters).of(ResourcePattern(ResourceType.GROUP, "x")).look_ups <= 1


@pytest.mark.fault("strangers-11")
def test_names_that_a_prefix_concerns_count_by_the_thousand_and_are_not_gone_through_again() -> (
    None
):
    index = index_of(
        [AclFilter(ResourceType.TOPIC, f"ab{n}", PatternType.MATCH) for n in range(3000)]
    )
    entry = AclEntry("User:a", Operation.READ, Permission.ALLOW, "*")
    for prefix, first in ("a", 0), ("ab2", 2), ("ab29", 29), ("b", None):
        choosing = index.of(ResourcePattern(ResourceType.TOPIC, prefix, PatternType.PREFIXED))
        assert choosing.first(entry) == first
        # A turn of the loop would have 1,000 such entries, each of which looks at 3,000 names.
        assert choosing.look_ups >= 4
